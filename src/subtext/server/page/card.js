// Parts of the page, made of nodes and text: nothing from the server is ever parsed as HTML.

import { about, caption, lastPart } from "./labels.js";
import { noPicture, showThumbnail } from "./net.js";

const ICONS = {
  select: "m5 12.500 4.500 4.500L19 7.500",
  up: "M7 11v9H4v-9zM7 11l4.500-8c1.700 0 2.500 1 2.200 2.600L13 9h5.200a2 2 0 0 1 2 2.400l-1.200 7a2 2 0 0 1-2 1.600H7",
  down: "M17 13V4h3v9zM17 13l-4.500 8c-1.700 0-2.500-1-2.200-2.600L11 15H5.800a2 2 0 0 1-2-2.400l1.200-7A2 2 0 0 1 7 4h10",
};
const LEVELS = ["weak", "fair", "strong"];
const SIGNALS = { pixels: "the picture", texts: "its caption", words: "words of its caption", machine_texts: "what a machine wrote", machine_words: "words that a machine wrote", fields: "its fields", neighbours: "captions of similar pictures" };

// node("p", {class: "soft", onclick: f}, "text", other)
export function node(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
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

// How well a hit fits, in three steps; null where the ranker of the library gives none.
export function levelMark(level) {
  if (!level) return null;
  const steps = LEVELS.indexOf(level) + 1;
  return node("span", { class: `level ${level}`, title: `${level.charAt(0).toUpperCase() + level.slice(1)} match` },
    node("span", { class: "steps", "aria-hidden": "true" }, ...LEVELS.map((_, step) => node("i", { class: step < steps ? "on" : null }))),
    node("span", {}, level), node("span", { class: "hidden" }, " match"));
}

// What speaks for a hit: [{name, share, text}], the largest share first.
export function reasonsFor(item) {
  return (item.reasons || []).filter((reason) => reason.share).sort((one, other) => other.share - one.share)
    .map((reason) => ({ name: reasonName(reason), share: reason.share, text: reason.text, signal: reason.signal }));
}

const reasonName = (reason) => `${reason.part.startsWith("-") ? "unlike: " : ""}${SIGNALS[reason.signal] || reason.signal}`;

// What speaks against a hit, by name.
export const reasonsAgainst = (item) => [...new Set((item.reasons || []).filter((reason) => reason.amount < 0).map(reasonName))];

export const percent = (share) => `${Math.round(100 * share)}\u00a0%`;

// The shares as one bar and a line of words.
function whyLine(item) {
  const reasons = reasonsFor(item).filter((reason) => reason.share >= 0.005);
  if (!reasons.length) return null;
  const bar = node("span", { class: "shares", "aria-hidden": "true" }, ...reasons.map(({ share, signal }) => {
    const part = node("i", { class: signal });
    part.style.flexGrow = share;
    return part;
  }));
  return node("p", { class: "why", title: item.why || null }, bar, reasons.map(({ name, share }) => `${name} ${percent(share)}`).join(", "));
}

// One hit. `handlers`: address(item, target), select, isSelected, judge, canJudge, loaded.
export function card(item, { index, target, size = 320, handlers, otherRank = null, small = false }) {
  const image = node("img", { alt: "", decoding: "async" });
  const mat = node("span", { class: "mat" }, item.image_id ? image : noPicture("This item has none."));
  if (small) image.loading = "lazy";
  const facts = about(item).join(" · ");
  const name = caption(item);
  const isFile = !item.captions.length;
  const made = node("li", { class: "card", "data-id": item.id },
    node("a", { class: "open", href: handlers.address(item, target), title: isFile ? item.file || item.id : null }, mat,
      node("span", { class: "words" },
        node("span", { class: `said${isFile ? " file" : ""}`, title: item.captions.join("\n") || null }, name),
        node("span", { class: "line" }, small ? null : levelMark(item.level), facts ? node("span", { class: "facts-line", title: facts }, facts) : null),
        small || target === "texts" || isFile || !item.file ? null : node("span", { class: "file-line" }, lastPart(item.file)))));
  Object.assign(made, { item, library: index });
  image.addEventListener("load", () => handlers.loaded?.(made, image));
  if (item.image_id) showThumbnail(image, item.image_id, size, index);
  if (otherRank) made.append(node("p", { class: "beside" }, otherRank));
  if (small) return made;
  made.append(...[whyLine(item)].filter(Boolean), ...tools(made, item, { target, handlers, index }));
  updateMarks(made, handlers, index);
  return made;
}

function tools(made, item, { target, handlers, index }) {
  const words = caption(item).slice(0, 80);
  const tool = (kind, label, act, pressed) => node("button", {
    type: "button", class: `tool ${kind}`, "aria-pressed": pressed, "aria-label": `${label}: ${words}`, title: label, onclick: act,
  }, icon(kind));
  const select = tool("select", "Select", () => { handlers.select(item, index); updateMarks(made, handlers, index); }, "false");
  if (!handlers.canJudge()) return [select];
  return [select, node("span", { class: "thumbs" },
    tool("up", "More like this", () => handlers.judge(item, 1, index, target)), tool("down", "Less like this", () => handlers.judge(item, 0, index, target)))];
}

// Show whether a card is selected.
export function updateMarks(made, handlers, index) {
  const selected = handlers.isSelected(made.item, index);
  made.classList.toggle("taken", selected);
  made.querySelector(".tool.select")?.setAttribute("aria-pressed", String(selected));
}

export function notice(title, lines, { isError = false, more = [] } = {}) {
  return node("section", { class: `notice${isError ? " wrong" : ""}`, role: isError ? "alert" : null },
    node("h2", {}, title), ...lines.filter(Boolean).map((line) => node("p", {}, line)), ...more);
}
