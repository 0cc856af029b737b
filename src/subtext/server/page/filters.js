// Filters from the metadata: values to choose from, ranges of numbers and dates, a part of a text.

import { node } from "./card.js";

const condition = (field, test, value) => JSON.stringify({ field, test, value });

// The conditions of one field: {in: [...], ">=": ..., "<=": ..., contains: ...}
function conditionsOf(where, field) {
  const tests = Object.create(null);
  for (const text of where) {
    try {
      const parsed = JSON.parse(text);
      if (parsed.field === field) tests[parsed.test] = parsed.value;
    } catch { /* Typed by hand: it is kept, and shown as it is. */ }
  }
  return tests;
}

const isTyped = (text) => { try { JSON.parse(text); return false; } catch { return true; } };

// Draw the filters; `changed(where, redraw)` is called with the conditions, and whether the filters have to be drawn again.
export function drawFilters(panel, fields, where, changed) {
  const others = () => where.filter(isTyped);
  const update = (redraw = false) => {
    const conditions = [...others()];
    for (const read of readers) conditions.push(...read());
    changed(conditions, redraw === true);
  };
  const readers = [];
  panel.replaceChildren();
  const text = conditionsOf(where, "text").contains || "";
  panel.append(words("Words in the text", text, "text", readers, update));
  for (const field of fields) {
    if (field.count < 2 && !Object.keys(conditionsOf(where, field.name)).length) continue;
    const current = conditionsOf(where, field.name);
    const text = field.kind === "text";
    if (text && field.values.length) panel.append(choice(field, current.in || [], readers, update));
    // Only the most common values are listed; the others are typed.
    if (text && field.values.length < field.count) panel.append(words(field.name, current.contains || "", field.name, readers, update));
    if (!text) panel.append(range(field, current, readers, update));
  }
  for (const one of others()) {
    panel.append(node("p", { class: "field" }, node("span", { class: "name" }, "Also "), one, " ", node("button", {
      type: "button", onclick: () => { where = where.filter((each) => each !== one); update(true); },
    }, "Remove")));
  }
  if (where.length) panel.append(node("p", { class: "field" }, node("button", { type: "button", onclick: () => changed([], true) }, "Remove all filters")));
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
  return node("fieldset", { class: "field" }, node("legend", {}, field.name), node("div", { class: "chips" }, ...boxes.map(([, label]) => label)));
}

function words(label, value, name, readers, update) {
  const input = node("input", { type: "text", value, maxlength: "200", placeholder: "contains", onchange: update });
  readers.push(() => (input.value.trim() ? [condition(name, "contains", input.value.trim())] : []));
  return node("label", { class: "field" }, node("span", { class: "name" }, label), node("br"), input);
}

function range(field, current, readers, update) {
  // A date may be of any notation: um 1900, 1890s, -0043.
  const type = field.kind === "date" ? "text" : "number";
  const [low, high] = ["from", "to"].map((what, isHigh) => node("input", {
    type, step: type === "number" ? "any" : null, value: current[isHigh ? "<=" : ">="] ?? "",
    placeholder: (isHigh ? field.high : field.low) === null ? null : String(isHigh ? field.high : field.low),
    "aria-label": `${field.name} ${what}`, onchange: update,
  }));
  const number = (input) => (type === "number" ? Number(input.value) : input.value);
  readers.push(() => [[low, ">="], [high, "<="]].filter(([input]) => input.value.trim() !== "")
    .map(([input, test]) => condition(field.name, test, number(input))));
  return node("fieldset", { class: "field" }, node("legend", {}, field.name), node("div", { class: "pair" }, low, node("span", { class: "soft" }, "to"), high));
}

// Draw a choice of orders by the fields with dates; `changed(order, descending)` is called with what was chosen.
export function drawOrder(panel, fields, { order, descending }, changed) {
  const dated = fields.filter((field) => field.kind === "date" || field.name === order);
  if (!dated.length) return;
  const options = [["", "", "by match"]];
  for (const { name } of dated) options.push([name, "", `${name}, earliest first`], [name, "true", `${name}, latest first`]);
  const chosen = options.findIndex(([name, latest]) => name === order && latest === descending);
  const select = node("select", { onchange: () => changed(...options[select.value].slice(0, 2)) },
    ...options.map(([, , label], at) => node("option", { value: String(at), selected: at === chosen }, label)));
  panel.append(node("label", { class: "field" }, node("span", { class: "name" }, "Order"), node("br"), select));
}

// A condition in words.
export function describeCondition(text) {
  try {
    const { field, test, value } = JSON.parse(text);
    return `${field} ${test} ${Array.isArray(value) ? value.join(", ") : value}`;
  } catch {
    return text;
  }
}
