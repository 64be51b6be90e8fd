// What is written: labels in which everything can be seen, weights as numbers, and what a cell is called.

const SEEN = { " ": "␣", "\n": "⏎", "\t": "⇥" };
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** A label in which spaces at its ends and marks without a glyph have a stand-in, and a lone combining mark a base. */
export function visible(label) {
  if (label === "") return "∅";
  const [first, last] = [label.length - label.trimStart().length, label.trimEnd().length];
  let at = 0;
  const shown = Array.from(label, (character) => {
    const inside = at >= first && at < last;
    at += character.length;
    if (character === " " && inside) return character;
    if (SEEN[character]) return SEEN[character];
    if (/\p{Zs}/u.test(character)) return "⍽";
    return /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(character) && character !== "\u200d" ? "⌁" : character;
  }).join("");
  return /^\p{M}/u.test(shown) ? `◌${shown}` : shown;
}

/** Whether every label with letters is a whole word, with a space before it. */
export function areWords(labels) {
  const written = labels.filter((label) => /\p{L}/u.test(label) && !/^[<[].*[>\]]$/.test(label));
  return written.length > 0 && written.every((label) => label.startsWith(" "));
}

/** The label of a whole word without the space before it. */
export function bare(label) {
  return label.replace(/^ (?=.)/u, "");
}

/** Labels of whole words without the space before each. */
export function plain(labels) {
  return areWords(labels) ? labels.map(bare) : labels;
}

/** The texts of a scene, of whole words without spaces. */
export function plainTexts(scene) {
  for (const text of Object.values(scene.texts)) text.labels = plain(text.labels);
  return scene;
}

/** Which way labels are read one after another, as a scene's texts are: the way of most of those that have letters. */
export function direction(labels) {
  const written = labels.filter((label) => /\p{L}/u.test(label));
  return 2 * written.filter((label) => RIGHT_TO_LEFT.test(label)).length > written.length ? "rtl" : "ltr";
}

/**
 * The place of each label in a row that runs one way: one after another, but the letters and digits of a word or number that runs the
 * other way in its own order, so that a year stays legible in an Arabic text.
 */
export function order(labels, way) {
  const places = labels.map((_, place) => place);
  const ways = labels.map(ownWay);
  // what separates the digits of a number belongs to it, and a mark to what it stands on
  ways.forEach((own, place) => {
    const isSeparator = /^[.,:/]$/.test(labels[place]) && [place - 1, place + 1].every((beside) => /^\p{N}+$/u.test(labels[beside] ?? ""));
    if (isSeparator || /^\p{M}+$/u.test(labels[place])) ways[place] = ways[place - 1] ?? null;
  });
  for (let start = 0; start < labels.length; start += 1) {
    let end = start;
    while (ways[start] && ways[start] !== way && ways[end + 1] === ways[start] && !/^[\s▁]/u.test(labels[end + 1]) && !/\s$/u.test(labels[end])) end += 1;
    for (let place = start; place <= end; place += 1) places[place] = start + end - place;
    start = end;
  }
  return places;
}

/** The way of a label's letters, numbers running from left to right in every script; null for marks and spaces. */
function ownWay(label) {
  if (/\p{L}/u.test(label)) return direction([label]);
  return /\p{N}/u.test(label) ? "ltr" : null;
}

/** A weight with the digits that it has. */
export function number(value, exact = true) {
  if (Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const digits = exact ? 4 : 3;
  return (size < 0.0001 || size >= 10000 ? value.toExponential(digits - 1) : value.toPrecision(digits)).replace("-", "−");
}

/** A weight in two decimals, or two digits of a small one. */
export function short(value) {
  if (Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  const text = size >= 0.01 || size === 0 ? size.toFixed(2) : size < 0.0001 ? size.toExponential(0).replace("-", "−") : size.toPrecision(2);
  return value < 0 ? `−${text}` : text;
}

/** A number with two decimals; minus is U+2212. */
export function digits(value, count = 2) {
  return value.toFixed(count).replace(/^-(0\.0*)$/, "$1").replace("-", "−").replace("Infinity", "∞");
}

/** The largest of some values with their places, the largest first; what is not known, or below a hundredth of the largest, is left out. */
export function largest(values, count) {
  const places = [];
  values.forEach((value, place) => { if (!Number.isNaN(value) && value !== 0) places.push(place); });
  places.sort((one, other) => Math.abs(values[other]) - Math.abs(values[one]));
  return places.slice(0, count).filter((place) => Math.abs(values[place]) * 100 >= Math.abs(values[places[0]]));
}

/** The place of the largest value, which is the strongest key of a row; zeros, which hidden keys have, and what is not known are left out. -1 if there is none. */
export function strongest(values) {
  return values.reduce((top, value, place) => (value && (top < 0 || value > values[top]) ? place : top), -1);
}

/** The largest of some values as `largest` chooses them, and the strongest among them: the strongest first, negative ones last. */
export function ranked(values, count) {
  const [places, top] = [largest(values, count), strongest(values)];
  if (top >= 0 && !places.includes(top)) places.splice(count - 1, 1, top);
  return places.sort((one, other) => values[other] - values[one]);
}

/** The largest weights with their labels, the strongest first. */
export function listed(values, labels) {
  return ranked(values, 5).map((place) => `${fenced(labels[place])} ${short(values[place])}`).join(" · ") || "nothing";
}

/** Which head a map is of, or that it is the mean of all; nothing where there is one head. */
export function headOf(head, heads) {
  if (heads === 1) return "";
  return head === "mean" ? ` (mean of ${heads} heads)` : ` (head ${head})`;
}

/** Labels of which equal ones are counted, so that they can be told apart: the₁ dog sees the₂ cat. */
export function apart(labels) {
  const counted = (label, place) => Array.from(String(labels.slice(0, place + 1).filter((other) => other === label).length), (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]).join("");
  return labels.map((label, place) => (labels.indexOf(label) === labels.lastIndexOf(label) ? label : label + counted(label, place)));
}

/** A text fenced in, so that what runs the other way leaves what stands around it in place. */
export function fenced(label) {
  return `\u2068${visible(label)}\u2069`;
}

/** A label of at most so many pixels in a canvas' present font. */
export function trimmed(context, label, room) {
  const shown = visible(label);
  if (context.measureText(shown).width <= room) return shown;
  const letters = Array.from(shown);
  while (letters.length > 1 && context.measureText(`${letters.join("")}…`).width > room) letters.pop();
  return `${letters.join("")}…`;
}

/** Of how many tokens a cell of a pooled map is, and how they were pooled; nothing where it is one weight. */
export function ofHowMany(row, column, step, height, width, how) {
  if (step === 1) return "";
  const [down, across] = [Math.min(step, height - row), Math.min(step, width - column)];
  const many = (count) => `${count} token${count === 1 ? "" : "s"}`;
  return `, the ${how === "max" ? "largest" : "mean"} of these ${down} × ${across} weights: ${many(down)} by ${many(across)}`;
}
