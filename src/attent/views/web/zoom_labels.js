// What stands around the cells of a zoomable map: tokens where there is room for them, else their numbers; and what is marked.

import { token } from "./colours.js";
import { trimmed, visible } from "./words.js";
import { spans } from "./zoom_scale.js";

const LETTERS = 12;
const LEAST = 9;
// From here on a cell has room for its weight.
const ROOMY = 28;
// Pixels between numbers.
const APART = 56;

export function drawLabels(context, style, scale, labels) {
  const [rows, columns] = scale.seen();
  const named = scale.size >= LEAST;
  context.font = `${named ? Math.min(LETTERS, scale.size + 1) : LETTERS}px ${style.fontFamily}`;
  context.fillStyle = token("ink");
  context.textBaseline = "middle";
  const step = named ? 1 : nice(APART / scale.size);
  context.textAlign = "right";
  for (let row = Math.ceil(rows[0] / step) * step; row < rows[1]; row += step) {
    const [, y] = scale.point(row + (named ? 0.5 : 0), 0);
    context.fillText(named ? trimmed(context, labels.rows[row], scale.left - 8) : row.toLocaleString("en"), scale.left - 5, Math.max(y, scale.above + 6));
  }
  context.textAlign = scale.isFlat ? "center" : "left";
  for (let column = Math.ceil(columns[0] / step) * step; column < columns[1]; column += step) {
    const [x] = scale.point(0, column + (named ? 0.5 : 0));
    context.save();
    context.translate(Math.max(x, scale.left + 6), scale.above - (scale.isFlat ? 10 : 5));
    if (!scale.isFlat) context.rotate(-Math.PI / 2);
    context.fillText(named ? trimmed(context, labels.columns[column], scale.isFlat ? scale.size : scale.above - 8) : column.toLocaleString("en"), 0, 0);
    context.restore();
  }
}

/** The weights of a tile that begins at a row and a column, where there is room for two decimals. */
export function drawNumbers(context, scale, { values, width }, [top, left], colour) {
  if (scale.size < ROOMY) return;
  const [rows, columns] = scale.seen();
  context.font = `${LETTERS}px ${getComputedStyle(document.body).fontFamily}`;
  Object.assign(context, { textAlign: "center", textBaseline: "middle" });
  for (let row = rows[0]; row < Math.min(rows[1], top + values.length / width); row += 1) {
    for (let column = columns[0]; column < Math.min(columns[1], left + width); column += 1) {
      const value = values[(row - top) * width + column - left];
      if (!(Math.abs(value) >= 0.005)) continue;
      const [x, y] = scale.point(row + 0.5, column + 0.5);
      context.fillStyle = colour(value, row);
      context.fillText(value.toFixed(2).replace("0.", ".").replace("-", "−"), x, y);
    }
  }
}

/** How long the longest of some labels is, in pixels; of many, those at the start speak for all. */
export function longestOf(context, style, labels) {
  context.font = `${LETTERS}px ${style.fontFamily || "system-ui, sans-serif"}`;
  return Math.max(...labels.slice(0, 500).map((label) => context.measureText(visible(label)).width));
}

/** The cell that is spoken of, and the row or the column that is looked at elsewhere. */
export function drawMark(context, scale, level, cell, { side, place, places }) {
  const step = 2 ** level;
  context.save();
  context.beginPath();
  context.rect(scale.left - 2, scale.above - 2, scale.wide, scale.high);
  context.clip();
  context.strokeStyle = token("ink");
  context.lineWidth = 1.5;
  const thick = Math.max(scale.size, 3);
  const [right, bottom] = scale.point(scale.rows, scale.columns);
  for (const one of places.length ? places : [place]) {
    if (side === "row") context.strokeRect(scale.left, scale.point(one, 0)[1], right - scale.left, thick);
    if (side === "column") context.strokeRect(scale.point(0, one)[0], scale.above, thick, bottom - scale.above);
  }
  const [top, left] = cell.map((one, axis) => spans(one, step, axis ? scale.columns : scale.rows)[0]);
  const [x, y] = scale.point(top, left);
  context.lineWidth = 2.5;
  const size = Math.max(step * scale.size, 5);
  context.strokeRect(x, y, size, size);
  context.restore();
}

/** 1, 2 or 5 times a power of ten that is no smaller. */
function nice(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least));
}
