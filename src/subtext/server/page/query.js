// The parts of a query as pieces in the search box: words, an image of the user, an item to be like, items and words to be
// unlike; and the weight of the words beside the image.

import { node } from "./card.js";
import { showThumbnail } from "./net.js";

const MAX_NOT_LIKE = 20;

// No query at all.
export const NO_QUERY = { q: "", like: "", like_side: "", not_like: [], not_text: [], image: null };

export const hasQuery = (state) => Boolean(state.image || state.like || state.q);

// Whether the query is words and nothing else: results of such a query can be judged.
export const isTextOnly = (state) => Boolean(state.q && !state.image && !state.like && !negativeParts(state).length);

export const hasWeight = (state) => Boolean(state.q && (state.image || state.like));

// The negative parts, as the page shows them.
const negativeParts = (state) => [...state.not_like, ...state.not_text.map((words) => `“${words}”`)];

// Split the text of the box: words with a minus before them, or several in quotes, are negative. `alone`: there is no other
// part; then negative words are ordinary words.
export function splitNegatives(text, { alone }) {
  const not_text = [];
  const rest = text.replace(/(^|\s)-(?:"([^"]+)"|(\p{L}\S*))(?=\s|$)/gu, (_, space, several, one) => { not_text.push(several || one); return space; });
  const q = rest.replace(/\s+/g, " ").trim();
  return not_text.length && (q || !alone) ? { q, not_text } : { q: text.trim(), not_text: [] };
}

export const withNotLike = (state, id) => [...new Set([...state.not_like, id])].slice(-MAX_NOT_LIKE);

// The query in a few words, for titles and tables.
export function queryName(state) {
  const parts = [state.q, state.image && `picture: ${state.image.name || "pasted"}`, state.like && `like: ${state.like}`];
  if (hasQuery(state)) parts.push(negativeParts(state).length && `unlike: ${negativeParts(state).join(", ")}`);
  return parts.filter(Boolean).join("; ");
}

// The query as part of a sentence.
export function queryPhrase(state) {
  const share = (percent) => (hasWeight(state) ? ` (${percent} %)` : "");
  const parts = [state.q && `“${state.q}”${share(state.text_weight)}`, state.image && `your picture${share(100 - state.text_weight)}`,
    state.like && `${state.like}${share(100 - state.text_weight)}`];
  const negative = negativeParts(state).length ? `, unlike ${negativeParts(state).join(", ")}` : "";
  return parts.filter(Boolean).join(" and ") + negative + ({ pixels: ", by pictures alone", "texts,words,fields": ", by their texts alone" }[state.signals] || "");
}

// The parameters of /search; null for an item alone, which /similar answers.
export function searchParameters(state) {
  if (state.like && !state.q && !negativeParts(state).length && !state.image) return null;
  const weight = hasWeight(state) ? { image_weight: (100 - state.text_weight) / 100 } : {};
  const signals = state.q && state.signals ? state.signals.split(",") : [];
  return { q: state.q, like: state.like, not_like: state.not_like, not_text: state.not_text.join(", "), signals, explain: "true", ...weight };
}

// Draw the pieces if they have changed, so that the focus stays. `change` receives the changes of the state.
export function drawPieces(box, state, index, change) {
  const [pieces, weigh, slider] = ["#pieces", "#weigh", "#words"].map((selector) => box.querySelector(selector));
  box.hidden = !hasQuery(state) || (!state.image && !state.like && !negativeParts(state).length);
  weigh.hidden = !hasWeight(state);
  slider.value = state.text_weight;
  showWeight(box, state);
  const shown = JSON.stringify([state.like, state.like_side, state.not_like, state.not_text, index]);
  if (pieces.shown === shown && pieces.image === state.image) return;
  Object.assign(pieces, { shown, image: state.image });
  const list = [];
  if (state.image) list.push(piece("Your picture", preview(state.image), () => change({ image: null })));
  if (state.like) list.push(piece(`Like ${state.like}`, state.like_side === "texts" ? null : itemImage(state.like, index), () => change({ like: "", like_side: "" })));
  for (const id of state.not_like) {
    list.push(piece(`Unlike ${id}`, itemImage(id, index), () => change({ not_like: state.not_like.filter((other) => other !== id) }), "far"));
  }
  for (const words of state.not_text) {
    list.push(piece(`Not “${words}”`, null, () => change({ not_text: state.not_text.filter((other) => other !== words) }), "far"));
  }
  pieces.replaceChildren(...list);
}

// Show the value of the slider, also while it moves.
export function showWeight(box, state) {
  const slider = box.querySelector("#words");
  const share = Number(slider.value);
  box.querySelector("#weight").textContent = `${share} %`;
  slider.setAttribute("aria-valuetext", `words ${share} %, ${state.image ? "picture" : "item"} ${100 - share} %`);
}

function piece(label, image, remove, kind = "") {
  return node("li", { class: `piece ${kind}`.trim(), title: label }, image, node("span", {}, label),
    node("button", { type: "button", "aria-label": `Take away: ${label}`, onclick: remove }, "✕"));
}

function preview(file) {
  const image = node("img", { alt: "", src: URL.createObjectURL(file) });
  for (const event of ["load", "error"]) image.addEventListener(event, () => URL.revokeObjectURL(image.src), { once: true });
  return image;
}

function itemImage(id, index) {
  const image = node("img", { alt: "" });
  const frame = node("span", { class: "small" }, image);
  showThumbnail(image, id, 96, index);
  return frame;
}
