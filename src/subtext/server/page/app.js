// The page: the address holds its state, every change goes through the address, and the results come from the server.

import { drawPieces, hasQuery, isTextOnly, NO_QUERY, queryName, queryPhrase, searchParameters, showWeight, splitNegatives, withNotLike } from "./query.js";
import { card, node, notice, updateMarks } from "./card.js";
import { drawDetail } from "./detail.js";
import { describeCondition, drawFilters, drawOrder } from "./filters.js";
import { contactSheet, download, Selection } from "./selection.js";
import { fetchJson, setToken, setTokenRequest, showThumbnail } from "./net.js";
import { addressOf, readState } from "./state.js";

const PAGE_SIZE = 40;
const MAX_RESULTS = 200;
const MAX_EXAMPLES = 6;
const byId = (id) => document.getElementById(id);
const selection = new Selection();
let state = readState();
let libraries = [];
let limit = PAGE_SIZE;
let resultsAbort = new AbortController();

// The state that the filters were drawn for: they are drawn again if it changes, but not while they are in use.
let drawnFor = "";
const filtersFor = (where) => JSON.stringify([currentLibrary(), state.target, where]);
const currentQuery = () => queryName(state);
const acceptsImages = () => libraries.find((one) => one.name === currentLibrary())?.accepts_images;
const currentLibrary = () => state.index || libraries[0]?.name || "";
const isSearch = () => hasQuery(state);

// Query images since the page was opened: no address can hold them, but the history can refer to them.
const queryImages = [];
const visit = performance.timeOrigin;
const historyEntry = () => ({ visit, image: queryImages.indexOf(state.image) });

const handlers = {
  address: (item, target) => addressOf({ ...state, item: item.id, side: target }),
  canVote: () => isTextOnly(state),
  select: (item, index) => { selection.toggle(item, index, currentQuery()); updateBar(); refreshMarks(); },
  isSelected: (item, index) => selection.isSelected(item, index),
  vote: (item, value, index, target) => { selection.vote(item, value, index, state.q, target); updateBar(); },
  voteOf: (item, index, target) => (isTextOnly(state) ? selection.voteOf(item, index, state.q, target) : undefined),
  canNotLike: (item) => isSearch() && item.id !== state.like,
  like: (item, side, target) => navigate({ ...NO_QUERY, like: item.id, like_side: side, target, item: "", side: "" }),
  notLike: (item) => navigate({ not_like: withNotLike(state, item.id), item: "", side: "" }),
  close: () => byId("detail").close(),
  move: (step) => {
    const ids = [...document.querySelectorAll("#columns .card")].map((one) => one.dataset.id);
    const position = ids.indexOf(state.item) + step;
    if (ids[position]) navigate({ item: ids[position], side: state.target }, { replace: true });
  },
};

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
  const idea = acceptsImages() ? "An idea, a headline, or a picture" : "An idea, or a headline";
  byId("q").placeholder = state.image || state.like ? "Words that go with it" : idea;
  byId("signals").value = state.signals;
  byId("private").hidden = !state.image;
  drawPieces(byId("asked"), state, currentLibrary(), (changes) => { navigate(changes); byId("q").focus(); });
  document.querySelector(`input[name=for][value=${state.target}]`).checked = true;
  byId("library").value = currentLibrary();
  byId("compare").value = state.compare;
  byId("filtered").hidden = !state.where.length;
  byId("filtered").textContent = state.where.length;
  document.title = currentQuery() ? `${currentQuery()} · Subtext` : "Subtext";
  detail();
  updateBar();
  if (!byId("filters").hidden && drawnFor !== filtersFor(state.where)) openFilters(true);
  if (reloadResults) await loadResults();
}

// ---- results ----

function shownLibraries() {
  return [...new Set([currentLibrary(), state.compare].filter(Boolean))];
}

async function fetchResults(index, signal) {
  const about = { index, target: state.target, top: limit, where: state.where };
  if (state.order) Object.assign(about, { order: state.order, descending: Boolean(state.descending) });
  const onBusy = (seconds) => { byId("status").textContent = `The server is busy; asking again in ${seconds} s …`; };
  const parameters = searchParameters(state);
  if (state.image) return fetchJson("search", { ...about, ...parameters }, { body: state.image, kind: state.image.type || "image/jpeg", signal, onBusy });
  if (!parameters) return fetchJson("similar", { ...about, id: state.like, side: state.like_side || "images" }, { signal, onBusy });
  if (isSearch()) return fetchJson("search", { ...about, ...parameters }, { signal, onBusy });
  const page = await fetchJson("items", { ...about, top: Math.min(limit, MAX_RESULTS) }, { signal, onBusy });
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
    drawAnswers(await fetchAll(shownLibraries(), signal));
  } catch (error) {
    if (error.name === "AbortError") return;
    byId("columns").replaceChildren();
    byId("status").textContent = "";
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
  const empty = () => Array.from({ length: 8 }, () => node("div", { class: "card" }));
  byId("columns").replaceChildren(...shownLibraries().map(() => node("section", { class: "column", "aria-hidden": "true" },
    node("div", { class: "grid waiting" }, ...empty()))));
}

function drawAnswers(answers) {
  const target = state.target;
  const ranks = answers.map((answer) => new Map(answer.hits.map((hit, row) => [hit.id, row + 1])));
  byId("notice").replaceChildren(...welcomeSection(answers[0]), ...answerNotices(answers));
  byId("columns").replaceChildren(...answers.map((answer, side) => {
    const cards = (answer.fits === false && !answer.showWeak ? [] : answer.hits).map((hit) => card(hit, { index: answer.index, target, handlers, unit: answer.unit, otherRank: otherRank(hit, ranks, side) }));
    const titled = answers.length > 1 || !isSearch();
    const name = answers.length > 1 ? answer.index : state.where.length ? "With these filters" : "In this library";
    return node("section", { class: "column", "aria-label": answers.length > 1 ? answer.index : "Results" },
      titled && answer.hits.length ? node("h2", {}, name) : null,
      node("ul", { class: `grid${target === "texts" ? " words" : ""}`, role: "list" }, ...cards));
  }));
  byId("columns").style.setProperty("--sides", answers.length);
  byId("columns").dataset.sides = answers.length;
  byId("status").textContent = summary(answers);
  byId("title").textContent = isSearch() ? `What goes with ${currentQuery()}` : "Subtext, pictures for words and words for pictures";
  const full = answers.some((answer) => answer.hits.length >= limit && (answer.fits !== false || answer.showWeak));
  byId("more").hidden = !full || limit >= MAX_RESULTS;
}

function summary(answers) {
  if (answers.every((answer) => answer.fits === false && !answer.showWeak)) return "";
  const what = state.target === "texts" ? "text" : "picture";
  const count = (number) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
  if (!isSearch()) return answers[0].total === undefined ? "" : count(answers[0].total);
  const filters = state.where.length ? `, ${state.where.map(describeCondition).join(", ")}` : "";
  const answer = answers.find((one) => !one.error);
  return `The ${count(answer.hits.length)} nearest to ${queryPhrase(state)}, best first${filters}`;
}

function otherRank(hit, ranks, side) {
  if (ranks.length < 2) return null;
  const other = ranks[1 - side].get(hit.id);
  return other ? `number ${other} beside` : "not beside";
}

function welcomeSection(answer) {
  if (isSearch() || state.where.length) return [];
  const short = answer.hits.map((hit) => hit.captions.find((text) => text.length < 32)).filter(Boolean);
  const few = [...new Set(short.filter((_, place) => place % Math.ceil(short.length / MAX_EXAMPLES) === 0))];
  const tries = few.map((words) => node("a", { href: addressOf({ ...state, q: words }), onclick: (event) => {
    event.preventDefault();
    navigate({ q: words });
  } }, words));
  return [node("section", { class: "welcome" }, node("h2", {}, "Pictures for what words mean"),
    node("p", {}, "Ask with an idea, a headline, a feeling, or a picture of your own. What you find goes with it, and need not show it."),
    node("p", { class: "tries" }, ...tries))];
}

function answerNotices(answers) {
  return answers.filter((answer) => answer.fits === false || answer.message).map((answer) => {
    const name = answers.length > 1 ? `${answer.index}: ` : "";
    if (answer.error) return notice(`${name}That did not work`, [answer.error], { isError: true });
    const corrected = Object.entries(answer.did_you_mean || {}).reduce((words, [wrong, right]) => words.replace(new RegExp(wrong, "iu"), right), state.q);
    const tips = corrected === state.q ? [] : [node("a", { href: addressOf({ ...state, q: corrected }), onclick: (event) => { event.preventDefault(); navigate({ q: corrected }); } }, corrected)];
    if (answer.fits !== false) return notice(`${name}Take this with a grain of salt`, [answer.message], { more: tips.length ? [node("p", { class: "tries" }, ...tips)] : [] });
    tips.push(node("a", { href: "./", onclick: (event) => { event.preventDefault(); navigate({ ...NO_QUERY, where: [] }, { reload: true }); } }, "See all of the library"));
    if (state.where.length) tips.unshift(node("a", { href: addressOf({ ...state, where: [] }), onclick: (event) => { event.preventDefault(); navigate({ where: [] }); } }, "Without the filters"));
    if (answer.hits.length && !answer.showWeak) {
      tips.unshift(node("button", { type: "button", onclick: () => { answer.showWeak = true; drawAnswers(answers); } }, "Show what is nearest all the same"));
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
    await drawDetail(dialog, { id: state.item, side: state.side || "images", index: currentLibrary(), handlers, signal });
  } catch (error) {
    if (error.name === "AbortError") return;
    dialog.replaceChildren(node("div", { class: "help" }, node("h2", { id: "detail-title" }, "It cannot be shown"), node("p", {}, sentence(error.message)),
      node("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  }
}

function updateBar() {
  const [selected, judged] = [selection.chosen.size, selection.judged];
  byId("bar").hidden = !selected && !judged;
  byId("chosen").textContent = [selected ? `${selected} selected` : "", judged ? `${judged} judged` : ""].filter(Boolean).join(", ");
  for (const id of ["sheet", "csv"]) byId(id).disabled = !selected;
  byId("qrels").disabled = !judged;
}

function refreshMarks() {
  for (const column of document.querySelectorAll("#columns .column")) {
    for (const one of column.querySelectorAll(".card")) if (one.item) updateMarks(one, handlers, state.target, shownLibraries()[[...byId("columns").children].indexOf(column)]);
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
  navigate({ image: file, ...typedQuery({ alone: false }), like: "", like_side: "", item: "", side: "" });
}

// The words in the box, and the negative words that are shown as pieces.
function typedQuery({ alone = !state.image && !state.like } = {}) {
  const { q, not_text } = splitNegatives(byId("q").value, { alone });
  return { q, not_text: [...new Set([...state.not_text, ...not_text])] };
}

function addListeners() {
  // Without focus in the box, keys act on the hits, and a phone hides its keyboard.
  byId("search").addEventListener("submit", (event) => { event.preventDefault(); byId("q").blur(); navigate(typedQuery(), { reload: true }); });
  byId("home").addEventListener("click", (event) => { event.preventDefault(); navigate({ ...NO_QUERY, item: "", where: [] }, { reload: true }); byId("q").focus(); });
  byId("words").addEventListener("input", () => showWeight(byId("asked"), state));
  byId("words").addEventListener("change", () => navigate({ text_weight: Number(byId("words").value) }, { replace: true }));
  byId("pick").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", () => { searchWithImage(byId("file").files[0]); byId("file").value = ""; });
  for (const one of document.querySelectorAll("input[name=for]")) one.addEventListener("change", () => navigate({ target: one.value, where: [], order: "", descending: "" }));
  byId("library").addEventListener("change", () => navigate({ index: byId("library").value, where: [], order: "", descending: "", like: "", like_side: "", not_like: [] }));
  byId("signals").addEventListener("change", () => navigate({ signals: byId("signals").value }));
  byId("compare").addEventListener("change", () => navigate({ compare: byId("compare").value }));
  byId("filter").addEventListener("click", () => openFilters(byId("filters").hidden));
  byId("more").addEventListener("click", () => { limit = Math.min(MAX_RESULTS, limit + PAGE_SIZE); loadResults(); });
  byId("ask-help").addEventListener("click", () => byId("help").showModal());
  byId("csv").addEventListener("click", () => download("subtext.csv", `\ufeff${selection.csv()}`, "text/csv"));
  byId("sheet").addEventListener("click", downloadContactSheet);
  byId("clear").addEventListener("click", () => { if (selection.chosen.size) selection.clear(); else { selection.votes = {}; localStorage.removeItem("subtext.votes"); } updateBar(); refreshMarks(); });
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
    const linked = readState(new URL(link.href).search);
    navigate({ item: linked.item, side: linked.side });
  });
  window.addEventListener("popstate", (event) => {
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
  if (typing || document.querySelector("dialog[open]")) return;
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
  const cards = [...document.querySelectorAll("#columns .card .open")];
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

async function openFilters(open) {
  byId("filters").hidden = !open;
  byId("filter").setAttribute("aria-expanded", String(open));
  if (!open) return;
  try {
    drawnFor = filtersFor(state.where);
    const about = { target: state.target, index: currentLibrary() };
    const { fields } = await fetchJson("fields", about);
    // Another side or library was chosen meanwhile: its fields are being fetched.
    if (about.target !== state.target || about.index !== currentLibrary()) return;
    const changed = (where, reload) => {
      drawnFor = reload ? "" : filtersFor(where);
      navigate({ where });
    };
    drawFilters(byId("filters"), fields, state.where, changed);
    drawOrder(byId("filters"), fields, state, (order, descending) => navigate({ order, descending }));
  } catch (error) {
    byId("filters").replaceChildren(notice("No filters", [sentence(error.message)], { isError: true }));
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
  byId("compare").replaceChildren(option("", "nothing"), ...names.map((name) => option(name, name)));
  byId("library-label").hidden = byId("compare-label").hidden = names.length < 2;
  // Keys act on the results of an address, as they do after a search.
  if (isSearch() || state.item) byId("q").blur();
  await render();
}

start();
