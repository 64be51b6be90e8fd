// Tokens and lines as a picture, and the numbers at them: all that the lists hold, not only what of them is in sight.

import { label, mapTable, sketched } from "./save.js";
import { written } from "./selection.js";
import { trimmed } from "./words.js";

const HEADING = 20;

/** An element of SVG with every token where it stands on the page. */
export function sketchTokens({ board, lists, drawing, running }) {
  const sides = ["row", "column"].map((side) => lists[side]);
  const ground = board.getBoundingClientRect();
  const colour = (name) => getComputedStyle(board).getPropertyValue(name);
  // where each list begins in the picture; lists that run on scroll by themselves, and stand one below the other
  const heights = sides.map(({ tokens }) => tokens.scrollHeight);
  const tops = [HEADING, running ? 2 * HEADING + heights[0] : HEADING];
  return sketched(ground.width, Math.max(tops[0] + heights[0], tops[1] + heights[1]) + 4, (context) => {
    const offsets = sides.map(({ tokens, heading }, which) => {
      const box = tokens.getBoundingClientRect();
      const offset = [-ground.left, tops[which] - box.top + (running ? tokens.scrollTop : 0)];
      const range = document.createRange();
      range.selectNodeContents(heading);
      write(context, heading, range.getBoundingClientRect().left + offset[0], tops[which] - HEADING / 2, box.width);
      for (const token of tokens.children) drawToken(context, token, offset, colour("--accent"));
      return offset;
    });
    if (running) return;
    const box = drawing.getBoundingClientRect();
    Object.assign(context, { strokeStyle: colour("--lines"), lineWidth: 2 });
    for (const line of drawing.children) {
      const [y1, y2, opacity] = ["y1", "y2", "stroke-opacity"].map((name) => Number(line.getAttribute(name)));
      context.line(box.left + offsets[0][0], HEADING + y1, box.right + offsets[0][0], HEADING + y2, opacity);
    }
  });
}

function drawToken(context, token, [right, down], accent) {
  const box = token.getBoundingClientRect();
  if (token.style.background) {
    context.fillStyle = token.style.backgroundColor;
    context.fillRect(box.left + right, box.top + down, box.width, box.height);
  }
  if (token.getAttribute("aria-selected") === "true") {
    Object.assign(context, { strokeStyle: accent, lineWidth: 2 });
    context.strokeRect(box.left + right + 1, box.top + down + 1, box.width - 2, box.height - 2);
  }
  for (const part of token.children) {
    const inner = part.getBoundingClientRect();
    if (part.textContent && inner.width) write(context, part, inner.left + right, (inner.top + inner.bottom) / 2 + down, inner.width);
  }
}

function write(context, node, x, y, room) {
  const { fontSize, fontFamily, color } = getComputedStyle(node);
  Object.assign(context, { font: `${parseFloat(fontSize)}px ${fontFamily}`, fillStyle: color });
  context.fillText(trimmed(context, node.textContent, room + 2), x, y);
}

/** The numbers at the tokens as rows of fields: of what is chosen, or of all lines. */
export function tokenTable(lines) {
  const group = lines.group();
  const [rows, columns] = [group.rows, group.columns].map((name) => lines.source.scene.texts[name].labels);
  const { side, place, places, combine } = lines.state.values;
  if (side === null || !lines.line) {
    if (!lines.every) throw new Error("no token is chosen");
    return mapTable(lines.every.map(({ values }, y) => ({ values, width: values.length, y, x: 0 })), 1, "", rows, columns);
  }
  const [theirs, labels] = side === "row" ? ["column", columns] : ["row", rows];
  const chosen = `${side} ${written(places.length ? places : [place])}`;
  const header = [theirs, `${theirs}_token`, places.length > 1 ? `${combine} of ${side}s ${written(places)}` : `weight of ${chosen}`];
  return [header, ...Array.from(lines.line.values, (value, other) => [other, label(labels[other]), value])];
}
