"""What is kept of a data set, as files that others read; and what is not, with the reasons.

Pairs as one page that needs nothing but itself: pictures, texts and scores, to be sorted and filtered.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from subtext.curation.judged import Judged
from subtext.data import atomic
from subtext.data.dataset import Dataset
from subtext.data.image_files import read_bytes, thumbnail
from subtext.data.write import SUFFIXES, write_dataset
from subtext.errors import DataError
from subtext.report.page import STYLE

TAR = ".tar"


def kept_pairs(pairs: Dataset, links: NDArray[np.int64]) -> Dataset:
    """The data set with the chosen links alone, and the items that these join; graded judgements stay behind.

    Raises DataError where nothing is left.
    """
    if not len(links):
        raise DataError("an export needs one pair or more; every pair was left out; drop for fewer reasons")
    chosen = pairs.links[links]
    selected = replace(pairs, links=chosen, judgements=None)
    return selected.subset(np.unique(chosen[:, 0]), np.unique(chosen[:, 1]))


def export(judgement: Judged, links: NDArray[np.int64], out: Path) -> None:
    """Write the chosen pairs to a file: .jsonl, .parquet, or .tar for WebDataset.

    Raises DataError for another ending and where nothing is left, OutputError where it cannot be written.
    """
    if out.suffix == TAR:
        _webdataset(judgement, links, out)
    elif out.suffix in SUFFIXES:
        write_dataset(kept_pairs(judgement.pairs, links), out)
    else:
        raise DataError(f"an export needs a file that ends in {', '.join((*SUFFIXES, TAR))}; it got {out.name}")


def write_rows(judgement: Judged, why: Sequence[Sequence[str]], links: NDArray[np.int64], out: Path) -> None:
    """Write all that is known of the chosen pairs: a row a pair, with "left_out", as .jsonl or .parquet."""
    rows = [{**judgement.row(int(link)), "left_out": list(why[int(link)])} for link in links]
    if out.suffix == ".parquet":
        atomic.write_file(out, lambda place: _parquet(rows, place))
        return
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

    def fill(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    atomic.write_file(out, fill)


def _parquet(rows: list[dict[str, Any]], path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def _webdataset(judgement: Judged, links: NDArray[np.int64], out: Path) -> None:
    """A sample a picture: its bytes, its first text, and all that is known of its pairs as JSON."""
    pairs = kept_pairs(judgement.pairs, links).images  # Refuses an empty export before anything is written.
    of_picture: dict[int, list[int]] = defaultdict(list)
    for link in links.tolist():
        of_picture[int(judgement.pairs.links[link, 0])].append(link)
    assert len(of_picture) == len(pairs)

    def fill(path: Path) -> None:
        with tarfile.open(path, "w") as tar:
            for number, (row, texts) in enumerate(sorted(of_picture.items())):
                value = judgement.pairs.images.values[row]
                if value is None:
                    raise DataError(
                        f"a tar needs pictures; '{judgement.pairs.images.ids[row]}' is known by features alone; export "
                        "to .jsonl or .parquet"
                    )
                data = read_bytes(value, judgement.pairs.root)
                facts = [judgement.row(link) for link in texts]
                captions = [fact["caption"] for fact in facts]
                about = {
                    "id": judgement.pairs.images.ids[row], "captions": captions, "split": facts[0]["split"],
                    "text_ids": [fact["text"] for fact in facts], "pairs": facts,
                }  # fmt: skip
                name = f"{number:09d}"
                _add(tar, f"{name}.{_ending(data)}", data)
                _add(tar, f"{name}.txt", str(captions[0] or "").encode("utf-8", "surrogatepass"))
                _add(tar, f"{name}.json", json.dumps(about, ensure_ascii=False).encode())

    atomic.write_file(out, fill)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    # No time and no owner: the same pairs make the same bytes.
    about = tarfile.TarInfo(name)
    about.size = len(data)
    tar.addfile(about, io.BytesIO(data))


def _ending(data: bytes) -> str:
    with Image.open(io.BytesIO(data)) as image:
        return {"JPEG": "jpg"}.get(str(image.format), str(image.format).lower())


NUMBERS = (
    "mismatched", "loose", "literal", "alignment", "cosine", "agreement", "diversity_image", "diversity_text",
    "discrepancy_image", "discrepancy_text",
)  # fmt: skip
"""Columns that the page can be sorted by."""
FIRST = frozenset({"mismatched", "loose", "literal", "alignment", "cosine"})
"""Those that every card shows; the others are folded away."""

_MORE = """
@media (prefers-color-scheme:light){:root{--mark:#a5460f}}
.tools{display:flex;flex-wrap:wrap;gap:.75rem;align-items:end;margin:1rem 0}
.tools label{display:grid;font-size:.875rem;color:var(--soft)}
select,input{font:inherit;padding:.3rem .5rem;background:var(--card);color:var(--ink);border:1px solid var(--line);
border-radius:.4rem}
.pairs{list-style:none;padding:0;margin:0;display:grid;gap:.75rem;grid-template-columns:repeat(auto-fill,minmax(15rem,1fr))}
.pairs li{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.6rem;display:grid;gap:.35rem;
align-content:start;min-width:0}
.pairs img,.pairs .gone{width:100%;height:150px;object-fit:contain;background:#fff;border-radius:.4rem}
.pairs p{margin:0;overflow-wrap:anywhere}
.kind{font-size:.8125rem;font-weight:600;color:var(--accent)}
.mismatched .kind,.out{color:var(--mark)}
.out,.facts{font-size:.8125rem}
.facts{color:var(--soft);font-variant-numeric:tabular-nums}
"""

_SCRIPT = """
const list=document.getElementById('pairs'),by=document.getElementById('by'),way=document.getElementById('way'),
kind=document.getElementById('kind'),words=document.getElementById('words'),count=document.getElementById('count');
const every=[...list.children];
function show(){
const key=by.value,sign=way.value==='up'?1:-1,wanted=kind.value,text=words.value.toLowerCase();
every.sort((a,b)=>{const x=a.dataset[key],y=b.dataset[key];
if(x===y)return 0;if(x==='')return 1;if(y==='')return -1;return sign*(Number(x)-Number(y));});
let shown=0;
for(const one of every){const fits=(wanted==='all'||one.dataset.kind===wanted||(wanted==='out'&&one.dataset.out==='1'))
&&one.textContent.toLowerCase().includes(text);one.hidden=!fits;shown+=fits;list.append(one);}
count.textContent=shown+' of '+every.length+' shown';}
for(const each of [by,way,kind])each.addEventListener('change',show);
words.addEventListener('input',show);show();
"""


@dataclass(frozen=True)
class Head:
    """What stands above the pairs: a title, a sentence, and lines of what was found."""

    title: str
    lead: str
    lines: Sequence[str]


def page(judgement: Judged, why: Sequence[Sequence[str]], links: Sequence[int], head: Head) -> str:
    """The page with the chosen pairs, as one HTML document; it loads nothing, and all texts are escaped.

    why    of every pair the reasons to leave it out
    links  which pairs are shown, in this order
    """
    sums = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{sums}'"
    names = [
        name for name in NUMBERS if name in judgement.columns and any(v is not None for v in judgement.columns[name])
    ]
    pictures: dict[int, str | None] = {}
    cards = []
    for link in links:
        row = int(judgement.pairs.links[link, 0])
        if row not in pictures:
            value = judgement.pairs.images.values[row]
            pictures[row] = None if value is None else thumbnail(value, judgement.pairs.root)
        cards.append(_card(judgement.row(link), why[link], pictures[row], names))
    options = "".join(f'<option value="{name.replace("_", "")}">{escape(_said(name))}</option>' for name in names)
    kinds = "".join(f'<option value="{name}">{name}</option>' for name in ("all", "literal", "loose", "mismatched"))
    items = "".join(f"<li>{escape(line)}</li>" for line in head.lines)
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(head.title)}</title><style>{STYLE}{_MORE}</style></head><body>",
            f"<header><h1>{escape(head.title)}</h1><p>{escape(head.lead)}</p><ul>{items}</ul></header><main>",
            '<div class="tools">',
            f'<label>Sort by<select id="by">{options}</select></label>',
            '<label>Order<select id="way"><option value="down">largest first</option>'
            '<option value="up">smallest first</option></select></label>',
            f'<label>Kind<select id="kind">{kinds}<option value="out">left out</option></select></label>',
            '<label>Words<input id="words" type="search"></label>',
            '<span id="count" class="small" role="status"></span></div>',
            f'<ol class="pairs" id="pairs">{"".join(cards)}</ol></main>',
            f"<script>{_SCRIPT}</script></body></html>\n",
        ]
    )


def _card(row: dict[str, Any], why: Sequence[str], picture: str | None, names: Sequence[str]) -> str:
    data = " ".join(f'data-{name.replace("_", "")}="{_number(row[name])}"' for name in names)
    caption = row["caption"] or row["text"]
    shown = f'<img src="{escape(picture)}" alt="{escape(row["picture"])}" loading="lazy">' if picture else ""
    kind = row["kind"] or ""
    likely = f"{kind} {row[kind]:.2f}" if kind else ""
    present = [name for name in names if row[name] is not None and name != kind]
    first, remaining = (
        [f"{_said(name)} {row[name]:.2f}" for name in present if (name in FIRST) is is_first]
        for is_first in (True, False)
    )
    folded = f"<details><summary>more</summary>{escape(' · '.join(remaining))}</details>" if remaining else ""
    odd = [*row["flags"], *(["copies"] if row["picture_copies"] >= 0 or row["text_copies"] >= 0 else [])]
    out = f'<p class="out">left out: {escape("; ".join(why))}</p>' if why else ""
    details = escape(" · ".join([str(row["split"]), str(row["language"] or "und"), *odd]))
    return (
        f'<li class="{kind}" data-kind="{kind}" data-out="{int(bool(why))}" {data}>'
        f"{shown or '<span class=gone>no picture</span>'}<p>{escape(str(caption))}</p>"
        f'<span class="kind">{escape(likely)}</span>{out}<div class="facts">{escape(" · ".join(first))}{folded}</div>'
        f'<span class="facts">{escape(str(row["picture"]))} · {details}</span></li>'
    )


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.6f}"


def _said(name: str) -> str:
    return (
        name.replace("_", " of the ", 1)
        .replace("of the image", "of the pictures")
        .replace("of the text", "of the texts")
    )
