// Filters from the metadata: values to choose from, ranges of numbers and dates, a part of a text.

import { node } from "./card.js";

const condition = (field, test, value) => JSON.stringify({ field, test, value });

// What the conditions of the address say of one field: {in: [...], ">=": ..., "<=": ..., contains: ...}
function known(where, field) {
  const found = Object.create(null);
  for (const text of where) {
    try {
      const one = JSON.parse(text);
      if (one.field === field) found[one.test] = one.value;
    } catch { /* Typed by hand: it is kept, and shown as it is. */ }
  }
  return found;
}

const typed = (text) => { try { JSON.parse(text); return false; } catch { return true; } };

// Draw the filters; `changed(where, anew)` hears of every change, and whether they have to be drawn anew after it.
export function draw(place, fields, where, changed) {
  const others = () => where.filter(typed);
  const make = (anew = false) => {
    const found = [...others()];
    for (const read of readers) found.push(...read());
    changed(found, anew === true);
  };
  const readers = [];
  place.replaceChildren();
  const text = known(where, "text").contains || "";
  place.append(words("Words in the text", text, "text", readers, make));
  for (const field of fields) {
    if (field.count < 2 && !Object.keys(known(where, field.name)).length) continue;
    const given = known(where, field.name);
    const text = field.kind === "text";
    if (text && field.values.length) place.append(choice(field, given.in || [], readers, make));
    // Only the most common values are listed; the others are typed.
    if (text && field.values.length < field.count) place.append(words(field.name, given.contains || "", field.name, readers, make));
    if (!text) place.append(range(field, given, readers, make));
  }
  for (const one of others()) {
    place.append(node("p", { class: "field" }, node("span", { class: "name" }, "Also "), one, " ", node("button", {
      type: "button", onclick: () => { where = where.filter((each) => each !== one); make(true); },
    }, "Remove")));
  }
  if (where.length) place.append(node("p", { class: "field" }, node("button", { type: "button", onclick: () => changed([], true) }, "Remove all filters")));
}

function choice(field, chosen, readers, make) {
  const boxes = field.values.map(([value, count]) => {
    const box = node("input", { type: "checkbox", value: String(value), checked: chosen.includes(value), onchange: make });
    box.of = value;
    return [box, node("label", { class: "chip" }, box, node("span", {}, String(value), node("b", {}, count.toLocaleString("en"))))];
  });
  readers.push(() => {
    const values = boxes.filter(([box]) => box.checked).map(([box]) => box.of);
    return values.length ? [condition(field.name, "in", values)] : [];
  });
  return node("fieldset", { class: "field" }, node("legend", {}, field.name), node("div", { class: "chips" }, ...boxes.map(([, label]) => label)));
}

function words(label, value, name, readers, make) {
  const input = node("input", { type: "text", value, maxlength: "200", placeholder: "contains", onchange: make });
  readers.push(() => (input.value.trim() ? [condition(name, "contains", input.value.trim())] : []));
  return node("label", { class: "field" }, node("span", { class: "name" }, label), node("br"), input);
}

function range(field, given, readers, make) {
  const type = field.kind === "date" ? "date" : "number";
  const [low, high] = ["from", "to"].map((what, place) => node("input", {
    type, step: type === "number" ? "any" : null, value: given[place ? "<=" : ">="] ?? "",
    placeholder: type === "number" ? String(place ? field.high : field.low) : null,
    "aria-label": `${field.name} ${what}`, onchange: make,
  }));
  const number = (input) => (type === "number" ? Number(input.value) : input.value);
  readers.push(() => [[low, ">="], [high, "<="]].filter(([input]) => input.value !== "")
    .map(([input, test]) => condition(field.name, test, number(input))));
  return node("fieldset", { class: "field" }, node("legend", {}, field.name), node("div", { class: "pair" }, low, node("span", { class: "soft" }, "to"), high));
}

// A condition for people.
export function told(text) {
  try {
    const { field, test, value } = JSON.parse(text);
    return `${field} ${test} ${Array.isArray(value) ? value.join(", ") : value}`;
  } catch {
    return text;
  }
}
