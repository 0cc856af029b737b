// The view of one item: its picture, why it was found, its texts with their scores, all metadata, and its nearest neighbours.

import { card, levelMark, node, percent, reasonsAgainst, reasonsFor } from "./card.js";
import { about, caption, fieldLabel, lastPart, plain } from "./labels.js";
import { fetchJson, noPicture, showThumbnail } from "./net.js";

const NEIGHBOURS = 12;
const TEXT_NEIGHBOURS = 200;
const UNITS = { evidence: "evidence", cosine: "cosine", deviations: "deviations above the mean", score: "score of the second model" };

// Draw the item into the dialog. `hit`: the item as it was found, or null; `unit` of its score. `handlers` as for cards, and
// like(item, side, target), judge(...), canJudge(), move(step), close().
export async function drawDetail(dialog, { id, side, index, hit, unit, handlers, signal }) {
  dialog.replaceChildren(node("p", { class: "status", role: "status" }, "…"));
  const answer = await fetchJson("item", { id, target: side, index }, { signal });
  const { item, texts, images } = answer;
  const image = node("img", { alt: item.captions.join("; ") || caption(item) });
  const stage = node("div", { class: "stage" }, item.image_id ? image : noPicture("This item has none."));
  if (item.image_id) showThumbnail(image, item.image_id, 1280, index);
  const near = node("div", { class: "near" });
  const fit = node("p", { class: "soft" });
  const close = node("button", { type: "button", class: "close round quiet", "aria-label": "Close", onclick: () => handlers.close() }, "✕");
  dialog.replaceChildren(close, node("article", {}, stage, facts(item, texts, { side, index, hit, unit, handlers, fit }), near));
  close.focus();
  dialog.scrollTop = 0;
  const strips = [["images", "Pictures near it"], ["texts", "Texts near it"]].map(async ([target, title]) => {
    const similar = await fetchJson("similar", { id, side, target, index, top: target === "texts" && side === "images" ? TEXT_NEIGHBOURS : NEIGHBOURS + 1 }, { signal });
    if (target === "texts" && side === "images") fit.textContent = textRank(similar.hits, texts);
    return similar.hits.length ? strip(title, similar.hits.slice(0, NEIGHBOURS), { index, target, handlers }) : null;
  });
  if (images.length) near.append(strip("Its pictures", images, { index, target: "images", handlers }));
  for (const made of await Promise.all(strips)) if (made) near.append(made);
}

// The rank of the best of its own texts among all texts of the library: the first is literal, far ones are loose.
function textRank(hits, texts) {
  if (!texts.length) return "";
  const ranks = texts.map((text) => hits.findIndex((hit) => hit.id === text.id)).filter((rank) => rank >= 0);
  if (!ranks.length) return `Loose: none of its own texts is among the ${hits.length} nearest to it.`;
  const best = Math.min(...ranks) + 1;
  const word = best === 1 ? "Literal" : best <= 10 ? "Close" : "Loose";
  return `${word}: of all texts, the best of its own is number ${best.toLocaleString("en")}.`;
}

const section = (title, ...inside) => node("section", {}, node("h3", {}, title), ...inside);

function facts(item, texts, { side, index, hit, unit, handlers, fit }) {
  const textRows = texts.length
    ? texts.map((text) => node("li", {}, node("span", {}, text.text ?? text.id), node("span", { class: "number", title: "cosine" }, text.score.toFixed(2))))
    : item.captions.map((text) => node("li", {}, node("span", {}, text)));
  const chosen = node("button", { type: "button", "aria-pressed": String(handlers.isSelected(item, index)), onclick: () => {
    handlers.select(item, index);
    chosen.setAttribute("aria-pressed", String(handlers.isSelected(item, index)));
    chosen.textContent = handlers.isSelected(item, index) ? "Selected" : "Select";
  } }, handlers.isSelected(item, index) ? "Selected" : "Select");
  const button = (label, act) => node("button", { type: "button", onclick: act }, label);
  const line = about(item).join(" · ");
  return node("div", { class: "facts" },
    node("h2", { id: "detail-title" }, caption(item)),
    line ? node("p", { class: "soft" }, line) : null,
    node("div", { class: "doing" },
      node("button", { type: "button", class: "primary", onclick: () => handlers.like(item, side, "images") }, "More like this"),
      button(side === "images" ? "Texts for it" : "Texts like it", () => handlers.like(item, side, "texts")),
      handlers.canJudge() && hit ? button("Less like this", () => { handlers.judge(item, 0, index, side); handlers.close(); }) : null,
      chosen,
      node("span", { class: "steps-through" },
        node("button", { type: "button", "aria-label": "Previous hit", onclick: () => handlers.move(-1) }, "←"),
        node("button", { type: "button", "aria-label": "Next hit", onclick: () => handlers.move(1) }, "→"))),
    hit ? found(hit, unit) : null,
    textRows.length && side === "images" ? section("Its texts, and how they fit", node("ul", { class: "texts" }, ...textRows), fit) : null,
    section("What is known", known(item)));
}

// Why it was found: the level, the evidence by share, and the numbers.
function found(hit, unit) {
  const reasons = reasonsFor(hit).map(({ name, share, text, signal }) => {
    const bar = node("i", { class: signal });
    bar.style.width = `${100 * share}%`;
    return node("li", {}, node("span", {}, name.charAt(0).toUpperCase() + name.slice(1)), node("span", { class: "bar-of", "aria-hidden": "true" }, bar), node("span", { class: "number" }, percent(share)),
      text ? node("span", { class: "soft" }, text) : null);
  });
  const against = reasonsAgainst(hit);
  const numbers = [];
  if (typeof hit.score === "number") numbers.push(`${UNITS[unit] || unit} ${hit.score.toFixed(unit === "cosine" ? 3 : 2)}`);
  if (typeof hit.probability === "number") {
    numbers.push(`probability ${percent(hit.probability)}, the share of hits like this that are pairs in the data; others may fit as well`);
  }
  if (typeof hit.uncertainty === "number") numbers.push(`uncertainty ${hit.uncertainty.toFixed(3)}`);
  if (!hit.level && !reasons.length && !numbers.length) return null;
  return section("Why it was found", hit.level ? node("p", {}, levelMark(hit.level)) : null,
    reasons.length ? node("ul", { class: "reasons" }, ...reasons) : null,
    against.length ? node("p", { class: "soft" }, `Against it: ${against.join(", ")}.`) : null,
    numbers.length ? node("p", { class: "soft numbers" }, `Numbers: ${numbers.join("; ")}.`) : null);
}

function known(item) {
  const rows = [["id", item.id], ...Object.entries(item.metadata)].filter(([, value]) => plain(value) !== "")
    .map(([name, value]) => [name === "id" ? "Id" : fieldLabel(name), node("dd", {}, plain(value))]);
  if (item.file) rows.push(["File", node("dd", {}, ...filePath(item.file))]);
  return node("dl", { class: "about" }, ...rows.flatMap(([name, value]) => [node("dt", {}, name), value]));
}

// A path that may break after a folder or a sign, and not inside a word; its last part stands out.
function filePath(path) {
  const folder = path.slice(0, path.length - lastPart(path).length);
  const pieces = (text) => text.split(/(?<=[/\\_\-.\s])/).flatMap((piece) => [piece, node("wbr")]);
  return [folder ? node("span", { class: "soft" }, ...pieces(folder)) : null, node("span", {}, ...pieces(lastPart(path)))].filter(Boolean);
}

function strip(title, hits, { index, target, handlers }) {
  const list = node("ul", { class: "strip", role: "list", tabindex: "0", "aria-label": title },
    ...hits.map((hit) => card(hit, { index, target, handlers: { ...handlers, loaded: null }, small: true, size: 320 })));
  return section(title, list);
}
