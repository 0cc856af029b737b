// The page: the address holds its state, every change goes through the address, and the results come from the server.

import { card, node, notice, updateMarks } from "./card.js";
import { drawDetail } from "./detail.js";
import { chipsOf, drawFilters, ordersOf } from "./filters.js";
import { groupCopies, layOut, loaded } from "./grid.js";
import { plural } from "./labels.js";
import { drawLists, fetchList, putList } from "./lists.js";
import { fetchJson, setToken, setTokenRequest, showThumbnail } from "./net.js";
import { drawPieces, hasQuery, hasWeight, isTextOnly, NO_QUERY, queryName, queryPhrase, searchParameters, showWeight, splitNegatives, withExample } from "./query.js";
import { contactSheet, download, Selection } from "./selection.js";
import { welcome } from "./start.js";
import { addressOf, readState, readView, saveView, takeToken } from "./state.js";

const PAGE_SIZE = 40;
const MAX_RESULTS = 200;
// Items that are selected at once; the weight of the words beside the first item that is judged, in percent.
const MAX_SELECTED = 2000;
const WORDS_STAY = 70;
const byId = (id) => document.getElementById(id);
const selection = new Selection();
takeToken(setToken);
const view = readView();
let state = readState();
let libraries = [];
let limit = PAGE_SIZE;
let resultsAbort = new AbortController();

let answers = [];
let list = null;

// The state that the filters were drawn for: they are drawn again if it changes, but not while they are in use.
let drawnFor = "";
const filtersFor = (where) => JSON.stringify([currentLibrary(), state.target, where]);
const currentQuery = () => (state.list ? `list: ${list?.name || state.list}` : queryName(state));
const acceptsImages = () => libraries.find((one) => one.name === currentLibrary())?.accepts_images;
const currentLibrary = () => state.index || libraries[0]?.name || "";
const isSearch = () => !state.list && hasQuery(state);
const byPages = () => !isSearch() && !state.list;

// Query images since the page was opened: no address can hold them, but the history can refer to them.
const queryImages = [];
const visit = performance.timeOrigin;
const historyEntry = () => ({ visit, image: queryImages.indexOf(state.image) });

const handlers = {
  address: (item, target) => addressOf({ ...state, item: item.id, side: target }),
  select: (item, index) => { selection.toggle(item, index, currentQuery()); updateBar(); refreshMarks(); },
  isSelected: (item, index) => selection.isSelected(item, index),
  // An item of one library may be missing from the other.
  canJudge: () => isSearch() && !state.compare,
  judge: (item, value, index, target) => {
    if (state.q) selection.vote(item.id, value, index, state.q, target);
    const changes = withExample(state, item.id, value);
    if (changes.like.length && !hasWeight(state) && state.q) changes.text_weight = WORDS_STAY;
    navigate({ ...changes, ...(state.like.length ? {} : { like_side: changes.like.length ? target : "" }) });
  },
  like: (item, side, target) => navigate({ ...NO_QUERY, like: [item.id], like_side: side, target, item: "", side: "", list: "" }),
  loaded: (made, image) => { loaded(made, image); scheduleLayout(); },
  close: () => byId("detail").close(),
  move: (step) => {
    const ids = visibleCards().map((one) => one.dataset.id);
    const position = ids.indexOf(state.item) + step;
    if (ids[position]) navigate({ item: ids[position], side: state.target }, { replace: true });
  },
};

const visibleCards = () => [...document.querySelectorAll("#columns .card[data-id]")].filter((one) => !one.hidden);

function navigate(changes, { replace = false, reload = false } = {}) {
  const before = state;
  state = { ...state, ...changes };
  // Negative parts alone are no query.
  if (!isSearch()) Object.assign(state, { not_like: [], not_text: [] });
  history[replace ? "replaceState" : "pushState"](historyEntry(), "", addressOf(state));
  const sameQuery = before.image === state.image && addressOf({ ...before, item: "", side: "" }) === addressOf({ ...state, item: "", side: "" });
  const unchanged = sameQuery && !reload;
  if (!unchanged) limit = PAGE_SIZE;
  render({ reloadResults: !unchanged });
}

async function render({ reloadResults = true } = {}) {
  byId("q").value = state.q;
  byId("pick").hidden = !acceptsImages();
  const idea = acceptsImages() && !matchMedia("(max-width:44rem)").matches ? "An idea, a headline, or a picture" : "An idea, or a headline";
  byId("q").placeholder = state.image || state.like.length ? "Words that go with it" : idea;
  byId("signals").value = state.signals;
  byId("private").hidden = !state.image;
  drawPieces(byId("asked"), state, currentLibrary(), (changes, id) => {
    if (id && state.q) selection.vote(id, null, currentLibrary(), state.q, state.target);
    navigate(changes);
    byId("q").focus();
  });
  document.querySelector(`input[name=for][value=${state.target}]`).checked = true;
  byId("library").value = currentLibrary();
  byId("compare").value = state.compare;
  for (const id of ["density", "size"]) byId(id).closest(".switch, .pickone").hidden = state.target === "texts";
  document.title = currentQuery() ? `${currentQuery()} · Subtext` : "Subtext";
  detail();
  updateBar();
  drawConditions();
  drawOrders();
  if (byId("filters").open && drawnFor !== filtersFor(state.where)) fillFilters();
  if (reloadResults) await loadResults();
}

// The fields of a library, asked for once a page.
const fieldsOf = new Map();
function currentFields() {
  const key = JSON.stringify([currentLibrary(), state.target]);
  if (!fieldsOf.has(key)) {
    const asked = fetchJson("fields", { target: state.target, index: currentLibrary() }).then((answer) => answer.fields);
    asked.catch(() => fieldsOf.delete(key));
    fieldsOf.set(key, asked);
  }
  return fieldsOf.get(key);
}

function drawConditions() {
  byId("filtered").hidden = !state.where.length;
  byId("filtered").textContent = state.where.length;
  const chips = chipsOf(state.where).map(({ label, without }) => node("li", {}, node("button", {
    type: "button", class: "condition", "aria-label": `Remove the filter ${label}`, onclick: () => navigate({ where: without }),
  }, label, node("span", { "aria-hidden": "true" }, "✕"))));
  if (chips.length > 1) chips.push(node("li", {}, node("button", { type: "button", class: "link", onclick: () => navigate({ where: [] }) }, "Remove all filters")));
  byId("conditions").replaceChildren(...chips);
  byId("conditions").hidden = !chips.length;
}

async function drawOrders() {
  const fields = await currentFields().catch(() => []);
  const orders = ordersOf(fields, { order: state.order, isSearch: isSearch() });
  const chosen = Math.max(0, orders.findIndex((one) => one.order === state.order && one.descending === state.descending));
  byId("order").replaceChildren(...orders.map(({ label }, place) => node("option", { value: String(place), selected: place === chosen }, label)));
  byId("order").orders = orders;
  byId("order-label").hidden = orders.length < 2 || Boolean(state.list);
}

// ---- results ----

function shownLibraries() {
  return [...new Set([currentLibrary(), state.compare].filter(Boolean))];
}

async function fetchResults(index, signal, top = limit) {
  if (state.list) {
    list = await fetchList(state.list, index, { signal });
    return { index, hits: list.items, total: list.items.length, fits: null, message: null, unknown_words: [] };
  }
  const about = { index, target: state.target, top, where: state.where };
  if (state.order) Object.assign(about, { order: state.order, descending: Boolean(state.descending) });
  const onBusy = (seconds) => { byId("status").textContent = `The server is busy; asking again in ${seconds} s …`; };
  const parameters = searchParameters(state);
  if (state.image) return fetchJson("search", { ...about, ...parameters }, { body: state.image, kind: state.image.type || "image/jpeg", signal, onBusy });
  if (!parameters) return fetchJson("similar", { ...about, id: state.like[0], side: state.like_side || "images" }, { signal, onBusy });
  if (isSearch()) return fetchJson("search", { ...about, ...parameters }, { signal, onBusy });
  const page = await fetchJson("items", { ...about, top: Math.min(top, MAX_RESULTS) }, { signal, onBusy });
  return { index, hits: page.items, total: page.total, fits: page.total ? null : false, message: page.total ? null : "Nothing in this library fulfils these conditions.", unknown_words: [] };
}

// The answer of each library. If one of two fails, the other is still shown.
async function fetchAll(names, signal) {
  const outcomes = await Promise.allSettled(names.map((index) => fetchResults(index, signal)));
  const problems = outcomes.map((one) => one.reason);
  const worst = problems.find((one) => one?.name === "AbortError") || (problems.every(Boolean) && problems[0]);
  if (worst) throw worst;
  return outcomes.map((one, side) => one.value || { index: names[side], hits: [], fits: false, error: sentence(one.reason.message) });
}

async function loadResults() {
  resultsAbort.abort();
  resultsAbort = new AbortController();
  const { signal } = resultsAbort;
  byId("columns").setAttribute("aria-busy", "true");
  byId("notice").replaceChildren();
  byId("more").hidden = true;
  if (limit === PAGE_SIZE) showPlaceholders();
  byId("status").textContent = isSearch() ? "Searching …" : "";
  try {
    answers = await fetchAll(shownLibraries(), signal);
    drawAnswers();
  } catch (error) {
    if (error.name === "AbortError") return;
    answers = [];
    byId("columns").replaceChildren();
    byId("status").textContent = "";
    updateBar();
    byId("notice").replaceChildren(notice("That did not work", [sentence(error.message)], { isError: true, more: [
      node("p", { class: "tries" }, node("button", { type: "button", onclick: () => loadResults() }, "Try again"))] }));
  } finally {
    if (!signal.aborted) byId("columns").removeAttribute("aria-busy");
  }
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

function showPlaceholders() {
  byId("columns").style.setProperty("--sides", shownLibraries().length);
  byId("columns").dataset.sides = shownLibraries().length;
  const empty = () => Array.from({ length: 12 }, () => node("div", { class: "card" }, node("span", { class: "mat" })));
  byId("columns").replaceChildren(...shownLibraries().map(() => node("section", { class: "column", "aria-hidden": "true" },
    node("div", { class: `grid waiting${state.target === "texts" ? " words" : ""}` }, ...empty()))));
  applyLayout();
}

const isShown = (answer) => answer.fits !== false || answer.showWeak;
const shownHits = () => answers.flatMap((answer) => (isShown(answer) ? answer.hits.map((item) => ({ item, index: answer.index })) : []));

function drawAnswers() {
  const target = state.target;
  const ranks = answers.map((answer) => new Map(answer.hits.map((hit, row) => [hit.id, row + 1])));
  byId("notice").replaceChildren(...welcomeSection(), ...listHead(), ...answerNotices());
  byId("columns").replaceChildren(...answers.map((answer, side) => {
    const cards = (isShown(answer) ? answer.hits : []).map((hit) => card(hit, { index: answer.index, target, handlers, otherRank: otherRank(hit, ranks, side) }));
    return node("section", { class: "column", "aria-label": answers.length > 1 ? answer.index : "Results" },
      answers.length > 1 && answer.hits.length ? node("h2", {}, answer.index) : null,
      node("ul", { class: `grid${target === "texts" ? " words" : ""}`, role: "list" }, ...cards));
  }));
  byId("columns").style.setProperty("--sides", answers.length);
  byId("columns").dataset.sides = answers.length;
  applyLayout();
  byId("status").textContent = summary();
  byId("title").textContent = isSearch() ? `What goes with ${currentQuery()}` : "Subtext, pictures for words and words for pictures";
  const full = answers.some((answer) => answer.hits.length >= limit && isShown(answer));
  byId("more").hidden = !full || limit >= MAX_RESULTS || Boolean(state.list);
  updateBar();
}

// ---- the grid ----

let layoutPlanned = false;

// Pictures come one by one: what came since the last frame is laid out at once.
function scheduleLayout() {
  if (layoutPlanned) return;
  layoutPlanned = true;
  requestAnimationFrame(() => { layoutPlanned = false; applyLayout(); });
}

function applyLayout() {
  byId("columns").dataset.density = view.density;
  for (const grid of document.querySelectorAll("#columns .grid:not(.words)")) {
    if (!grid.classList.contains("waiting")) collapseCopies(grid);
    layOut(grid, view.size);
  }
}

// Copies stand behind the best of them; a button shows them.
function collapseCopies(grid) {
  for (const [first, copies] of groupCopies(grid)) {
    for (const copy of copies) copy.hidden = !first.showCopies && copy.dataset.id !== state.item;
    let button = first.querySelector(".copies");
    if (!copies.length) { button?.remove(); continue; }
    if (!button) {
      button = node("button", { type: "button", class: "copies", onclick: () => { first.showCopies = !first.showCopies; applyLayout(); } });
      first.append(button);
    }
    button.textContent = first.showCopies ? "Hide copies" : `${copies.length + 1} copies`;
    button.setAttribute("aria-expanded", String(Boolean(first.showCopies)));
  }
}

function summary() {
  if (answers.every((answer) => !isShown(answer))) return "";
  const count = (number) => plural(number, state.target === "texts" ? "text" : "picture");
  const place = libraries.length > 1 && answers.length === 1 ? ` in ${currentLibrary()}` : "";
  if (!isSearch()) return answers[0].total === undefined || state.list ? "" : `${count(answers[0].total)}${place}`;
  const judged = state.q ? state.like.length + state.not_like.length : 0;
  const order = state.order ? `, ${state.descending ? "newest" : "oldest"} first` : "";
  const answer = answers.find((one) => !one.error);
  return `${count(answer.hits.length)}${judged ? `, ${judged} judged,` : ""} for ${queryPhrase(state)}${place}${order}`;
}

function otherRank(hit, ranks, side) {
  if (ranks.length < 2) return null;
  const other = ranks[1 - side].get(hit.id);
  return other ? `no. ${other} in ${answers[1 - side].index}` : null;
}

function welcomeSection() {
  if (!byPages() || state.where.length || state.order) return [];
  const library = libraries.find((one) => one.name === currentLibrary());
  return [welcome({ library, fields: currentFields(), canSearch: library.accepts_text, signal: resultsAbort.signal,
    go: (changes) => navigate(changes), address: (changes) => addressOf({ ...state, ...changes }) })];
}

// Above a saved list: its name, what it holds, and its query.
function listHead() {
  if (!state.list || !list) return [];
  const link = node("button", { type: "button", onclick: async () => {
    const address = new URL(addressOf({ ...readState("", ""), list: state.list, index: state.index }), location.href).href;
    try { await navigator.clipboard.writeText(address); link.textContent = "Copied"; } catch { link.replaceWith(node("code", {}, address)); }
  } }, "Copy the link");
  return [node("section", { class: "list-head" }, node("h2", {}, list.name), node("p", { class: "soft" }, [plural(list.items.length, "item"),
    list.query ? `from “${list.query}”` : "", String(list.created || "").slice(0, 10)].filter(Boolean).join(" · ")),
  node("p", { class: "actions" }, link, list.query ? node("button", { type: "button", onclick: () => navigate({ ...NO_QUERY, q: list.query, ...list.judged, list: "" }) }, "Search again") : null))];
}

function answerNotices() {
  return answers.filter((answer) => answer.fits === false || answer.message).map((answer) => {
    const name = answers.length > 1 ? `${answer.index}: ` : "";
    if (answer.error) return notice(`${name}That did not work`, [answer.error], { isError: true });
    const corrected = Object.entries(answer.did_you_mean || {}).reduce((words, [wrong, right]) => words.replace(new RegExp(wrong, "iu"), right), state.q);
    const tips = corrected === state.q ? [] : [node("a", { href: addressOf({ ...state, q: corrected }), onclick: (event) => { event.preventDefault(); navigate({ q: corrected }); } }, corrected)];
    // One line, which opens: the pictures are what matters.
    if (answer.fits !== false) return node("div", { class: "hint" }, node("details", {}, node("summary", {}, `${name}${answer.message}`)), ...tips);
    tips.push(node("a", { href: "./", onclick: (event) => { event.preventDefault(); navigate({ ...NO_QUERY, where: [] }, { reload: true }); } }, "See all of the library"));
    if (state.where.length) tips.unshift(node("a", { href: addressOf({ ...state, where: [] }), onclick: (event) => { event.preventDefault(); navigate({ where: [] }); } }, "Without the filters"));
    if (answer.hits.length && !answer.showWeak) {
      tips.unshift(node("button", { type: "button", onclick: () => { answer.showWeak = true; drawAnswers(); } }, "Show what is nearest all the same"));
    }
    const below = answer.showWeak ? "What is nearest all the same stands below." : "Other words, or fewer, may find something.";
    return notice(`${name}Nothing here fits${isTextOnly(state) ? ` “${state.q}”` : ""}`, [answer.message, below], { more: [node("p", { class: "tries" }, ...tips)] });
  });
}

// ---- detail, selection, judgements ----

let detailStop = new AbortController();
let shownItem = "";

async function detail() {
  const dialog = byId("detail");
  const itemKey = state.item ? `${state.side || "images"}\n${state.item}` : "";
  if (itemKey === shownItem) return;
  shownItem = itemKey;
  detailStop.abort();
  detailStop = new AbortController();
  const { signal } = detailStop;
  if (!itemKey) {
    if (dialog.open) dialog.close();
    return;
  }
  if (!dialog.open) dialog.showModal();
  try {
    const side = state.side || "images";
    const answer = side === state.target && isSearch() ? answers.find((one) => one.index === currentLibrary()) : null;
    const hit = answer?.hits.find((one) => one.id === state.item) || null;
    await drawDetail(dialog, { id: state.item, side, index: currentLibrary(), hit, unit: answer?.unit, handlers, signal });
  } catch (error) {
    if (error.name === "AbortError") return;
    dialog.replaceChildren(node("div", { class: "help" }, node("h2", { id: "detail-title" }, "It cannot be shown"), node("p", {}, sentence(error.message)),
      node("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  }
}

function updateBar() {
  const rows = shownHits();
  const selected = selection.chosen.size;
  byId("bar").hidden = !selected;
  document.body.classList.toggle("with-bar", Boolean(selected));
  byId("chosen").textContent = `${selected.toLocaleString("en")} selected`;
  byId("all").hidden = !rows.length;
  const left = rows.filter(({ item, index }) => !selection.isSelected(item, index)).length;
  byId("all-page").hidden = !left;
  byId("all-page").textContent = `All ${rows.length.toLocaleString("en")} on this page`;
  const total = answers.length === 1 ? answers[0].total ?? (answers[0].hits.length >= limit ? MAX_RESULTS : 0) : 0;
  byId("all-hits").hidden = !rows.length || state.compare || total <= rows.length;
  byId("all-hits").textContent = isSearch() ? `The best ${MAX_RESULTS}` : `All ${Math.min(total, MAX_SELECTED).toLocaleString("en")}${total > MAX_SELECTED ? ` of ${total.toLocaleString("en")}` : ""}`;
  byId("take-out").hidden = !state.list;
  byId("judgements").hidden = !selection.judged;
  byId("qrels").textContent = `Download ${plural(selection.judged, "judgement")}`;
}

function selectPage() {
  selection.add(shownHits(), currentQuery());
  updateBar();
  refreshMarks();
}

// All hits: the best that one answer may have, or all pages of the items that meet the conditions.
async function selectHits() {
  const index = currentLibrary();
  byId("all-hits").disabled = true;
  try {
    let items = [];
    if (isSearch()) {
      items = (await fetchResults(index, resultsAbort.signal, MAX_RESULTS)).hits;
    } else {
      for (let after = ""; items.length < MAX_SELECTED;) {
        const page = await fetchJson("items", { index, target: state.target, where: state.where, top: MAX_RESULTS, after });
        items.push(...page.items);
        if (!page.next) break;
        after = page.next.replace(/^after=/, "");
      }
    }
    selection.add(items.slice(0, MAX_SELECTED).map((item) => ({ item, index })), currentQuery());
  } catch (error) {
    byId("notice").replaceChildren(notice("They could not be selected", [sentence(error.message)], { isError: true }));
  } finally {
    byId("all-hits").disabled = false;
    updateBar();
    refreshMarks();
  }
}

// What is selected in the library that is shown: a list belongs to a library.
function selectedHere() {
  const rows = [...selection.chosen.values()].filter((row) => row.index === currentLibrary());
  // A list holds pictures: of a text, its picture.
  return { ids: [...new Set(rows.map(({ item }) => item.image_id || item.id))], query: isSearch() ? state.q : "", judged: { like: state.like, not_like: state.not_like } };
}

const downloadCsv = () => download("subtext.csv", `\ufeff${selection.csv()}`, "text/csv");

function openLists(saving) {
  const files = { csv: downloadCsv, ids: () => download("ids.txt", `${selectedHere().ids.join("\n")}\n`, "text/plain") };
  byId("options").hidePopover();
  if (!byId("lists").open) byId("lists").showModal();
  drawLists(byId("lists"), {
    index: currentLibrary(), selected: saving ? selectedHere() : { ids: [], query: "" }, files,
    open: (link) => navigate({ ...NO_QUERY, list: link, where: [], item: "", target: "images", compare: "" }, { reload: true }),
    saved: (saved) => { selection.clear(); navigate({ ...NO_QUERY, list: saved.link, where: [], item: "", compare: "" }, { reload: true }); },
  });
}

async function takeOut() {
  const out = new Set(selectedHere().ids);
  try {
    await putList(state.list, currentLibrary(), { ids: list.ids.filter((id) => !out.has(id)) });
    selection.clear();
    updateBar();
    loadResults();
  } catch (error) {
    byId("notice").replaceChildren(...listHead(), notice("The list is as it was", [sentence(error.message)], { isError: true }));
  }
}

function refreshMarks() {
  for (const column of document.querySelectorAll("#columns .column")) {
    for (const one of column.querySelectorAll(".card")) if (one.item) updateMarks(one, handlers, one.library);
  }
}

async function downloadContactSheet() {
  const load = (id, index) => new Promise((resolve) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = () => resolve(null);
    setTimeout(() => resolve(null), 10_000);
    showThumbnail(image, id, 320, index);
  });
  byId("sheet").disabled = true;
  download("contact-sheet.png", await contactSheet([...selection.chosen.values()], load), "image/png");
  updateBar();
}

// ---- input ----

function searchWithImage(file) {
  if (!acceptsImages() || !file || !file.type.startsWith("image/")) {
    const [title, advice] = acceptsImages() ? ["That is no picture", "Drop, paste or choose a JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF."]
      : ["This library takes no pictures", "Its model reads features that were computed before. Ask with words, or with an item of the library."];
    byId("notice").replaceChildren(notice(title, [advice], { isError: true }));
    return;
  }
  queryImages.push(file);
  // Words in the box are combined with it.
  navigate({ image: file, ...typedQuery({ alone: false }), like: [], like_side: "", item: "", side: "", list: "" });
}

// The words in the box, and the negative words that are shown as pieces.
function typedQuery({ alone = !state.image && !state.like.length } = {}) {
  const { q, not_text } = splitNegatives(byId("q").value, { alone });
  return { q, not_text: [...new Set([...state.not_text, ...not_text])] };
}

function addListeners() {
  // Without focus in the box, keys act on the hits, and a phone hides its keyboard.
  byId("search").addEventListener("submit", (event) => { event.preventDefault(); byId("q").blur(); navigate({ ...typedQuery(), list: "" }, { reload: true }); });
  byId("home").addEventListener("click", (event) => { event.preventDefault(); navigate({ ...NO_QUERY, item: "", where: [], list: "", order: "", descending: "" }, { reload: true }); byId("q").focus(); });
  byId("words").addEventListener("input", () => showWeight(byId("asked"), state));
  byId("words").addEventListener("change", () => navigate({ text_weight: Number(byId("words").value) }, { replace: true }));
  byId("pick").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", () => { searchWithImage(byId("file").files[0]); byId("file").value = ""; });
  for (const one of document.querySelectorAll("input[name=for]")) one.addEventListener("change", () => navigate({ target: one.value, where: [], order: "", descending: "", list: "" }));
  byId("library").addEventListener("change", () => navigate({ index: byId("library").value, where: [], order: "", descending: "", like: [], like_side: "", not_like: [], list: "" }));
  byId("signals").addEventListener("change", () => navigate({ signals: byId("signals").value }));
  byId("compare").addEventListener("change", () => navigate({ compare: byId("compare").value, list: "" }));
  byId("order").addEventListener("change", () => {
    const { order, descending } = byId("order").orders[Number(byId("order").value)];
    navigate({ order, descending });
  });
  byId("filter").addEventListener("click", () => openFilters(!byId("filters").open));
  for (const id of ["close-filters", "show-filtered"]) byId(id).addEventListener("click", () => openFilters(false));
  byId("filters").addEventListener("close", () => { byId("filter").setAttribute("aria-expanded", "false"); byId("work").classList.remove("filtering"); });
  addViewListeners();
  byId("more").addEventListener("click", () => { limit = Math.min(MAX_RESULTS, limit + PAGE_SIZE); loadResults(); });
  byId("ask-help").addEventListener("click", () => { byId("options").hidePopover(); byId("help").showModal(); });
  byId("open-lists").addEventListener("click", () => openLists(false));
  byId("save").addEventListener("click", () => openLists(true));
  byId("take-out").addEventListener("click", takeOut);
  for (const id of ["all", "all-page"]) byId(id).addEventListener("click", selectPage);
  byId("all-hits").addEventListener("click", selectHits);
  byId("csv").addEventListener("click", downloadCsv);
  byId("sheet").addEventListener("click", downloadContactSheet);
  byId("clear").addEventListener("click", () => { selection.clear(); updateBar(); refreshMarks(); });
  byId("forget").addEventListener("click", () => { selection.forget(); updateBar(); });
  byId("qrels").addEventListener("click", () => {
    const { qrels, queries } = selection.qrels();
    download("qrels.tsv", qrels, "text/tab-separated-values");
    download("queries.jsonl", queries, "application/jsonl");
  });
  byId("detail").addEventListener("close", () => { if (state.item) navigate({ item: "", side: "" }); });
  byId("detail").addEventListener("click", (event) => { if (event.target === byId("detail")) byId("detail").close(); });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a.open");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const linked = readState(new URL(link.href).search, "");
    navigate({ item: linked.item, side: linked.side });
  });
  window.addEventListener("popstate", (event) => {
    takeToken(setToken);
    const image = event.state?.visit === visit ? queryImages[event.state.image] : null;
    state = { ...readState(), image: image || null };
    limit = PAGE_SIZE;
    render();
  });
  document.addEventListener("paste", (event) => {
    const file = [...(event.clipboardData?.files || [])][0];
    if (file) { event.preventDefault(); searchWithImage(file); }
  });
  addDropListeners();
  document.addEventListener("keydown", onKey);
}

// On a narrow screen, how pictures are shown stands among the options.
function addViewListeners() {
  const narrow = matchMedia("(max-width: 44rem)");
  const move = () => { (narrow.matches ? byId("narrow") : byId("wide")).append(byId("view")); if (byId("filters").open) openFilters(false); };
  narrow.addEventListener("change", move);
  move();
  byId("size").value = view.size;
  document.querySelector(`input[name=density][value=${view.density}]`).checked = true;
  byId("size").addEventListener("input", () => { view.size = Number(byId("size").value); scheduleLayout(); });
  byId("size").addEventListener("change", () => saveView(view));
  for (const one of document.querySelectorAll("input[name=density]")) one.addEventListener("change", () => { view.density = one.value; saveView(view); applyLayout(); });
  new ResizeObserver(scheduleLayout).observe(byId("columns"));
}

function addDropListeners() {
  let deep = 0;
  const has = (event) => [...(event.dataTransfer?.types || [])].includes("Files");
  document.addEventListener("dragenter", (event) => { if (has(event)) { deep += 1; byId("drop").hidden = false; } });
  document.addEventListener("dragleave", (event) => { if (has(event)) { deep -= 1; byId("drop").hidden = deep <= 0; } });
  document.addEventListener("dragover", (event) => { if (has(event)) event.preventDefault(); });
  document.addEventListener("drop", (event) => {
    if (!has(event)) return;
    event.preventDefault();
    deep = 0;
    byId("drop").hidden = true;
    searchWithImage(event.dataTransfer.files[0]);
  });
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // The box has the focus at the start: the key that leads there is not typed.
  if (event.key === "/" && document.activeElement === byId("q") && !byId("q").value) event.preventDefault();
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName || "");
  if (byId("detail").open) {
    if (event.key === "ArrowLeft" && !typing && !document.activeElement.closest(".strip")) handlers.move(-1);
    if (event.key === "ArrowRight" && !typing && !document.activeElement.closest(".strip")) handlers.move(1);
    return;
  }
  if (event.key === "Escape" && byId("filters").open) { openFilters(false); byId("filter").focus(); return; }
  if (typing || document.querySelector("dialog:modal")) return;
  if (event.key === "/") { event.preventDefault(); byId("q").focus(); byId("q").select(); return; }
  if (event.key === "?") { byId("help").showModal(); return; }
  const here = document.activeElement?.closest?.("#columns .card");
  if (event.key.startsWith("Arrow")) { moveFocus(here, event); return; }
  if (!here) return;
  const tool = { s: ".select", "+": ".up", "-": ".down" }[event.key];
  here.querySelector(`.tool${tool || ".nothing"}`)?.click();
}

// Move the focus to the nearest card in the direction of the arrow key.
function moveFocus(here, event) {
  const cards = visibleCards().map((one) => one.querySelector(".open"));
  if (!cards.length || (!here && !["ArrowDown", "ArrowRight"].includes(event.key))) return;
  event.preventDefault();
  if (!here) { cards[0].focus(); return; }
  const own = here.getBoundingClientRect();
  const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  const away = (link) => {
    const box = link.closest(".card").getBoundingClientRect();
    const [x, y] = [box.x + box.width / 2 - own.x - own.width / 2, box.y + box.height / 2 - own.y - own.height / 2];
    const along = dx * x + dy * y;
    return along < 8 ? Infinity : along + 4 * Math.abs(dx ? y : x);
  };
  const best = cards.reduce((one, other) => (away(other) < away(one) ? other : one));
  if (away(best) < Infinity) { best.focus(); best.scrollIntoView({ block: "nearest" }); }
}

// Beside the results on a wide screen, a sheet above them on a narrow one.
function openFilters(open) {
  const panel = byId("filters");
  if (!open) { panel.close(); return; }
  if (matchMedia("(max-width: 44rem)").matches) panel.showModal(); else panel.show();
  byId("filter").setAttribute("aria-expanded", "true");
  byId("work").classList.add("filtering");
  fillFilters();
}

async function fillFilters() {
  try {
    drawnFor = filtersFor(state.where);
    const [library, target] = [currentLibrary(), state.target];
    const fields = await currentFields();
    // Another side or library was chosen meanwhile: its fields are being fetched.
    if (target !== state.target || library !== currentLibrary()) return;
    drawFilters(byId("fields"), fields, state.where, (where) => { drawnFor = filtersFor(where); navigate({ where, list: "" }); });
  } catch (error) {
    byId("fields").replaceChildren(notice("No filters", [sentence(error.message)], { isError: true }));
  }
}

let opening = null;

setTokenRequest(() => {
  opening ||= new Promise((resolve) => {
    byId("token").showModal();
    byId("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      setToken(byId("token-text").value.trim());
      byId("token-text").value = "";
      byId("token").close();
      opening = null;
      resolve();
    }, { once: true });
  });
  return opening;
});

async function start() {
  addListeners();
  try {
    libraries = (await fetchJson("libraries")).libraries;
  } catch (error) {
    byId("notice").replaceChildren(notice("The library cannot be opened", [sentence(error.message)], { isError: true }));
    return;
  }
  const names = libraries.map((one) => one.name);
  const option = (value, words) => node("option", { value }, words);
  byId("library").replaceChildren(...names.map((name) => option(name, name)));
  byId("compare").replaceChildren(option("", "none"), ...names.map((name) => option(name, name)));
  byId("library-label").hidden = byId("compare-label").hidden = names.length < 2;
  // Keys act on the results of an address, as they do after a search.
  if (isSearch() || state.item || state.list) byId("q").blur();
  await render();
}

start();
