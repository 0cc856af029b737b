// The state of the page, as its address has it: any view can be sent to somebody else, except an image of the user.

const SINGLE = ["q", "index", "compare", "item", "side", "like", "like_side", "signals", "order", "descending"];
const MULTIPLE = ["where", "not_like", "not_text"];
const HALF = 50;

export function readState(address = location.search) {
  const parameters = new URLSearchParams(address);
  const state = { target: parameters.get("target") === "texts" ? "texts" : "images", image: null };
  for (const name of SINGLE) state[name] = parameters.get(name) || "";
  for (const name of MULTIPLE) state[name] = parameters.getAll(name);
  // The weight of the words beside an image, in percent.
  const weight = parameters.get("text_weight") ? Number(parameters.get("text_weight")) : HALF;
  state.text_weight = weight >= 0 && weight <= 100 ? Math.round(weight) : HALF;
  return state;
}

export function addressOf(state) {
  const parameters = new URLSearchParams();
  for (const name of SINGLE) if (state[name]) parameters.set(name, state[name]);
  if (state.target === "texts") parameters.set("target", "texts");
  if (state.text_weight !== HALF && state.q && (state.like || state.image)) parameters.set("text_weight", state.text_weight);
  for (const name of MULTIPLE) for (const value of state[name]) parameters.append(name, value);
  const text = parameters.toString();
  return text ? `./?${text}` : "./";
}
