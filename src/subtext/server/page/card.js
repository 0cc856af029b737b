// Pieces of the page, made of nodes and text: nothing that the server says is ever read as HTML.

import { show } from "./net.js";

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

// A probability where there is one; else a cosine, or, of several things together, deviations above the mean item. Of a
// model that compares distributions the item's uncertainty as well, and a closeness in the place of the cosine.
export function score(value, probability, { unit = "cosine", uncertainty = null } = {}) {
  if (value === null || value === undefined) return node("span", { class: "score" });
  const inner = node("i");
  const likely = probability !== null && probability !== undefined;
  const far = unit === "deviations";
  const counted = unit === "bm25";
  inner.style.width = `${Math.round(100 * Math.min(1, Math.max(0, likely ? probability : far ? value / FULL : value)))}%`;
  const words = likely ? `${Math.round(100 * probability)} %` : value.toFixed(far || counted ? 2 : 3);
  const spread = uncertainty !== null && uncertainty !== undefined;
  const what = likely ? "probability" : counted ? "BM25" : far ? "deviations above the mean" : spread ? "closeness" : "cosine";
  const more = spread ? `, uncertainty ${uncertainty.toFixed(3)}` : "";
  const meaning = likely ? ": the share of hits like this that are pairs in the data; others may fit as well" : "";
  return node("span", { class: "score", title: `${what} ${words}${more}${meaning}` }, node("span", { class: "hidden" }, `${what} `), words,
    counted ? null : node("span", { class: "meter", "aria-hidden": "true" }, inner));
}

export function caption(item) {
  return item.captions[0] || item.file || item.id;
}

// One hit. `acts` tells what its parts do: address(item), select, vote, taken, voted.
export function card(item, { index, target, size = 320, acts, beside = null, small = false, unit = "cosine" }) {
  const image = node("img", { alt: "", loading: "lazy", decoding: "async" });
  const mat = node("span", { class: "mat" }, item.picture ? image : node("span", { class: "none" }, "no picture"));
  if (item.picture) show(image, item.picture, size, index);
  const made = node("li", { class: "card", "data-id": item.id },
    node("a", { class: "open", href: acts.address(item, target) }, mat, node("span", { class: "said", title: item.captions.join("\n") || null }, caption(item))));
  made.item = item;
  if (beside) made.append(node("p", { class: "beside" }, beside));
  if (small) return made;
  made.append(node("div", { class: "under" }, score(item.score, item.probability, { unit, uncertainty: item.uncertainty }), ...tools(made, item, { target, acts, index })));
  mark(made, acts, target, index);
  return made;
}

function tools(made, item, { target, acts, index }) {
  const words = caption(item).slice(0, 80);
  const tool = (kind, label, act) => node("button", {
    type: "button", class: `tool ${kind}`, "aria-pressed": "false", "aria-label": `${label}: ${words}`, title: label,
    onclick: () => { act(); mark(made, acts, target, index); },
  }, icon(kind));
  const found = [tool("select", "Select", () => acts.select(item, index))];
  if (acts.canVote()) {
    found.push(tool("up", "It fits", () => acts.vote(item, 1, index, target)), tool("down", "It does not fit", () => acts.vote(item, 0, index, target)));
  }
  return found;
}

// Show whether a card is selected and judged.
export function mark(made, acts, target, index) {
  const taken = acts.taken(made.item, index);
  const voted = acts.voted(made.item, index, target);
  made.classList.toggle("taken", taken);
  made.querySelector(".tool.select")?.setAttribute("aria-pressed", String(taken));
  made.querySelector(".tool.up")?.setAttribute("aria-pressed", String(voted === 1));
  made.querySelector(".tool.down")?.setAttribute("aria-pressed", String(voted === 0));
}

export function notice(title, lines, { wrong = false, more = [] } = {}) {
  return node("section", { class: `notice${wrong ? " wrong" : ""}`, role: wrong ? "alert" : null },
    node("h2", {}, title), ...lines.filter(Boolean).map((line) => node("p", {}, line)), ...more);
}
