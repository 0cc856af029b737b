"""How the page of results looks: one sheet, light and dark, from a phone to a desktop."""

STYLE = """
:root{--ink:#1b1f24;--soft:#5b6470;--paper:#fbfaf7;--card:#fff;--line:#e2dfd8;--accent:#2f6f5e;--mark:#c2571a}
@media (prefers-color-scheme:dark){
:root{--ink:#e9e7e2;--soft:#a3a9b2;--paper:#15181c;--card:#1f242a;--line:#333a42;--accent:#6fc0a8;--mark:#f09a5b}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
header,main,footer{max-width:64rem;margin:0 auto;padding:0 1rem}
header{padding-top:2rem}
h1{font-size:clamp(1.6rem,5vw,2.4rem);line-height:1.15;margin:0 0 .5rem}
h2{font-size:1.25rem;margin:2.2rem 0 .3rem}
h3{font-size:1.05rem;margin:1.4rem 0 .2rem;font-weight:600}
p{margin:.3rem 0;max-width:46rem}
.small,footer{color:var(--soft);font-size:.875rem}
.verdict{font-size:1.1rem;font-weight:600}
.figures{display:grid;gap:.6rem;margin:1rem 0 .6rem}
.figure{display:grid;grid-template-columns:minmax(0,14rem) 1fr 4.5rem 7rem;gap:.75rem;align-items:center}
.track{position:relative;height:1.1rem;background:var(--line);border-radius:.3rem}
.track i{position:absolute;top:0;bottom:0;display:block}
.bar{left:0;background:var(--accent);border-radius:.3rem}
.interval{top:45%!important;bottom:45%!important;background:var(--ink)}
.chance{width:3px;margin-left:-1px;background:var(--mark);top:-.2rem!important;bottom:-.2rem!important}
.value{font-variant-numeric:tabular-nums;font-weight:600;text-align:right}
.against{color:var(--mark);font-size:.875rem;font-variant-numeric:tabular-nums}
.cards{list-style:none;margin:.5rem 0 0;padding:0;display:grid;gap:.6rem;
grid-template-columns:repeat(auto-fill,minmax(6.6rem,1fr))}
.cards li{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.5rem .25rem;display:flex;
flex-direction:column;align-items:center;text-align:center;gap:.15rem;min-width:0}
.cards li.right{border-color:var(--accent);box-shadow:0 0 0 2px var(--accent)}
.cards img,.gone{width:72px;height:72px;object-fit:contain;background:#fff;border-radius:.4rem}
.gone{display:grid;place-items:center;color:#5b6470;font-size:.75rem}
.score{font-size:.8125rem;color:var(--soft);font-variant-numeric:tabular-nums}
.tick{font-size:.75rem;font-weight:600;color:var(--accent)}
.title{font-size:.8125rem;line-height:1.3;max-width:100%;overflow-wrap:break-word;hyphens:auto}
.note{font-size:.75rem;line-height:1.3;color:var(--soft);overflow-wrap:anywhere}
.asked{max-width:160px;max-height:160px;border-radius:.4rem;display:block}
.columns{display:grid;gap:0 2rem}
.drawing{margin:1rem 0;overflow-x:auto}
.drawing svg{display:block;width:100%;min-width:28rem;height:auto;max-height:30rem;background:#fff;border-radius:.6rem}
dl{display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;gap:.25rem 1rem;margin:.6rem 0}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
pre{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.75rem;overflow-x:auto;
font-size:.875rem}
footer{padding-top:1.5rem;padding-bottom:2rem}
@media (max-width:40rem){
.figure{grid-template-columns:1fr auto auto;gap:.2rem .75rem}
.figure .track{grid-column:1/-1;grid-row:2}
.cards{grid-template-columns:repeat(3,minmax(0,1fr))}}
@media (min-width:50rem){.columns{grid-template-columns:repeat(var(--columns),minmax(0,1fr))}
.columns .cards{grid-template-columns:repeat(5,minmax(0,1fr))!important}}
@media (min-width:60rem){.cards{grid-template-columns:repeat(10,minmax(0,1fr))}}
"""
