// The start page: ideas that find something in this library, and ways into it by what its columns say.

import { node } from "./card.js";
import { fieldLabel, isLegal } from "./labels.js";
import { fetchJson } from "./net.js";

// Notions, as people ask for them; those are offered that the library answers.
const NOTIONS = [
  "waiting", "childhood", "hard work", "a celebration", "danger", "friendship", "speed", "solitude", "music", "team spirit", "the power of water",
  "a long winter", "justice", "on a journey", "trade", "growing up", "by the sea", "a crowd", "at the market", "healing", "old machines", "calm", "victory",
  "the harvest",
];
const [MOST_IDEAS, AT_ONCE, MOST_WAYS] = [6, 3, 6];
const CACHE = "subtext.ideas";

// The notions whose best hit in a library is no weak one. A library without levels says nothing of a notion.
async function ideasFor(library, signal) {
  const key = `${CACHE} ${library.name} ${library.generation}`;
  try {
    const kept = JSON.parse(sessionStorage.getItem(key));
    if (Array.isArray(kept)) return kept;
  } catch { /* Forbidden: they are searched again. */ }
  const found = [];
  for (let start = 0; start < NOTIONS.length && found.length < MOST_IDEAS; start += AT_ONCE) {
    const some = NOTIONS.slice(start, start + AT_ONCE);
    const answers = await Promise.all(some.map((q) => fetchJson("search", { index: library.name, q, top: 1 }, { signal })));
    // The same picture for every notion is a picture of nothing.
    answers.forEach((answer, place) => {
      const best = answer.hits[0];
      if (answer.fits && best && ["fair", "strong"].includes(best.level) && !found.some((one) => one.id === best.id)) found.push({ words: some[place], id: best.id });
    });
    if (start === 0 && answers.every((answer) => answer.fits === null)) break;
  }
  const ideas = found.slice(0, MOST_IDEAS).map(({ words }) => words);
  try { sessionStorage.setItem(key, JSON.stringify(ideas)); } catch { /* As above. */ }
  return ideas;
}

// The most common values of columns with few of them: [{label, where}]. Whom a picture belongs to leads to no picture.
function waysInto(fields) {
  const columns = fields.filter((field) => field.kind === "text" && field.name !== "split" && !isLegal(field.name) && field.count > 1 && field.values.length && field.values[0][1] > 1);
  const ways = [];
  for (let row = 0; ways.length < MOST_WAYS && columns.some((field) => field.values[row]); row += 1) {
    for (const field of columns.filter((one) => one.values[row] && one.values[row][1] > 1)) {
      const [value, count] = field.values[row];
      ways.push({ label: String(value), count, title: fieldLabel(field.name), where: JSON.stringify({ field: field.name, test: "in", value: [value] }) });
    }
  }
  return ways.slice(0, MOST_WAYS);
}

// The welcome; ideas appear when they are known. `go(changes)` and `address(changes)` of the page.
export function welcome({ library, fields, canSearch, signal, go, address }) {
  const ideas = node("p", { class: "tries" });
  const ways = node("p", { class: "tries" });
  const link = (words, changes, more = {}) => node("a", { href: address(changes), ...more, onclick: (event) => { event.preventDefault(); go(changes); } }, words);
  const made = node("section", { class: "welcome" }, node("h2", {}, "Pictures for what words mean"),
    node("p", {}, "Ask with an idea, a headline, a feeling, or a picture of your own."), ideas, ways);
  const fill = async () => {
    const tries = canSearch ? await ideasFor(library, signal) : [];
    ideas.replaceChildren(...(tries.length ? [node("span", { class: "soft" }, "Try ")] : []), ...tries.map((q) => link(q, { q })));
    const columns = waysInto(await fields);
    ways.replaceChildren(...(columns.length ? [node("span", { class: "soft" }, "Or look at ")] : []),
      ...columns.map((way) => link(way.label, { where: [way.where] }, { title: `${way.title}: ${way.label}, ${way.count.toLocaleString("en")}` })));
  };
  // Ideas are a help: without them the page is whole.
  fill().catch(() => {});
  return made;
}
