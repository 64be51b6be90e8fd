// Both texts and their links as a picture, and the numbers at them: all that the lists hold, not only what of them is in sight.

import { token } from "./colours.js";
import { drawn } from "./elements.js";
import { label, sketched } from "./save.js";
import { written } from "./selection.js";
import { trimmed } from "./words.js";

const HEADING = 24;

/** An element of SVG with every token where it stands on the page, and the links. */
export function sketchTokens({ board, lists, links, said, isLong }) {
  const ground = board.getBoundingClientRect();
  const boxes = ["column", "row"].map((side) => lists[side].tokens.getBoundingClientRect());
  // long texts scroll by themselves: of these, the second one begins where the first ends
  const grown = lists.column.tokens.scrollHeight - boxes[0].height;
  const downs = [HEADING - ground.top, HEADING - ground.top + grown];
  const high = downs[1] + boxes[1].top + lists.row.tokens.scrollHeight + 4;
  return sketched(ground.width, high, (context) => {
    write(context, said, 0, HEADING / 2, ground.width);
    ["column", "row"].forEach((side, which) => {
      const { tokens } = lists[side];
      const offset = [-ground.left, downs[which] + tokens.scrollTop];
      for (const item of tokens.children) drawToken(context, item, offset);
    });
    if (isLong) return;
    const moved = drawn("g", { transform: `translate(0 ${HEADING})`, stroke: token("weight"), fill: "none", "stroke-linecap": "round", "stroke-opacity": 0.75 });
    moved.append(...[...links.node.children].map((path) => path.cloneNode()));
    context.group.append(moved);
  });
}

function drawToken(context, item, [right, down]) {
  const box = item.getBoundingClientRect();
  if (item.style.background) {
    context.fillStyle = item.style.backgroundColor;
    context.fillRect(box.left + right, box.top + down, box.width, box.height);
  }
  if (item.getAttribute("aria-selected") === "true") {
    Object.assign(context, { strokeStyle: token("ink"), lineWidth: 2 });
    context.strokeRect(box.left + right + 1, box.top + down + 1, box.width - 2, box.height - 2);
  }
  for (const part of item.children) {
    const inner = part.getBoundingClientRect();
    if (part.textContent && inner.width) write(context, part, inner.left + right, (inner.top + inner.bottom) / 2 + down, inner.width);
  }
}

function write(context, node, x, y, room) {
  const { fontSize, fontFamily, color } = getComputedStyle(node);
  Object.assign(context, { font: `${parseFloat(fontSize)}px ${fontFamily}`, fillStyle: color });
  context.fillText(trimmed(context, node.textContent, room + 2), x, y);
}

/** The numbers at the tokens of what is chosen, as rows of fields. */
export function tokenTable(lines) {
  const group = lines.group();
  const [rows, columns] = [group.rows, group.columns].map((name) => lines.source.scene.texts[name].labels);
  const { side, place, places, combine } = lines.state.values;
  if (side === null || !lines.line) throw new Error("no word is selected");
  const [theirs, labels] = side === "row" ? ["column", columns] : ["row", rows];
  const chosen = `${side} ${written(places.length ? places : [place])}`;
  const header = [theirs, `${theirs}_token`, places.length > 1 ? `${combine} of ${side}s ${written(places)}` : `weight of ${chosen}`];
  return [header, ...Array.from(lines.line.values, (value, other) => [other, label(labels[other]), value])];
}
