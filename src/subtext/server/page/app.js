// The page: the address says what is shown, every change goes through it, and the server is asked for the rest.

import { draw as drawAsked, further, name, NOTHING, phrase, plain, question, split, texted, told as toldWeight, wanted } from "./query.js";
import { card, mark, node, notice } from "./card.js";
import { draw as drawDetail } from "./detail.js";
import { draw as drawFilters, told as toldCondition } from "./filters.js";
import { download, Selection, sheet } from "./selection.js";
import { ask, door, setToken, show } from "./net.js";
import { read, written } from "./state.js";

const FIRST = 40;
const MOST = 200;
const TRIES = 6;
const by = (id) => document.getElementById(id);
const selection = new Selection();
let state = read();
let libraries = [];
let top_ = FIRST;
let stop = new AbortController();

// What the filters were drawn for: they are drawn anew when that changes, not while somebody uses them.
let drawnFor = "";
const filtersFor = (where) => JSON.stringify([home(), state.target, where]);
const asked = () => name(state);
const takesPictures = () => libraries.find((one) => one.name === home())?.asks_pictures;
const home = () => state.index || libraries[0]?.name || "";
const searching = () => wanted(state);

// Pictures that were asked with since the page was opened: no address can hold them, but the way back can name them.
const pictures = [];
const visit = performance.timeOrigin;
const place = () => ({ visit, picture: pictures.indexOf(state.picture) });

const acts = {
  address: (item, target) => written({ ...state, item: item.id, side: target }),
  canVote: () => plain(state),
  select: (item, index) => { selection.toggle(item, index, asked()); bar(); marks(); },
  taken: (item, index) => selection.taken(item, index),
  vote: (item, value, index, target) => { selection.vote(item, value, index, state.q, target); bar(); },
  voted: (item, index, target) => (plain(state) ? selection.voted(item, index, state.q, target) : undefined),
  asking: (item) => searching() && item.id !== state.like,
  like: (item, side, target) => go({ ...NOTHING, like: item.id, likeside: side, target, item: "", side: "" }),
  unlike: (item) => go({ unlike: further(state, item.id), item: "", side: "" }),
  close: () => by("detail").close(),
  move: (step) => {
    const ids = [...document.querySelectorAll("#columns .card")].map((one) => one.dataset.id);
    const place = ids.indexOf(state.item) + step;
    if (ids[place]) go({ item: ids[place], side: state.target }, { replace: true });
  },
};

function go(changes, { replace = false, anew = false } = {}) {
  const before = state;
  state = { ...state, ...changes };
  // To be unlike something is only a part of a question.
  if (!searching()) Object.assign(state, { unlike: [], without: [] });
  history[replace ? "replaceState" : "pushState"](place(), "", written(state));
  const same = before.picture === state.picture && written({ ...before, item: "", side: "" }) === written({ ...state, item: "", side: "" });
  const alike = same && !anew;
  if (!alike) top_ = FIRST;
  render({ again: !alike });
}

async function render({ again = true } = {}) {
  by("q").value = state.q;
  by("pick").hidden = !takesPictures();
  const idea = takesPictures() ? "An idea, a headline, or a picture" : "An idea, or a headline";
  by("q").placeholder = state.picture || state.like ? "Words that go with it" : idea;
  by("exact").value = state.exact;
  by("captions").checked = Boolean(state.captions);
  by("captions-label").hidden = !texted(state) || !libraries.some((one) => one.texts && sides().includes(one.name));
  by("private").hidden = !state.picture;
  drawAsked(by("asked"), state, home(), (changes) => { go(changes); by("q").focus(); });
  document.querySelector(`input[name=for][value=${state.target}]`).checked = true;
  by("library").value = home();
  by("compare").value = state.compare;
  by("filtered").hidden = !state.where.length;
  by("filtered").textContent = state.where.length;
  document.title = asked() ? `${asked()} · Subtext` : "Subtext";
  detail();
  bar();
  if (!by("filters").hidden && drawnFor !== filtersFor(state.where)) openFilters(true);
  if (again) await results();
}

// ---- results ----

function sides() {
  return [...new Set([home(), state.compare].filter(Boolean))];
}

async function found(index, signal) {
  const about = { index, target: state.target, top: top_, where: state.where };
  const told = (seconds) => { by("status").textContent = `The server is busy; asking again in ${seconds} s …`; };
  const own = question(state);
  if (state.picture) return ask("/search", { ...about, ...own }, { body: state.picture, kind: state.picture.type || "image/jpeg", signal, told });
  if (!own) return ask("/similar", { ...about, id: state.like, side: state.likeside || "images" }, { signal, told });
  if (searching()) return ask("/search", { ...about, ...own }, { signal, told });
  const page = await ask("/items", { ...about, top: Math.min(top_, MOST) }, { signal, told });
  return { index, hits: page.items, total: page.total, fits: page.total ? null : false, message: page.total ? null : "Nothing in this library fulfils these conditions.", unknown_words: [] };
}

// The answer of each library. Where one of two refuses, an item that it does not have, say, the other still answers.
async function each(names, signal) {
  const told = await Promise.allSettled(names.map((index) => found(index, signal)));
  const problems = told.map((one) => one.reason);
  const worst = problems.find((one) => one?.name === "AbortError") || (problems.every(Boolean) && problems[0]);
  if (worst) throw worst;
  return told.map((one, side) => one.value || { index: names[side], hits: [], fits: false, refused: sentence(one.reason.message) });
}

async function results() {
  stop.abort();
  stop = new AbortController();
  const { signal } = stop;
  by("columns").setAttribute("aria-busy", "true");
  by("notice").replaceChildren();
  by("more").hidden = true;
  if (top_ === FIRST) waiting();
  by("status").textContent = searching() ? "Searching …" : "";
  try {
    drawAnswers(await each(sides(), signal));
  } catch (error) {
    if (error.name === "AbortError") return;
    by("columns").replaceChildren();
    by("status").textContent = "";
    by("notice").replaceChildren(notice("That did not work", [sentence(error.message)], { wrong: true, more: [
      node("p", { class: "tries" }, node("button", { type: "button", onclick: () => results() }, "Try again"))] }));
  } finally {
    if (!signal.aborted) by("columns").removeAttribute("aria-busy");
  }
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

function waiting() {
  by("columns").style.setProperty("--sides", sides().length);
  by("columns").dataset.sides = sides().length;
  const empty = () => Array.from({ length: 8 }, () => node("div", { class: "card" }));
  by("columns").replaceChildren(...sides().map(() => node("section", { class: "column", "aria-hidden": "true" },
    node("div", { class: "grid waiting" }, ...empty()))));
}

function drawAnswers(answers) {
  const target = state.target;
  const places = answers.map((answer) => new Map(answer.hits.map((hit, place) => [hit.id, place + 1])));
  by("notice").replaceChildren(...welcome(answers[0]), ...kindly(answers));
  by("columns").replaceChildren(...answers.map((answer, side) => {
    const cards = (answer.fits === false && !answer.anyway ? [] : answer.hits).map((hit) => card(hit, { index: answer.index, target, acts, unit: answer.unit, beside: beside(hit, places, side) }));
    const titled = answers.length > 1 || !searching();
    const name = answers.length > 1 ? answer.index : state.where.length ? "With these filters" : "In this library";
    return node("section", { class: "column", "aria-label": answers.length > 1 ? answer.index : "Results" },
      titled && answer.hits.length ? node("h2", {}, name) : null,
      node("ul", { class: `grid${target === "texts" ? " words" : ""}`, role: "list" }, ...cards));
  }));
  by("columns").style.setProperty("--sides", answers.length);
  by("columns").dataset.sides = answers.length;
  by("status").textContent = summary(answers);
  by("title").textContent = searching() ? `What goes with ${asked()}` : "Subtext, pictures for words and words for pictures";
  const full = answers.some((answer) => answer.hits.length >= top_ && (answer.fits !== false || answer.anyway));
  by("more").hidden = !full || top_ >= MOST;
}

function summary(answers) {
  if (answers.every((answer) => answer.fits === false && !answer.anyway)) return "";
  const what = state.target === "texts" ? "text" : "picture";
  const count = (number) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
  if (!searching()) return answers[0].total === undefined ? "" : count(answers[0].total);
  const filters = state.where.length ? `, ${state.where.map(toldCondition).join(", ")}` : "";
  const answer = answers.find((one) => !one.refused);
  return `The ${count(answer.hits.length)} nearest to ${phrase(state)}, best first${filters}`;
}

function beside(hit, places, side) {
  if (places.length < 2) return null;
  const other = places[1 - side].get(hit.id);
  return other ? `number ${other} beside` : "not beside";
}

function welcome(answer) {
  if (searching() || state.where.length) return [];
  const short = answer.hits.map((hit) => hit.captions.find((text) => text.length < 32)).filter(Boolean);
  const few = [...new Set(short.filter((_, place) => place % Math.ceil(short.length / TRIES) === 0))];
  const tries = few.map((words) => node("a", { href: written({ ...state, q: words }), onclick: (event) => {
    event.preventDefault();
    go({ q: words });
  } }, words));
  return [node("section", { class: "welcome" }, node("h2", {}, "Pictures for what words mean"),
    node("p", {}, "Ask with an idea, a headline, a feeling, or a picture of your own. What you find goes with it, and need not show it."),
    node("p", { class: "tries" }, ...tries))];
}

function kindly(answers) {
  return answers.filter((answer) => answer.fits === false || answer.message).map((answer) => {
    const name = answers.length > 1 ? `${answer.index}: ` : "";
    if (answer.refused) return notice(`${name}That did not work`, [answer.refused], { wrong: true });
    const meant = Object.entries(answer.did_you_mean || {}).reduce((words, [wrong, right]) => words.replace(new RegExp(wrong, "iu"), right), state.q);
    const tips = meant === state.q ? [] : [node("a", { href: written({ ...state, q: meant }), onclick: (event) => { event.preventDefault(); go({ q: meant }); } }, meant)];
    const title = answer.exact_words?.length ? "Exact words count here" : "Take this with a grain of salt";
    if (answer.fits !== false) return notice(`${name}${title}`, [answer.message], { more: tips.length ? [node("p", { class: "tries" }, ...tips)] : [] });
    tips.push(node("a", { href: "/", onclick: (event) => { event.preventDefault(); go({ ...NOTHING, where: [] }, { anew: true }); } }, "See all of the library"));
    if (state.where.length) tips.unshift(node("a", { href: written({ ...state, where: [] }), onclick: (event) => { event.preventDefault(); go({ where: [] }); } }, "Without the filters"));
    if (answer.hits.length && !answer.anyway) {
      tips.unshift(node("button", { type: "button", onclick: () => { answer.anyway = true; drawAnswers(answers); } }, "Show what is nearest all the same"));
    }
    const below = answer.anyway ? "What is nearest all the same stands below." : "Other words, or fewer, may find something.";
    return notice(`${name}Nothing here fits${plain(state) ? ` “${state.q}”` : ""}`, [answer.message, below], { more: [node("p", { class: "tries" }, ...tips)] });
  });
}

// ---- detail, selection, judgements ----

let detailStop = new AbortController();
let shownItem = "";

async function detail() {
  const dialog = by("detail");
  const wanted = state.item ? `${state.side || "images"}\n${state.item}` : "";
  if (wanted === shownItem) return;
  shownItem = wanted;
  detailStop.abort();
  detailStop = new AbortController();
  const { signal } = detailStop;
  if (!wanted) {
    if (dialog.open) dialog.close();
    return;
  }
  if (!dialog.open) dialog.showModal();
  try {
    await drawDetail(dialog, { id: state.item, side: state.side || "images", index: home(), acts, signal });
  } catch (error) {
    if (error.name === "AbortError") return;
    dialog.replaceChildren(node("div", { class: "help" }, node("h2", { id: "detail-title" }, "It cannot be shown"), node("p", {}, sentence(error.message)),
      node("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  }
}

function bar() {
  const [many, judged] = [selection.chosen.size, selection.judged];
  by("bar").hidden = !many && !judged;
  by("chosen").textContent = [many ? `${many} selected` : "", judged ? `${judged} judged` : ""].filter(Boolean).join(", ");
  for (const id of ["sheet", "csv"]) by(id).disabled = !many;
  by("qrels").disabled = !judged;
}

function marks() {
  for (const column of document.querySelectorAll("#columns .column")) {
    for (const one of column.querySelectorAll(".card")) if (one.item) mark(one, acts, state.target, sides()[[...by("columns").children].indexOf(column)]);
  }
}

async function contactSheet() {
  const load = (id, index) => new Promise((done) => {
    const image = new Image();
    image.onload = () => done(image);
    image.onerror = () => done(null);
    setTimeout(() => done(null), 10_000);
    show(image, id, 320, index);
  });
  by("sheet").disabled = true;
  download("contact-sheet.png", await sheet([...selection.chosen.values()], load), "image/png");
  bar();
}

// ---- what people do ----

function ownPicture(file) {
  if (!takesPictures() || !file || !file.type.startsWith("image/")) {
    const [title, advice] = takesPictures() ? ["That is no picture", "Drop, paste or choose a JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF."]
      : ["This library takes no pictures", "Its model reads features that were computed before. Ask with words, or with an item of the library."];
    by("notice").replaceChildren(notice(title, [advice], { wrong: true }));
    return;
  }
  pictures.push(file);
  // Words that stand in the box go with it, asked for already or not.
  go({ picture: file, ...typed({ alone: false }), like: "", likeside: "", item: "", side: "" });
}

// What stands in the box, and what was taken out of it before.
function typed({ alone = !state.picture && !state.like } = {}) {
  const { q, without } = split(by("q").value, { alone });
  return { q, without: [...new Set([...state.without, ...without])] };
}

function listen() {
  // Keys then act on the hits, and a phone shows them in the place of its keyboard.
  by("search").addEventListener("submit", (event) => { event.preventDefault(); by("q").blur(); go(typed(), { anew: true }); });
  by("home").addEventListener("click", (event) => { event.preventDefault(); go({ ...NOTHING, item: "", where: [] }, { anew: true }); by("q").focus(); });
  by("words").addEventListener("input", () => toldWeight(by("asked"), state));
  by("words").addEventListener("change", () => go({ words: Number(by("words").value) }, { replace: true }));
  by("pick").addEventListener("click", () => by("file").click());
  by("file").addEventListener("change", () => { ownPicture(by("file").files[0]); by("file").value = ""; });
  for (const one of document.querySelectorAll("input[name=for]")) one.addEventListener("change", () => go({ target: one.value, where: [] }));
  by("library").addEventListener("change", () => go({ index: by("library").value, where: [], like: "", likeside: "", unlike: [] }));
  by("exact").addEventListener("change", () => go({ exact: by("exact").value }));
  by("captions").addEventListener("change", () => go({ captions: by("captions").checked ? "true" : "" }));
  by("compare").addEventListener("change", () => go({ compare: by("compare").value }));
  by("filter").addEventListener("click", () => openFilters(by("filters").hidden));
  by("more").addEventListener("click", () => { top_ = Math.min(MOST, top_ + FIRST); results(); });
  by("ask-help").addEventListener("click", () => by("help").showModal());
  by("csv").addEventListener("click", () => download("subtext.csv", `\ufeff${selection.csv()}`, "text/csv"));
  by("sheet").addEventListener("click", contactSheet);
  by("clear").addEventListener("click", () => { if (selection.chosen.size) selection.clear(); else { selection.votes = {}; localStorage.removeItem("subtext.votes"); } bar(); marks(); });
  by("qrels").addEventListener("click", () => {
    const { qrels, queries } = selection.qrels();
    download("qrels.tsv", qrels, "text/tab-separated-values");
    download("queries.jsonl", queries, "application/jsonl");
  });
  by("detail").addEventListener("close", () => { if (state.item) go({ item: "", side: "" }); });
  by("detail").addEventListener("click", (event) => { if (event.target === by("detail")) by("detail").close(); });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a.open");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const wanted = read(new URL(link.href).search);
    go({ item: wanted.item, side: wanted.side });
  });
  window.addEventListener("popstate", (event) => {
    const picture = event.state?.visit === visit ? pictures[event.state.picture] : null;
    state = { ...read(), picture: picture || null };
    top_ = FIRST;
    render();
  });
  document.addEventListener("paste", (event) => {
    const file = [...(event.clipboardData?.files || [])][0];
    if (file) { event.preventDefault(); ownPicture(file); }
  });
  dropping();
  document.addEventListener("keydown", keys);
}

function dropping() {
  let deep = 0;
  const has = (event) => [...(event.dataTransfer?.types || [])].includes("Files");
  document.addEventListener("dragenter", (event) => { if (has(event)) { deep += 1; by("drop").hidden = false; } });
  document.addEventListener("dragleave", (event) => { if (has(event)) { deep -= 1; by("drop").hidden = deep <= 0; } });
  document.addEventListener("dragover", (event) => { if (has(event)) event.preventDefault(); });
  document.addEventListener("drop", (event) => {
    if (!has(event)) return;
    event.preventDefault();
    deep = 0;
    by("drop").hidden = true;
    ownPicture(event.dataTransfer.files[0]);
  });
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // The box has the focus at the start; the key that leads there is no word.
  if (event.key === "/" && document.activeElement === by("q") && !by("q").value) event.preventDefault();
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName || "");
  if (by("detail").open) {
    if (event.key === "ArrowLeft" && !typing && !document.activeElement.closest(".strip")) acts.move(-1);
    if (event.key === "ArrowRight" && !typing && !document.activeElement.closest(".strip")) acts.move(1);
    return;
  }
  if (typing || document.querySelector("dialog[open]")) return;
  if (event.key === "/") { event.preventDefault(); by("q").focus(); by("q").select(); return; }
  if (event.key === "?") { by("help").showModal(); return; }
  const here = document.activeElement?.closest?.("#columns .card");
  if (event.key.startsWith("Arrow")) { move(here, event); return; }
  if (!here) return;
  const tool = { s: ".select", "+": ".up", "-": ".down" }[event.key];
  here.querySelector(`.tool${tool || ".nothing"}`)?.click();
}

// From card to card, by where they stand on the screen.
function move(here, event) {
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
  by("filters").hidden = !open;
  by("filter").setAttribute("aria-expanded", String(open));
  if (!open) return;
  try {
    drawnFor = filtersFor(state.where);
    const about = { target: state.target, index: home() };
    const { fields } = await ask("/fields", about);
    // Another side or library was chosen meanwhile: its own fields are on their way.
    if (about.target !== state.target || about.index !== home()) return;
    const changed = (where, anew) => {
      drawnFor = anew ? "" : filtersFor(where);
      go({ where });
    };
    drawFilters(by("filters"), fields, state.where, changed);
  } catch (error) {
    by("filters").replaceChildren(notice("No filters", [sentence(error.message)], { wrong: true }));
  }
}

let opening = null;

door.open = () => {
  opening ||= new Promise((done) => {
    by("token").showModal();
    by("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      setToken(by("token-text").value.trim());
      by("token-text").value = "";
      by("token").close();
      opening = null;
      done();
    }, { once: true });
  });
  return opening;
};

async function start() {
  listen();
  try {
    libraries = (await ask("/libraries")).libraries;
  } catch (error) {
    by("notice").replaceChildren(notice("The library cannot be opened", [sentence(error.message)], { wrong: true }));
    return;
  }
  const names = libraries.map((one) => one.name);
  const option = (value, words) => node("option", { value }, words);
  by("library").replaceChildren(...names.map((name) => option(name, name)));
  by("compare").replaceChildren(option("", "nothing"), ...names.map((name) => option(name, name)));
  by("library-label").hidden = by("compare-label").hidden = names.length < 2;
  // Keys act on what an address asks for, as they do after a search.
  if (searching() || state.item) by("q").blur();
  await render();
}

start();
