// What is shown, as the address says it: any view of the page can be sent to somebody else.

const ONE = ["q", "index", "compare", "item", "side", "like", "likeside"];

export function read(address = location.search) {
  const given = new URLSearchParams(address);
  const state = { target: given.get("for") === "texts" ? "texts" : "images", where: given.getAll("where") };
  for (const name of ONE) state[name] = given.get(name) || "";
  return state;
}

export function written(state) {
  const found = new URLSearchParams();
  for (const name of ONE) if (state[name]) found.set(name, state[name]);
  if (state.target === "texts") found.set("for", "texts");
  for (const one of state.where) found.append("where", one);
  const text = found.toString();
  return text ? `/?${text}` : "/";
}
