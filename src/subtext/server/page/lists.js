// Saved lists: shown to whoever may read the library; saved and changed with the token for changes, else given as files.

import { node } from "./card.js";
import { plural } from "./labels.js";
import { fetchJson, RequestError, setToken } from "./net.js";

const LISTS = "lists";
const at = (link) => `${LISTS}/${encodeURIComponent(link)}`;
const change = (path, method, index, body) => fetchJson(path, {}, { method, ask: false, body: JSON.stringify({ index, ...body }), kind: "application/json" });

export const fetchList = (link, index, options) => fetchJson(at(link), { index }, options);
export const putList = (link, index, body) => change(at(link), "PUT", index, body);
const deleteList = (link, index) => fetchJson(at(link), { index }, { method: "DELETE", ask: false });

const needsToken = (error) => error instanceof RequestError && (error.status === 401 || error.status === 403);
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

// Draw the dialog with all lists, and a form to save a selection. `selected`: {ids, query, judged}; `files`: {csv(), ids()} that
// download it; `open(link)` shows a list, `saved(list)` follows a change.
export async function drawLists(dialog, { index, selected, files, open, saved }) {
  const close = node("button", { type: "button", class: "close round quiet", "aria-label": "Close", onclick: () => dialog.close() }, "✕");
  const message = node("div", { role: "status", "aria-live": "polite" });
  const own = node("ul", { class: "own-lists", role: "list", "aria-label": "Saved lists" });
  const form = node("div");
  dialog.replaceChildren(close, node("h2", { id: "lists-title" }, selected.ids.length ? "Save the selection" : "Saved lists"), form, message, own);
  let lists = [];
  try {
    lists = (await fetchJson(LISTS, { index })).lists;
  } catch (error) {
    message.replaceChildren(node("p", {}, sentence(error.message)));
  }
  const attempt = async (act) => {
    message.replaceChildren();
    try {
      await act();
    } catch (error) {
      message.replaceChildren(...(needsToken(error) ? offerFiles(selected.ids.length ? files : null, () => attempt(act)) : [node("p", { class: "wrong" }, sentence(error.message))]));
    }
  };
  const again = () => drawLists(dialog, { index, selected, files, open, saved });
  if (selected.ids.length) form.append(saveForm({ index, selected, lists, attempt, saved: (list) => { dialog.close(); saved(list); } }));
  if (selected.ids.length && lists.length) own.before(node("h3", {}, "Saved lists"));
  own.replaceChildren(...lists.map((list) => row(list, { index, attempt, again, open: () => { dialog.close(); open(list.link); } })));
  if (!lists.length && !selected.ids.length && !message.children.length) {
    message.replaceChildren(node("p", { class: "soft" }, "There is none yet. Select pictures, then “Save as list”."));
  }
}

function saveForm({ index, selected, lists, attempt, saved }) {
  const name = node("input", { type: "text", id: "list-name", maxlength: "200", required: true, autocomplete: "off", value: selected.query.slice(0, 60) });
  const into = node("select", { id: "list-into" }, node("option", { value: "" }, "a new list"), ...lists.map((list) => node("option", { value: list.link }, list.name)));
  const keep = node("input", { type: "checkbox", id: "list-query", checked: false });
  const named = node("p", {}, node("label", { for: "list-name" }, "Name"), name);
  into.addEventListener("change", () => { named.hidden = Boolean(into.value); name.required = !into.value; });
  return node("form", { class: "save-form", onsubmit: (event) => {
    event.preventDefault();
    attempt(async () => {
      const query = keep.checked && selected.query ? { query: selected.query, judged: selected.judged } : {};
      if (!into.value) { saved(await change(LISTS, "POST", index, { name: name.value.trim(), ids: selected.ids, ...query })); return; }
      const list = await fetchList(into.value, index, { ask: false });
      saved(await putList(into.value, index, { ids: [...new Set([...list.ids, ...selected.ids])] }));
    });
  } }, lists.length ? node("p", {}, node("label", { for: "list-into" }, "Into"), into) : null, named,
  selected.query ? node("p", {}, node("label", { class: "pickone" }, keep, `Keep the query with it: “${selected.query}”`)) : null,
  node("button", { class: "primary" }, `Save ${plural(selected.ids.length, "item")}`));
}

function row(list, { index, attempt, again, open }) {
  const made = node("li");
  const show = () => made.replaceChildren(
    node("a", { href: `./#${new URLSearchParams({ list: list.link })}`, onclick: (event) => { event.preventDefault(); open(); } }, list.name),
    node("span", { class: "soft" }, [plural(list.items, "item"), String(list.created || "").slice(0, 10)].filter(Boolean).join(", ")),
    node("button", { type: "button", class: "link", "aria-label": `Rename ${list.name}`, onclick: rename }, "Rename"),
    node("button", { type: "button", class: "link", "aria-label": `Delete ${list.name}`, onclick: remove }, "Delete"));
  const rename = () => {
    const name = node("input", { type: "text", value: list.name, maxlength: "200", required: true, "aria-label": "New name" });
    made.replaceChildren(node("form", { class: "actions", onsubmit: (event) => {
      event.preventDefault();
      attempt(async () => { await putList(list.link, index, { name: name.value.trim() }); await again(); });
    } }, name, node("button", {}, "Rename"), node("button", { type: "button", class: "quiet", onclick: show }, "Cancel")));
    name.focus();
    name.select();
  };
  const remove = () => {
    const yes = node("button", { type: "button", onclick: () => attempt(async () => { await deleteList(list.link, index); await again(); }) }, "Delete the list");
    made.replaceChildren(node("span", {}, `Delete “${list.name}”? Its pictures stay.`), yes, node("button", { type: "button", class: "quiet", onclick: show }, "Cancel"));
    yes.focus();
  };
  show();
  return made;
}

// Without the token for changes: the list as a file, or the token.
function offerFiles(files, again) {
  const token = node("input", { type: "password", id: "list-token", autocomplete: "off", required: true });
  return [
    node("p", {}, files ? "To save a list here needs the token for changes. The selection can be had as a file:" : "To change a list needs the token for changes."),
    files ? node("p", { class: "actions" }, node("button", { type: "button", onclick: files.csv }, "As CSV"), node("button", { type: "button", onclick: files.ids }, "As ids")) : null,
    node("form", { class: "actions", onsubmit: (event) => { event.preventDefault(); setToken(token.value.trim()); again(); } },
      node("label", { for: "list-token" }, "Token"), token, node("button", {}, "Use it")),
  ].filter(Boolean);
}
