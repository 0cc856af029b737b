// The state of the page, as its address has it: any view can be sent to somebody else, except an image of the user.

const SINGLE = ["q", "index", "compare", "item", "side", "like_side", "signals", "order", "descending"];
const MULTIPLE = ["where", "like", "not_like", "not_text"];
const HALF = 50;

// A saved list is named in the fragment, which no log of a server has.
export function readState(address = location.search, fragment = location.hash) {
  const parameters = new URLSearchParams(address);
  const state = { target: parameters.get("target") === "texts" ? "texts" : "images", image: null };
  for (const name of SINGLE) state[name] = parameters.get(name) || "";
  for (const name of MULTIPLE) state[name] = parameters.getAll(name);
  state.list = new URLSearchParams(fragment.slice(1)).get("list") || "";
  // The weight of the words beside an image, in percent.
  const weight = parameters.get("text_weight") ? Number(parameters.get("text_weight")) : HALF;
  state.text_weight = weight >= 0 && weight <= 100 ? Math.round(weight) : HALF;
  return state;
}

export function addressOf(state) {
  const parameters = new URLSearchParams();
  for (const name of SINGLE) if (state[name]) parameters.set(name, state[name]);
  if (state.target === "texts") parameters.set("target", "texts");
  if (state.text_weight !== HALF && state.q && (state.like.length || state.image)) parameters.set("text_weight", state.text_weight);
  for (const name of MULTIPLE) for (const value of state[name]) parameters.append(name, value);
  const text = parameters.toString();
  return `./${text ? `?${text}` : ""}${state.list ? `#${new URLSearchParams({ list: state.list })}` : ""}`;
}

// How pictures are shown: kept in this browser, as it suits the screen and not the question.
const VIEW = "subtext.view";
export function readView() {
  const narrow = matchMedia("(max-width: 44rem)").matches;
  const view = { density: "captions", size: narrow ? 150 : 220 };
  try { Object.assign(view, JSON.parse(localStorage.getItem(VIEW))); } catch { /* Forbidden, or not readable: the defaults. */ }
  return view;
}

export function saveView(view) {
  try { localStorage.setItem(VIEW, JSON.stringify(view)); } catch { /* It lasts as long as the page. */ }
}

// The token comes in the fragment of a link, once: it is taken out of the address at once.
export function takeToken(setToken) {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const token = parameters.get("token");
  if (!token) return;
  setToken(token);
  parameters.delete("token");
  const rest = parameters.toString();
  history.replaceState(history.state, "", `${location.pathname}${location.search}${rest ? `#${rest}` : ""}`);
}
