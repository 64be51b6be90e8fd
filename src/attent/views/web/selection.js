// Several tokens of one side: which, how they are written, and the sum or the mean of their rows or columns.

import { NONE } from "./state.js";
import { strongest } from "./words.js";

/** Tokens that may be selected at a time. */
export const MOST = 256;

/** The places after one was chosen: it alone (or none, if it was), it put to the others or taken away ("toggle"), or all from the anchor to it ("range"). */
export function selected(places, anchor, place, how) {
  if (how === "range") {
    const step = place < anchor ? -1 : 1;
    const count = Math.min(Math.abs(place - anchor) + 1, MOST);
    return sorted(Array.from({ length: count }, (_, which) => anchor + step * which));
  }
  const is = places.includes(place);
  if (how === "toggle") return is ? without(places, place) : sorted([...places, place].slice(0, MOST));
  return is && places.length === 1 ? NONE : [place];
}

/** The key of a row that is spoken of: that of the cell that was selected in it, or else the strongest of its values; -1 if there is none. */
export function keyOf(row, values, cell) {
  return cell?.[0] === row && cell[1] < values.length ? cell[1] : strongest(values);
}

/** Places as text: 1,3-5. */
export function written(places, to = "-", between = ",") {
  const spans = [];
  for (const place of places) {
    const last = spans.at(-1);
    if (last && last[1] === place - 1) last[1] = place;
    else spans.push([place, place]);
  }
  return spans.map(([first, last]) => (first === last ? `${first}` : `${first}${to}${last}`)).join(between);
}

/** The places of such a text; none if it is no such text, or one is not among so many. */
export function parsed(text, count) {
  if (!/^\d{1,7}(-\d{1,7})?(,\d{1,7}(-\d{1,7})?)*$/.test(text)) return NONE;
  const places = new Set();
  for (const span of text.split(",")) {
    const [first, last] = span.split("-").map(Number);
    const end = last ?? first;
    if (end < first || end >= count || end - first >= MOST) return NONE;
    for (let place = first; place <= end; place += 1) places.add(place);
    if (places.size > MOST) return NONE;
  }
  return sorted([...places]);
}

/** The sum or the mean of the rows or columns of the tokens that are selected, with each of them as `lines`. */
export async function combined(source, { group, layer, head, side, places, combine }) {
  const lines = await Promise.all(places.map((place) => source[side](group, layer, head, place)));
  if (lines.length === 1) return { ...lines[0], lines };
  const values = new Float64Array(lines[0].values.length);
  let partial = false;
  values.forEach((_, other) => {
    const known = lines.map((line) => line.values[other]).filter((value) => !Number.isNaN(value));
    const total = known.reduce((sum, value) => sum + value, 0);
    values[other] = known.length ? total / (combine === "mean" ? lines.length : 1) : NaN;
    partial ||= known.length > 0 && known.length < lines.length;
  });
  const notes = [lines[0].note, partial ? "weights that are not known here count as 0" : ""].filter(Boolean);
  return { values, lines, exact: !partial && lines.every((line) => line.exact), note: notes.join("; ") };
}

function without(places, place) {
  const rest = places.filter((one) => one !== place);
  return rest.length ? rest : NONE;
}

function sorted(places) {
  return places.sort((one, other) => one - other);
}
