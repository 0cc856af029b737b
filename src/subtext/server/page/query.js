// What is asked with beside words, as pieces in the search box: a picture of one's own, an item to be like, items and words
// to be unlike; and how much the words count beside the picture.

import { node } from "./card.js";
import { show } from "./net.js";

const MOST = 20;

// Nothing asked for at all.
export const NOTHING = { q: "", like: "", likeside: "", unlike: [], without: [], picture: null };

export const wanted = (state) => Boolean(state.picture || state.like || state.q);

// Whether words are asked for, and nothing else: what can be judged as an answer to them.
export const plain = (state) => Boolean(state.q && !state.picture && !state.like && !away(state).length);

// Whether pictures can be looked for by their own texts as well, and whether they are.
export const texted = (state) => state.target === "images" && !state.picture && !state.like;
export const byTexts = (state) => Boolean(state.captions && state.q && texted(state));

export const weighed = (state) => Boolean(state.q && (state.picture || state.like));

// What the answer should be far from, as it is told.
const away = (state) => [...state.unlike, ...state.without.map((words) => `“${words}”`)];

// What stands in the box: words with a minus before them, or several in quotes, are what it should not go with. They are no
// question by themselves: `alone` tells that there is nothing else, and they are words like others.
export function split(text, { alone }) {
  const without = [];
  const rest = text.replace(/(^|\s)-(?:"([^"]+)"|(\p{L}\S*))(?=\s|$)/gu, (_, space, several, one) => { without.push(several || one); return space; });
  const q = rest.replace(/\s+/g, " ").trim();
  return without.length && (q || !alone) ? { q, without } : { q: text.trim(), without: [] };
}

export const further = (state, id) => [...new Set([...state.unlike, id])].slice(-MOST);

// In a few words, for titles and tables.
export function name(state) {
  const parts = [state.q, state.picture && `picture: ${state.picture.name || "pasted"}`, state.like && `like: ${state.like}`];
  if (wanted(state)) parts.push(away(state).length && `unlike: ${away(state).join(", ")}`);
  return parts.filter(Boolean).join("; ");
}

// As part of a sentence.
export function phrase(state) {
  const share = (percent) => (weighed(state) ? ` (${percent} %)` : "");
  const parts = [state.q && `“${state.q}”${share(state.words)}`, state.picture && `your picture${share(100 - state.words)}`,
    state.like && `${state.like}${share(100 - state.words)}`];
  const far = away(state).length ? `, unlike ${away(state).join(", ")}` : "";
  return parts.filter(Boolean).join(" and ") + far + (byTexts(state) ? ", by their own texts as well" : "");
}

// What the server is asked for; null where it is an item alone, which has an address of its own.
export function question(state) {
  if (state.like && !state.q && !away(state).length && !state.picture) return null;
  const share = weighed(state) ? { image_weight: (100 - state.words) / 100 } : {};
  const lexical = state.q ? state.exact : "";
  const captions = byTexts(state) ? "true" : "";
  return { q: state.q, like: state.like, not_like: state.unlike, not_text: state.without.join(", "), lexical, captions, ...share };
}

// Draw the pieces where they have changed, so that what has the focus keeps it. `change` takes what becomes of the state.
export function draw(place, state, index, change) {
  const [pieces, weigh, slider] = ["#pieces", "#weigh", "#words"].map((one) => place.querySelector(one));
  place.hidden = !wanted(state) || (!state.picture && !state.like && !away(state).length);
  weigh.hidden = !weighed(state);
  slider.value = state.words;
  told(place, state);
  const shown = JSON.stringify([state.like, state.likeside, state.unlike, state.without, index]);
  if (pieces.shown === shown && pieces.picture === state.picture) return;
  Object.assign(pieces, { shown, picture: state.picture });
  const found = [];
  if (state.picture) found.push(piece("Your picture", own(state.picture), () => change({ picture: null })));
  if (state.like) found.push(piece(`Like ${state.like}`, state.likeside === "texts" ? null : item(state.like, index), () => change({ like: "", likeside: "" })));
  for (const id of state.unlike) {
    found.push(piece(`Unlike ${id}`, item(id, index), () => change({ unlike: state.unlike.filter((one) => one !== id) }), "far"));
  }
  for (const words of state.without) {
    found.push(piece(`Not “${words}”`, null, () => change({ without: state.without.filter((one) => one !== words) }), "far"));
  }
  pieces.replaceChildren(...found);
}

// Tell what the slider stands at, while it is moved as well.
export function told(place, state) {
  const slider = place.querySelector("#words");
  const share = Number(slider.value);
  place.querySelector("#weight").textContent = `${share} %`;
  slider.setAttribute("aria-valuetext", `words ${share} %, ${state.picture ? "picture" : "item"} ${100 - share} %`);
}

function piece(label, image, remove, kind = "") {
  return node("li", { class: `piece ${kind}`.trim(), title: label }, image, node("span", {}, label),
    node("button", { type: "button", "aria-label": `Take away: ${label}`, onclick: remove }, "✕"));
}

function own(file) {
  const image = node("img", { alt: "", src: URL.createObjectURL(file) });
  for (const event of ["load", "error"]) image.addEventListener(event, () => URL.revokeObjectURL(image.src), { once: true });
  return image;
}

function item(id, index) {
  const image = node("img", { alt: "" });
  const mat = node("span", { class: "small" }, image);
  show(image, id, 96, index);
  return mat;
}
