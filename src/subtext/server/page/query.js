// The parts of a query as pieces in the search box: words, an image of the user, an item to be like, items and words to be
// unlike; and the weight of the words beside the image.

import { node } from "./card.js";
import { lastPart, plural } from "./labels.js";
import { showThumbnail } from "./net.js";

const MAX_EXAMPLES = 20;

// No query at all.
export const NO_QUERY = { q: "", like: [], like_side: "", not_like: [], not_text: [], image: null };

export const hasQuery = (state) => Boolean(state.image || state.like.length || state.q);

// Whether the query is words and nothing else: results of such a query can be judged.
export const isTextOnly = (state) => Boolean(state.q && !state.image && !state.like.length && !negatives(state).length);

export const hasWeight = (state) => Boolean(state.q && (state.image || state.like.length));

// One item by its name, several by their number.
const named = (ids, word) => (ids.length === 1 ? lastPart(ids[0]) : plural(ids.length, word));
const likes = (state) => named(state.like, "item");
// The negative parts, as the page shows them.
const negatives = (state) => [...(state.not_like.length ? [named(state.not_like, "item")] : []), ...state.not_text.map((words) => `“${words}”`)];

// Split the text of the box: words with a minus before them, or several in quotes, are negative. `alone`: there is no other
// part; then negative words are ordinary words.
export function splitNegatives(text, { alone }) {
  const not_text = [];
  const rest = text.replace(/(^|\s)-(?:"([^"]+)"|(\p{L}\S*))(?=\s|$)/gu, (_, space, several, one) => { not_text.push(several || one); return space; });
  const q = rest.replace(/\s+/g, " ").trim();
  return not_text.length && (q || !alone) ? { q, not_text } : { q: text.trim(), not_text: [] };
}

// An item as a positive or a negative example of the query that is shown, or neither any more.
export function withExample(state, id, value) {
  const without = (ids) => ids.filter((other) => other !== id);
  const added = (ids) => [...without(ids), id].slice(-MAX_EXAMPLES);
  return { like: value === 1 ? added(state.like) : without(state.like), not_like: value === 0 ? added(state.not_like) : without(state.not_like) };
}

// The query in a few words, for titles and tables.
export function queryName(state) {
  const parts = [state.q, state.image && `picture: ${state.image.name || "pasted"}`, state.like.length && `like: ${likes(state)}`];
  if (hasQuery(state)) parts.push(negatives(state).length && `unlike: ${negatives(state).join(", ")}`);
  return parts.filter(Boolean).join("; ");
}

// The query as part of a sentence.
export function queryPhrase(state) {
  const share = (percent) => (hasWeight(state) ? ` (${percent} %)` : "");
  const parts = [state.q && `“${state.q}”${share(state.text_weight)}`, state.image && `your picture${share(100 - state.text_weight)}`,
    state.like.length && `${likes(state)}${share(100 - state.text_weight)}`];
  const negative = negatives(state).length ? `, unlike ${negatives(state).join(", ")}` : "";
  return parts.filter(Boolean).join(" and ") + negative + ({ pixels: ", by pictures alone", "texts,words,machine_texts,machine_words,fields": ", by their texts alone" }[state.signals] || "");
}

// The parameters of /search; null for one item alone, which /similar answers.
export function searchParameters(state) {
  if (state.like.length === 1 && !state.q && !negatives(state).length && !state.image) return null;
  const weight = hasWeight(state) ? { image_weight: (100 - state.text_weight) / 100 } : {};
  const signals = state.q && state.signals ? state.signals.split(",") : [];
  return { q: state.q, like: state.like, not_like: state.not_like, not_text: state.not_text.join(", "), signals, explain: "true", ...weight };
}

// Draw the pieces if they have changed, so that the focus stays. `change` receives the changes of the state, and an item
// that is no example any more.
export function drawPieces(box, state, index, change) {
  const [pieces, weigh, slider] = ["#pieces", "#weigh", "#words"].map((selector) => box.querySelector(selector));
  box.hidden = !hasQuery(state) || (!state.image && !state.like.length && !negatives(state).length);
  weigh.hidden = !hasWeight(state);
  slider.value = state.text_weight;
  showWeight(box, state);
  const shown = JSON.stringify([state.like, state.like_side, state.not_like, state.not_text, index]);
  if (pieces.shown === shown && pieces.image === state.image) return;
  Object.assign(pieces, { shown, image: state.image });
  const list = [];
  if (state.image) list.push(piece("Your picture", preview(state.image), () => change({ image: null })));
  const image = (id) => (state.like_side === "texts" || state.target === "texts" ? null : itemImage(id, index));
  for (const id of state.like) list.push(piece(`Like ${lastPart(id)}`, image(id), () => change(withExample(state, id), id)));
  for (const id of state.not_like) list.push(piece(`Unlike ${lastPart(id)}`, image(id), () => change(withExample(state, id), id), "far"));
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
