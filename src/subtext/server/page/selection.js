// Kept in this browser alone: selected items until the tab is closed, judgements until they are cleared.

import { caption, lastPart, plain, valueIn } from "./labels.js";

const VOTES = "subtext.votes";
const CHOSEN = "subtext.chosen";

// Objects without a prototype: an item may be called __proto__.
const withoutPrototype = (_, value) => (value && typeof value === "object" && !Array.isArray(value) ? Object.assign(Object.create(null), value) : value);

function load(store, name) {
  try { return JSON.parse(store.getItem(name), withoutPrototype) || {}; } catch { return {}; }
}

function save(store, name, value) {
  try { store.setItem(name, JSON.stringify(value)); } catch { /* Full, or forbidden: it lasts as long as the page. */ }
}

export class Selection {
  constructor() {
    this.chosen = new Map(Object.entries(load(sessionStorage, CHOSEN)));
    this.votes = load(localStorage, VOTES);
  }

  key(item, index) { return `${index}\n${item.id}`; }

  isSelected(item, index) { return this.chosen.has(this.key(item, index)); }

  toggle(item, index, query) {
    const key = this.key(item, index);
    if (!this.chosen.delete(key)) this.chosen.set(key, { item, index, query });
    save(sessionStorage, CHOSEN, Object.fromEntries(this.chosen));
  }

  // All of some items, each with its library.
  add(rows, query) {
    for (const { item, index } of rows) if (!this.isSelected(item, index)) this.chosen.set(this.key(item, index), { item, index, query });
    save(sessionStorage, CHOSEN, Object.fromEntries(this.chosen));
  }

  clear() {
    this.chosen.clear();
    save(sessionStorage, CHOSEN, {});
  }

  // Keep a judgement: 1, 0, or null for none any more.
  vote(id, value, index, query, target) {
    const name = `${index}\n${target}\n${query}`;
    const entry = this.votes[name] || { index, target, query, items: Object.create(null) };
    if (value === null) delete entry.items[id];
    else entry.items[id] = value;
    if (Object.keys(entry.items).length) this.votes[name] = entry;
    else delete this.votes[name];
    save(localStorage, VOTES, this.votes);
  }

  forget() {
    this.votes = {};
    save(localStorage, VOTES, this.votes);
  }

  get judged() { return Object.values(this.votes).reduce((sum, entry) => sum + Object.keys(entry.items).length, 0); }

  // Judgements as a table of query, item and grade, and the queries by name: what `qrels` are.
  qrels() {
    const queries = [];
    const rows = ["query-id\tcorpus-id\tscore"];
    for (const entry of Object.values(this.votes)) {
      const id = `q${queries.length + 1}`;
      queries.push(JSON.stringify({ _id: id, text: entry.query, index: entry.index, target: entry.target }));
      for (const [item, grade] of Object.entries(entry.items)) rows.push(`${id}\t${item.replaceAll(/[\t\n\r]/g, " ")}\t${grade}`);
    }
    return { qrels: `${rows.join("\n")}\n`, queries: `${queries.join("\n")}\n` };
  }

  // One row an item: credit and licence beside it, then all metadata.
  csv() {
    const rows = [...this.chosen.values()];
    const first = ["library", "id", "file", "captions", "credit", "licence", "score", "query"];
    const more = [...new Set(rows.flatMap(({ item }) => Object.keys(item.metadata)))].filter((name) => !first.includes(name));
    const lines = rows.map(({ item, index, query }) => [
      index, item.id, item.file, item.captions.join(" | "), valueIn(item, "credit"), valueIn(item, "licence"), item.score ?? "", query,
      // A field may be called as what every object has, such as __proto__.
      ...more.map((name) => (Object.hasOwn(item.metadata, name) ? plain(item.metadata[name]) : "")),
    ]);
    return `${[[...first, ...more], ...lines].map((line) => line.map(cell).join(",")).join("\r\n")}\r\n`;
  }
}

export const credit = (item) => [valueIn(item, "credit"), valueIn(item, "licence")].filter(Boolean).join(", ");

// A cell that a spreadsheet would take for a formula begins with an apostrophe; some read full-width signs as signs, too.
function cell(value) {
  const text = String(value ?? "");
  const safe = /^[=+\-@＝＋－＠\t\r\n]/.test(text) && !/^-?[\d.]+(e-?\d+)?$/i.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function download(name, data, kind) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(data instanceof Blob ? data : new Blob([data], { type: kind }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// One image of all selected images, with words and credits below each.
export async function contactSheet(rows, load) {
  const wide = Math.min(4, rows.length);
  const [width, height, gap] = [300, 300, 24];
  const canvas = document.createElement("canvas");
  canvas.width = wide * (width + gap) + gap;
  canvas.height = Math.ceil(rows.length / wide) * (height + gap) + gap;
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  for (const [number, { item, index }] of rows.entries()) {
    const [left, top] = [gap + (number % wide) * (width + gap), gap + Math.floor(number / wide) * (height + gap)];
    const image = item.image_id ? await load(item.image_id, index) : null;
    if (image) {
      const share = Math.min(width / image.width, 220 / image.height);
      pen.drawImage(image, left + (width - image.width * share) / 2, top + (220 - image.height * share) / 2, image.width * share, image.height * share);
    }
    pen.fillStyle = "#1b1f24";
    pen.font = "15px sans-serif";
    lines(pen, caption(item), width, 2).forEach((line, row) => pen.fillText(line, left, top + 242 + 19 * row));
    pen.fillStyle = "#59616c";
    pen.font = "12px sans-serif";
    pen.fillText(lines(pen, [lastPart(item.file || item.id), credit(item)].filter(Boolean).join(" · "), width, 1)[0] || "", left, top + 284);
  }
  return new Promise((done) => { canvas.toBlob(done, "image/png"); });
}

function lines(pen, text, width, most) {
  const rows = [""];
  for (const word of text.split(/\s+/)) {
    const longer = `${rows.at(-1)} ${word}`.trim();
    if (!rows.at(-1) || pen.measureText(longer).width <= width) rows[rows.length - 1] = longer;
    else if (rows.length < most) rows.push(word);
    else { rows[most - 1] += " …"; break; }
  }
  return rows;
}
