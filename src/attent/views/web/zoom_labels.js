// What stands around the cells of a zoomable map: tokens where there is room for them, else their numbers; and what is marked.

import { trimmed, visible } from "./words.js";
import { spans } from "./zoom_scale.js";

const LETTERS = 12;
const LEAST = 9;
// Pixels between numbers.
const APART = 56;

export function drawLabels(context, style, scale, labels) {
  const [rows, columns] = scale.seen();
  const named = scale.size >= LEAST;
  context.font = `${named ? Math.min(LETTERS, scale.size + 1) : LETTERS}px ${style.fontFamily}`;
  context.fillStyle = style.getPropertyValue("--text");
  context.textBaseline = "middle";
  const step = named ? 1 : nice(APART / scale.size);
  context.textAlign = "right";
  for (let row = Math.ceil(rows[0] / step) * step; row < rows[1]; row += step) {
    const [, y] = scale.point(row + (named ? 0.5 : 0), 0);
    context.fillText(named ? trimmed(context, labels.rows[row], scale.left - 8) : row.toLocaleString("en"), scale.left - 5, Math.max(y, scale.above + 6));
  }
  context.textAlign = "left";
  for (let column = Math.ceil(columns[0] / step) * step; column < columns[1]; column += step) {
    const [x] = scale.point(0, column + (named ? 0.5 : 0));
    context.save();
    context.translate(Math.max(x, scale.left + 6), scale.above - 5);
    context.rotate(-Math.PI / 2);
    context.fillText(named ? trimmed(context, labels.columns[column], scale.above - 8) : column.toLocaleString("en"), 0, 0);
    context.restore();
  }
}

/** How long the longest of some labels is, in pixels; of many, those at the start speak for all. */
export function longestOf(context, style, labels) {
  context.font = `${LETTERS}px ${style.fontFamily || "system-ui, sans-serif"}`;
  return Math.max(...labels.slice(0, 500).map((label) => context.measureText(visible(label)).width));
}

/** The cell that is spoken of, and the row or the column that is looked at elsewhere. */
export function drawMark(context, style, scale, level, cell, { side, place, places }) {
  const step = 2 ** level;
  context.save();
  context.beginPath();
  context.rect(scale.left - 2, scale.above - 2, scale.wide, scale.high);
  context.clip();
  context.strokeStyle = style.getPropertyValue("--accent");
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
