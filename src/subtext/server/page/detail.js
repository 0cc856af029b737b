// A look at one item: the picture, its texts and how they fit, all metadata, and what is near it in both modalities.

import { caption, card, node, score } from "./card.js";
import { ask, show } from "./net.js";

const NEAR = 12;
const FAR = 200;

// Draw the item into the dialog. `acts` as for cards, and like(item, side, target), unlike(item), asking(), move(step), close().
export async function draw(dialog, { id, side, index, acts, signal }) {
  dialog.replaceChildren(node("p", { class: "status", role: "status" }, "…"));
  const found = await ask("/item", { id, target: side, index }, { signal });
  const { item, texts, pictures } = found;
  const image = node("img", { alt: item.captions.join("; ") || item.id });
  const stage = node("div", { class: "stage" }, item.picture ? image : node("span", { class: "none" }, "no picture"));
  if (item.picture) show(image, item.picture, 1280, index);
  const near = node("div", { class: "near" });
  const fit = node("p", { class: "soft" });
  const close = node("button", { type: "button", class: "close round", "aria-label": "Close", onclick: () => acts.close() }, "✕");
  dialog.replaceChildren(close, node("article", {}, stage, facts(item, texts, { side, index, acts, fit }), near));
  close.focus();
  const strips = [["images", "Pictures near it"], ["texts", "Texts near it"]].map(async ([target, title]) => {
    const answer = await ask("/similar", { id, side, target, index, top: target === "texts" && side === "images" ? FAR : NEAR + 1 }, { signal });
    if (target === "texts" && side === "images") fit.textContent = looseness(answer.hits, texts);
    return strip(title, answer.hits.slice(0, NEAR), { index, target, acts });
  });
  if (pictures.length) near.append(strip("Its pictures", pictures, { index, target: "images", acts }));
  for (const made of await Promise.all(strips)) near.append(made);
}

// How near its own texts are among all texts of the library: the first is literal, far ones are loose.
function looseness(hits, texts) {
  if (!texts.length) return "";
  const places = texts.map((text) => hits.findIndex((hit) => hit.id === text.id)).filter((place) => place >= 0);
  if (!places.length) return `Loose: none of its own texts is among the ${hits.length} nearest to it.`;
  const best = Math.min(...places) + 1;
  const word = best === 1 ? "Literal" : best <= 10 ? "Close" : "Loose";
  return `${word}: of all texts, the best of its own is number ${best.toLocaleString("en")}.`;
}

function facts(item, texts, { side, index, acts, fit }) {
  const told = texts.length
    ? texts.map((text) => node("li", {}, node("span", {}, text.text ?? text.id), score(text.score)))
    : item.captions.map((text) => node("li", {}, node("span", {}, text)));
  const rows = [["id", item.id], ["file", item.file], ...Object.entries(item.metadata)].filter(([, value]) => value !== null && value !== "" && value !== undefined);
  const chosen = node("button", { type: "button", "aria-pressed": String(acts.taken(item, index)), onclick: () => {
    acts.select(item, index);
    chosen.setAttribute("aria-pressed", String(acts.taken(item, index)));
    chosen.textContent = acts.taken(item, index) ? "Selected" : "Select";
  } }, acts.taken(item, index) ? "Selected" : "Select");
  return node("div", { class: "facts" },
    node("h2", { id: "detail-title" }, caption(item)),
    node("div", { class: "doing" },
      node("button", { type: "button", class: "primary", onclick: () => acts.like(item, side, "images") }, "More like this"),
      node("button", { type: "button", onclick: () => acts.like(item, side, "texts") }, side === "images" ? "Texts for it" : "Texts like it"),
      acts.asking(item) ? node("button", { type: "button", onclick: () => acts.unlike(item) }, "Unlike this") : null,
      chosen,
      node("button", { type: "button", "aria-label": "Previous hit", onclick: () => acts.move(-1) }, "←"),
      node("button", { type: "button", "aria-label": "Next hit", onclick: () => acts.move(1) }, "→")),
    told.length && side === "images" ? node("section", {}, node("h3", {}, "Its texts, and how they fit"), node("ul", { class: "texts" }, ...told), fit) : null,
    node("section", {}, node("h3", {}, "What is known"),
      node("dl", { class: "about" }, ...rows.flatMap(([name, value]) => [node("dt", {}, name), node("dd", {}, written(value))]))));
}

const written = (value) => (Array.isArray(value) ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : String(value));

function strip(title, hits, { index, target, acts }) {
  const list = node("ul", { class: "strip", role: "list", tabindex: "0", "aria-label": title },
    ...hits.map((hit) => card(hit, { index, target, acts, small: true, size: 320 })));
  return node("section", {}, node("h3", {}, title), hits.length ? list : node("p", { class: "soft" }, "There is nothing."));
}
