// A justified grid: rows of equal height that fill the width, each picture in its own shape; and copies as one card.

const [NARROWEST, WIDEST, UNKNOWN] = [0.55, 2.8, 4 / 3];
const MOST_STRETCH = 1.45;
const CELLS = 16;
const [MEAN_DIFFERENCE, LARGEST_DIFFERENCE, FLAT] = [3, 26, 5];

const shapes = new Map();  // Of pictures that were loaded before.
const prints = new Map();

const keyOf = (card) => `${card.library}\n${card.item.image_id}`;

// Note the shape and the print of a picture that has been loaded.
export function loaded(card, image) {
  if (!image.naturalWidth) return;
  shapes.set(keyOf(card), image.naturalWidth / image.naturalHeight);
  if (!prints.has(keyOf(card))) prints.set(keyOf(card), printOf(image));
}

// The rows of shapes (width by height) in a width: [{count, height}]. The last row is not stretched.
export function rowsOf(ratios, width, height, gap) {
  const rows = [];
  let [start, sum] = [0, 0];
  for (let at = 0; at < ratios.length; at += 1) {
    sum += ratios[at];
    const count = at + 1 - start;
    const own = (width - gap * (count - 1)) / sum;
    if (own > height) continue;
    // One picture fewer, if that is nearer to the height.
    const before = count > 1 ? (width - gap * (count - 2)) / (sum - ratios[at]) : Infinity;
    if (before - height < height - own && before < MOST_STRETCH * height) {
      rows.push({ count: count - 1, height: before });
      [start, sum] = [at, ratios[at]];
    } else {
      rows.push({ count, height: own });
      [start, sum] = [at + 1, 0];
    }
  }
  if (start < ratios.length) {
    const count = ratios.length - start;
    rows.push({ count, height: Math.min(height, (width - gap * (count - 1)) / sum) });
  }
  return rows;
}

// Give each card of a list its width and the height of its picture.
export function layOut(list, height) {
  const cards = [...list.children].filter((card) => !card.hidden);
  const width = list.clientWidth;
  if (!width || !cards.length) return;
  const gap = parseFloat(getComputedStyle(list).columnGap) || 0;
  const ratios = cards.map((card) => Math.min(WIDEST, Math.max(NARROWEST, (card.item && shapes.get(keyOf(card))) || UNKNOWN)));
  let at = 0;
  for (const row of rowsOf(ratios, width, Math.min(height, width / 1.2), gap)) {
    for (const end = at + row.count; at < end; at += 1) {
      // A hundredth less: the sum of rounded widths fits.
      cards[at].style.width = `${Math.floor(100 * ratios[at] * row.height) / 100 - 0.01}px`;
      cards[at].style.setProperty("--high", `${row.height.toFixed(2)}px`);
    }
  }
}

// The colours of a picture in a few cells; null for a flat one, which is like any other of its colour.
function printOf(image) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = CELLS;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.imageSmoothingQuality = "high";
  pen.drawImage(image, 0, 0, CELLS, CELLS);
  const all = pen.getImageData(0, 0, CELLS, CELLS).data;
  const colours = all.filter((_, place) => place % 4 !== 3);
  const mean = colours.reduce((sum, value) => sum + value, 0) / colours.length;
  const deviation = Math.sqrt(colours.reduce((sum, value) => sum + (value - mean) ** 2, 0) / colours.length);
  return deviation < FLAT ? null : colours;
}

export function isCopy(one, other) {
  if (!one || !other) return false;
  let sum = 0;
  for (let at = 0; at < one.length; at += 1) {
    const difference = Math.abs(one[at] - other[at]);
    if (difference > LARGEST_DIFFERENCE) return false;
    sum += difference;
  }
  return sum / one.length <= MEAN_DIFFERENCE;
}

// The cards of a list in groups of copies: the same picture, also in another size or compression. The first of each group
// stays; [[first, [copies]]].
export function groupCopies(list) {
  const groups = [];
  for (const card of list.children) {
    const [print, shape] = card.item ? [prints.get(keyOf(card)), shapes.get(keyOf(card))] : [null, 0];
    const group = print && groups.find(([first]) => {
      const other = shapes.get(keyOf(first));
      return Math.abs(shape - other) < 0.03 * other && isCopy(prints.get(keyOf(first)), print);
    });
    if (group) group[1].push(card);
    else groups.push([card, []]);
  }
  return groups;
}
