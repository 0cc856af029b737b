// Parts of the page, made of nodes and text: nothing from the server is ever parsed as HTML.

import { showThumbnail } from "./net.js";

const FULL = 4;  // Deviations that fill the meter.
const ICONS = {
  select: "m5 12.500 4.500 4.500L19 7.500",
  up: "M7 11v9H4v-9zM7 11l4.500-8c1.700 0 2.500 1 2.200 2.600L13 9h5.200a2 2 0 0 1 2 2.400l-1.200 7a2 2 0 0 1-2 1.600H7",
  down: "M17 13V4h3v9zM17 13l-4.500 8c-1.700 0-2.500-1-2.200-2.600L11 15H5.800a2 2 0 0 1-2-2.400l1.200-7A2 2 0 0 1 7 4h10",
};

// node("p", {class: "soft", onclick: f}, "text", other)
export function node(name, about = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(about)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made && typeof value === "boolean") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...inside.filter((one) => one !== null && one !== undefined));
  return made;
}

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

// A probability if there is one; else a cosine, deviations above the mean item, or the sum of all evidence. For
// a model that compares distributions also the uncertainty of the item; its score is called closeness.
export function score(value, probability, { unit = "cosine", uncertainty = null } = {}) {
  if (value === null || value === undefined) return node("span", { class: "score" });
  const inner = node("i");
  const isProbability = probability !== null && probability !== undefined;
  const isDeviation = unit === "deviations";
  const isEvidence = unit === "evidence";
  inner.style.width = `${Math.round(100 * Math.min(1, Math.max(0, isProbability ? probability : isDeviation ? value / FULL : value)))}%`;
  const words = isProbability ? `${Math.round(100 * probability)} %` : value.toFixed(isDeviation || isEvidence ? 2 : 3);
  const hasUncertainty = uncertainty !== null && uncertainty !== undefined;
  const what = isProbability ? "probability" : isEvidence ? "evidence" : isDeviation ? "deviations above the mean" : hasUncertainty ? "closeness" : "cosine";
  const more = hasUncertainty ? `, uncertainty ${uncertainty.toFixed(3)}` : "";
  const meaning = isProbability ? ": the share of hits like this that are pairs in the data; others may fit as well" : "";
  return node("span", { class: "score", title: `${what} ${words}${more}${meaning}` }, node("span", { class: "hidden" }, `${what} `), words,
    isEvidence && !isProbability ? null : node("span", { class: "meter", "aria-hidden": "true" }, inner));
}

export function caption(item) {
  return item.captions[0] || item.file || item.id;
}

// One hit. `handlers`: address(item, target), select, isSelected, vote, voteOf, canVote.
export function card(item, { index, target, size = 320, handlers, otherRank = null, small = false, unit = "cosine" }) {
  const image = node("img", { alt: "", loading: "lazy", decoding: "async" });
  const mat = node("span", { class: "mat" }, item.image_id ? image : node("span", { class: "none" }, "no picture"));
  if (item.image_id) showThumbnail(image, item.image_id, size, index);
  const made = node("li", { class: "card", "data-id": item.id },
    node("a", { class: "open", href: handlers.address(item, target) }, mat, node("span", { class: "said", title: item.captions.join("\n") || null }, caption(item))));
  made.item = item;
  if (otherRank) made.append(node("p", { class: "beside" }, otherRank));
  if (small) return made;
  if (item.why) made.append(node("p", { class: "why", title: item.why }, item.why));
  made.append(node("div", { class: "under" }, score(item.score, item.probability, { unit, uncertainty: item.uncertainty }), ...tools(made, item, { target, handlers, index })));
  updateMarks(made, handlers, target, index);
  return made;
}

function tools(made, item, { target, handlers, index }) {
  const words = caption(item).slice(0, 80);
  const tool = (kind, label, act) => node("button", {
    type: "button", class: `tool ${kind}`, "aria-pressed": "false", "aria-label": `${label}: ${words}`, title: label,
    onclick: () => { act(); updateMarks(made, handlers, target, index); },
  }, icon(kind));
  const buttons = [tool("select", "Select", () => handlers.select(item, index))];
  if (handlers.canVote()) {
    buttons.push(tool("up", "It fits", () => handlers.vote(item, 1, index, target)), tool("down", "It does not fit", () => handlers.vote(item, 0, index, target)));
  }
  return buttons;
}

// Show whether a card is selected and judged.
export function updateMarks(made, handlers, target, index) {
  const selected = handlers.isSelected(made.item, index);
  const vote = handlers.voteOf(made.item, index, target);
  made.classList.toggle("taken", selected);
  made.querySelector(".tool.select")?.setAttribute("aria-pressed", String(selected));
  made.querySelector(".tool.up")?.setAttribute("aria-pressed", String(vote === 1));
  made.querySelector(".tool.down")?.setAttribute("aria-pressed", String(vote === 0));
}

export function notice(title, lines, { isError = false, more = [] } = {}) {
  return node("section", { class: `notice${isError ? " wrong" : ""}`, role: isError ? "alert" : null },
    node("h2", {}, title), ...lines.filter(Boolean).map((line) => node("p", {}, line)), ...more);
}
