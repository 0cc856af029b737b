// Words of people for the columns of an archive, and which column is the date, the place and the credit of a picture.

const SPOKEN = {
  byline: "Photographer", by_line: "Photographer", artist: "Artist", creator: "Creator", date_taken: "Date taken", datetimeoriginal: "Date taken",
  date_time_original: "Date taken", datecreated: "Date", date_created: "Date", usage_terms: "Usage terms", usageterms: "Usage terms",
  objectname: "Title", sublocation: "Place", sub_location: "Place", split: "Part of the data", captionwriter: "Caption by",
};
const ROLES = {
  date: ["date", "date_taken", "taken", "taken_on", "datetimeoriginal", "date_time_original", "date_created", "datecreated", "created", "year",
    "datum", "datierung", "aufnahmedatum", "jahr", "date_de_prise_de_vue", "annee", "année"],
  place: ["place", "location", "sublocation", "city", "town", "ort", "stadt", "aufnahmeort", "lieu", "ville", "country"],
  credit: ["credit", "byline", "by_line", "photographer", "author", "artist", "creator", "fotograf", "fotografin", "photographe", "source"],
  licence: ["licence", "license", "rights", "copyright", "usage_terms", "usageterms"],
};

const plainName = (name) => name.replace(/^.*[:.](?=\p{L})/u, "").replace(/(\p{Ll})(\p{Lu})/gu, "$1_$2").replace(/[\s_-]+/g, "_").toLowerCase();

// "date_taken" -> "Date taken", "dc:usageTerms" -> "Usage terms"
export function fieldLabel(name) {
  const words = plainName(name).replaceAll("_", " ").trim();
  return SPOKEN[plainName(name)] || (words ? words.charAt(0).toUpperCase() + words.slice(1) : name);
}

export const plain = (value) => (value === undefined || value === null ? "" : Array.isArray(value) ? value.join("; ") : typeof value === "object" ? JSON.stringify(value) : String(value));

// The value of an item in a role: "date", "place", "credit" or "licence"; "" for none.
export function valueIn(item, role) {
  const named = new Map(Object.entries(item.metadata || {}).map(([name, value]) => [plainName(name), value]));
  const name = ROLES[role].find((one) => plain(named.get(one)) !== "");
  const value = name === undefined ? "" : plain(named.get(name));
  // Of a time that a camera or a desk has written, a card shows the day.
  return role === "date" ? value.replace(/^(\d{4}-\d{2}-\d{2})[T ]\d{2}:\d{2}.*$/, "$1") : value;
}

// Where a column stands among the filters: date, place and people first, then others, last whom a picture belongs to.
export function fieldRank({ name, kind }) {
  if (isLegal(name)) return 4;
  if (kind === "date" || ROLES.date.includes(plainName(name))) return 0;
  if (ROLES.place.includes(plainName(name))) return 1;
  return ROLES.credit.includes(plainName(name)) ? 2 : 3;
}

// Whether a column says whom a picture belongs to.
export const isLegal = (name) => ROLES.licence.includes(plainName(name)) || ["credit", "source"].includes(plainName(name));

// "photos/1958/a_b.jpg" -> "a_b.jpg"
export const lastPart = (path) => path.split(/[/\\]/).filter(Boolean).at(-1) || path;

// What an item is called: its first caption, or the last part of its path.
export const caption = (item) => item.captions[0] || lastPart(item.file || item.id);

// Date, place and credit of an item, as far as the archive has them.
export const about = (item) => [...new Set(["date", "place", "credit"].map((role) => valueIn(item, role)).filter(Boolean))];

export const plural = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
