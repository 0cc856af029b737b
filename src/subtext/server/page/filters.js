// Filters from the metadata: values to choose from, ranges of numbers and years, a part of a text.

import { node } from "./card.js";
import { fieldLabel, fieldRank } from "./labels.js";

const condition = (field, test, value) => JSON.stringify({ field, test, value });
const NAMES = { text: "Text", id: "Id" };

function parsed(text) {
  try {
    const { field, test, value } = JSON.parse(text);
    return field === undefined ? null : { field, test, value };
  } catch {
    return null;  // Typed by hand: it is kept, and shown as it is.
  }
}

// The conditions of one field: {in: [...], ">=": ..., "<=": ..., contains: ...}
function conditionsOf(where, field) {
  const tests = Object.create(null);
  for (const one of where.map(parsed)) if (one?.field === field) tests[one.test] = one.value;
  return tests;
}

// Draw the filters; `changed(where)` is called with the conditions.
export function drawFilters(panel, fields, where, changed) {
  const typed = where.filter((one) => !parsed(one));
  const readers = [];
  const update = () => changed([...typed, ...readers.flatMap((read) => read())]);
  panel.replaceChildren();
  panel.append(words("Words in the text", conditionsOf(where, "text").contains || "", "text", readers, update));
  const drawn = new Set(["text"]);
  for (const field of [...fields].sort((one, other) => fieldRank(one) - fieldRank(other))) {
    const current = conditionsOf(where, field.name);
    if (field.count < 2 && !Object.keys(current).length) continue;
    drawn.add(field.name);
    const isText = field.kind === "text";
    if (isText && field.values.length) panel.append(choice(field, current.in || [], readers, update));
    // Only the most common values are listed; the others are typed.
    if (isText && field.values.length < field.count) {
      const label = field.values.length ? `${fieldLabel(field.name)}, other` : fieldLabel(field.name);
      panel.append(words(label, current.contains || "", field.name, readers, update));
    }
    if (!isText) panel.append(range(field, current, readers, update));
  }
  // Conditions of an address that no control shows stay.
  typed.push(...where.filter((one) => parsed(one) && !drawn.has(parsed(one).field)));
}

function choice(field, chosen, readers, update) {
  const boxes = field.values.map(([value, count]) => {
    const box = node("input", { type: "checkbox", value: String(value), checked: chosen.includes(value), onchange: update });
    box.fieldValue = value;
    return [box, node("label", { class: "chip" }, box, node("span", {}, String(value), node("b", {}, count.toLocaleString("en"))))];
  });
  readers.push(() => {
    const values = boxes.filter(([box]) => box.checked).map(([box]) => box.fieldValue);
    return values.length ? [condition(field.name, "in", values)] : [];
  });
  return node("fieldset", { class: "field" }, node("legend", {}, fieldLabel(field.name)), node("div", { class: "chips" }, ...boxes.map(([, label]) => label)));
}

function words(label, value, name, readers, update) {
  const input = node("input", { type: "text", value, maxlength: "200", placeholder: "contains", onchange: update });
  readers.push(() => (input.value.trim() ? [condition(name, "contains", input.value.trim())] : []));
  return node("label", { class: "field" }, node("span", { class: "name" }, label), input);
}

// The year of a date as the server writes it: "1950-01-05", "-0043-03-15".
const yearOf = (date) => (date === null || date === undefined ? null : /^-?\d+/.exec(String(date))?.[0].replace(/^(-?)0+(?=\d)/, "$1") ?? null);

function range(field, current, readers, update) {
  const isDate = field.kind === "date";
  const label = fieldLabel(field.name);
  const bound = (value) => (value === null || value === undefined ? null : isDate ? yearOf(value) : String(value));
  // A year is enough; a date of any notation is understood: um 1900, 1890s, 12.5.1951.
  const [low, high] = ["from", "to"].map((what, isHigh) => node("input", {
    type: isDate ? "text" : "number", step: isDate ? null : "any", value: current[isHigh ? "<=" : ">="] ?? "",
    placeholder: bound(isHigh ? field.high : field.low), "aria-label": `${label} ${what}${isDate ? " (a year or a date)" : ""}`, onchange: update,
  }));
  readers.push(() => [[low, ">="], [high, "<="]].filter(([input]) => input.value.trim() !== "")
    .map(([input, test]) => condition(field.name, test, isDate ? input.value.trim() : Number(input.value))));
  return node("fieldset", { class: "field" }, node("legend", {}, label), node("div", { class: "pair" }, low, node("span", { class: "soft" }, "to"), high));
}

// The orders of an archive: [{value, label, order, descending}], by its fields with dates.
export function ordersOf(fields, { order, isSearch }) {
  const dated = fields.filter((field) => field.kind === "date" || field.name === order).map((field) => field.name);
  const orders = [{ order: "", descending: "", label: isSearch ? "relevance" : "as added" }];
  for (const name of dated) {
    const label = dated.length > 1 ? `${fieldLabel(name)}, ` : "";
    orders.push({ order: name, descending: "true", label: `${label}newest first` }, { order: name, descending: "", label: `${label}oldest first` });
  }
  return orders;
}

const TESTS = { "=": "", in: "", "!=": "not ", contains: "contains ", ">=": "from ", "<=": "to ", ">": "after ", "<": "before " };

// The conditions as chips, each with the conditions that stay without it: [{label, without}].
export function chipsOf(where) {
  return where.flatMap((text, place) => {
    const rest = where.filter((_, other) => other !== place);
    const one = parsed(text);
    if (!one) return [{ label: text, without: rest }];
    const name = NAMES[one.field] || fieldLabel(one.field);
    const values = Array.isArray(one.value) ? one.value : [one.value];
    const label = (value) => `${name}: ${TESTS[one.test] ?? `${one.test} `}${one.test === "contains" ? `“${value}”` : value}`;
    if (one.test !== "in") return [{ label: label(values.join(", ")), without: rest }];
    return values.map((value) => {
      const others = values.filter((other) => other !== value);
      return { label: label(value), without: others.length ? where.with(place, condition(one.field, "in", others)) : rest };
    });
  });
}
