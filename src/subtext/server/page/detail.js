// The view of one item: its image, its texts with their scores, all metadata, and its nearest neighbours of both sides.

import { caption, card, node, score } from "./card.js";
import { fetchJson, showThumbnail } from "./net.js";

const NEIGHBOURS = 12;
const TEXT_NEIGHBOURS = 200;

// Draw the item into the dialog. `handlers` as for cards, and like(item, side, target), notLike(item), canNotLike(item),
// move(step), close().
export async function drawDetail(dialog, { id, side, index, handlers, signal }) {
  dialog.replaceChildren(node("p", { class: "status", role: "status" }, "…"));
  const answer = await fetchJson("item", { id, target: side, index }, { signal });
  const { item, texts, images } = answer;
  const image = node("img", { alt: item.captions.join("; ") || item.id });
  const stage = node("div", { class: "stage" }, item.image_id ? image : node("span", { class: "none" }, "no picture"));
  if (item.image_id) showThumbnail(image, item.image_id, 1280, index);
  const near = node("div", { class: "near" });
  const fit = node("p", { class: "soft" });
  const close = node("button", { type: "button", class: "close round", "aria-label": "Close", onclick: () => handlers.close() }, "✕");
  dialog.replaceChildren(close, node("article", {}, stage, facts(item, texts, { side, index, handlers, fit }), near));
  close.focus();
  const strips = [["images", "Pictures near it"], ["texts", "Texts near it"]].map(async ([target, title]) => {
    const similar = await fetchJson("similar", { id, side, target, index, top: target === "texts" && side === "images" ? TEXT_NEIGHBOURS : NEIGHBOURS + 1 }, { signal });
    if (target === "texts" && side === "images") fit.textContent = textRank(similar.hits, texts);
    return strip(title, similar.hits.slice(0, NEIGHBOURS), { index, target, handlers });
  });
  if (images.length) near.append(strip("Its pictures", images, { index, target: "images", handlers }));
  for (const made of await Promise.all(strips)) near.append(made);
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

function facts(item, texts, { side, index, handlers, fit }) {
  const textRows = texts.length
    ? texts.map((text) => node("li", {}, node("span", {}, text.text ?? text.id), score(text.score)))
    : item.captions.map((text) => node("li", {}, node("span", {}, text)));
  const rows = [["id", item.id], ["file", item.file], ...Object.entries(item.metadata)].filter(([, value]) => value !== null && value !== "" && value !== undefined);
  const chosen = node("button", { type: "button", "aria-pressed": String(handlers.isSelected(item, index)), onclick: () => {
    handlers.select(item, index);
    chosen.setAttribute("aria-pressed", String(handlers.isSelected(item, index)));
    chosen.textContent = handlers.isSelected(item, index) ? "Selected" : "Select";
  } }, handlers.isSelected(item, index) ? "Selected" : "Select");
  return node("div", { class: "facts" },
    node("h2", { id: "detail-title" }, caption(item)),
    node("div", { class: "doing" },
      node("button", { type: "button", class: "primary", onclick: () => handlers.like(item, side, "images") }, "More like this"),
      node("button", { type: "button", onclick: () => handlers.like(item, side, "texts") }, side === "images" ? "Texts for it" : "Texts like it"),
      handlers.canNotLike(item) ? node("button", { type: "button", onclick: () => handlers.notLike(item) }, "Unlike this") : null,
      chosen,
      node("button", { type: "button", "aria-label": "Previous hit", onclick: () => handlers.move(-1) }, "←"),
      node("button", { type: "button", "aria-label": "Next hit", onclick: () => handlers.move(1) }, "→")),
    textRows.length && side === "images" ? node("section", {}, node("h3", {}, "Its texts, and how they fit"), node("ul", { class: "texts" }, ...textRows), fit) : null,
    node("section", {}, node("h3", {}, "What is known"),
      node("dl", { class: "about" }, ...rows.flatMap(([name, value]) => [node("dt", {}, name), node("dd", {}, formatValue(value))]))));
}

const formatValue = (value) => (Array.isArray(value) ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : String(value));

function strip(title, hits, { index, target, handlers }) {
  const list = node("ul", { class: "strip", role: "list", tabindex: "0", "aria-label": title },
    ...hits.map((hit) => card(hit, { index, target, handlers, small: true, size: 320 })));
  return node("section", {}, node("h3", {}, title), hits.length ? list : node("p", { class: "soft" }, "There is nothing."));
}
