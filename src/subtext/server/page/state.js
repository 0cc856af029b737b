// What is shown, as the address says it: any view of the page can be sent to somebody else, but for a picture of one's own.

const ONE = ["q", "index", "compare", "item", "side", "like", "likeside", "exact", "captions"];
const MANY = ["where", "unlike", "without"];
const HALF = 50;

export function read(address = location.search) {
  const given = new URLSearchParams(address);
  const state = { target: given.get("for") === "texts" ? "texts" : "images", picture: null };
  for (const name of ONE) state[name] = given.get(name) || "";
  for (const name of MANY) state[name] = given.getAll(name);
  // How much the words count beside a picture, in percent.
  const words = given.get("words") ? Number(given.get("words")) : HALF;
  state.words = words >= 0 && words <= 100 ? Math.round(words) : HALF;
  return state;
}

export function written(state) {
  const found = new URLSearchParams();
  for (const name of ONE) if (state[name]) found.set(name, state[name]);
  if (state.target === "texts") found.set("for", "texts");
  if (state.words !== HALF && state.q && (state.like || state.picture)) found.set("words", state.words);
  for (const name of MANY) for (const one of state[name]) found.append(name, one);
  const text = found.toString();
  return text ? `/?${text}` : "/";
}
