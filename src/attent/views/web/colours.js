// Weights as colours, by the scale of docs/design-pages.md: 0 to 1 for up to 32 keys, multiples of uniform for more.

import { bitmap, element } from "./elements.js";

const STEPS = 256;
// Keys up to which the scale is 0 to 1, the multiple of uniform at which the other one is full, and the share of the largest
// entropy from which a row is called nearly uniform.
const [FEW, FULL, UNIFORM] = [32, 8, 0.98];
// Links of a row, and the multiple of uniform that each exceeds.
const [LINKS, LINKED] = [3, 1.5];
// The weight from which a token that is selected has a link.
const LEAST = 0.05;
const dark = window.matchMedia("(prefers-color-scheme: dark)");
let made = null;

/** A colour of the page's style sheet. */
export function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The colours of today, red, green and blue of each of 256 steps. */
function table() {
  // not read from the style sheet for each token or cell, which would compute styles anew each time
  if (made?.isDark === dark.matches) return made.colours;
  const stops = token("ramp").split(/\s+/).map((hex) => [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16)));
  const colours = new Uint8ClampedArray(STEPS * 3);
  for (let step = 0; step < STEPS; step += 1) {
    const place = (step / (STEPS - 1)) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    for (let channel = 0; channel < 3; channel += 1) {
      colours[3 * step + channel] = stops[low][channel] + (stops[low + 1][channel] - stops[low][channel]) * (place - low);
    }
  }
  made = { isDark: dark.matches, colours };
  return colours;
}

/** Be told when the page turns light or dark, until a signal. */
export function onScheme(listener, signal = undefined) {
  dark.addEventListener("change", listener, { signal });
}

/** The scale of a group's map; numbers that are no weights end at `top`, their largest. Its ends are what a legend says. */
export function scaleOf(group, top = 1, isPicture = false) {
  const before = group.width - group.height;
  const allowed = (row) => Math.max(1, Math.min(group.causal ? row + 1 + before : group.width, group.width));
  if (group.measure !== "weights" || !group.distribution) return { high: top || 1, allowed, ends: ["0", null] };
  if (group.width <= FEW && !isPicture) return { high: 1, allowed, ends: ["0", "1"] };
  return { multiples: true, allowed, ends: ["1× uniform", `${Math.min(FULL, group.width)}×`] };
}

/** How much of its scale a weight of a row is, 0 to 1; `rooted` lets small ones be seen. */
export function share(value, scale, row = 0, rooted = false) {
  const size = Math.abs(value) || 0;
  const allowed = scale.allowed?.(row);
  // full at a weight of 1 at the latest
  const part = scale.multiples ? (size * allowed - 1) / (Math.min(FULL, allowed) - 1) : size / scale.high;
  const bounded = Math.min(Math.max(part || 0, 0), 1);
  return rooted ? Math.sqrt(bounded) : bounded;
}

/** The colour that is laid over pictures: it differs from black and from white. */
export function overlay() {
  return token("ramp").split(/\s+/)[3];
}

/** A share as a colour of CSS, and black or white, whichever can be read on it. */
export function shade(part) {
  const step = Math.round(part * (STEPS - 1));
  const rgb = Array.from(table().subarray(3 * step, 3 * step + 3));
  const [red, green, blue] = rgb.map((channel) => {
    const linear = channel / 255;
    return linear <= 0.04045 ? linear / 12.92 : ((linear + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return { background: `rgb(${rgb.join(",")})`, text: luminance > 0.179 ? "#000" : "#fff" };
}

/** A matrix as a canvas of one pixel a cell; its first row stands for row `first` of the map, and each for `step` rows. */
export function painted({ values, height, width }, scale, rooted = false, first = 0, step = 1) {
  const colours = table();
  return bitmap(height, width, (bytes) => values.forEach((value, cell) => {
    const row = Math.floor((first + Math.floor(cell / width) + 0.5) * step);
    const place = 3 * Math.round(share(value, scale, row, rooted) * (STEPS - 1));
    bytes.set(colours.subarray(place, place + 3), 4 * cell);
  }));
}

/** The bar of a scale with its ends. */
export function legend(scale, top, rooted = false) {
  const bar = painted({ values: Float32Array.from({ length: 64 }, (_, step) => step), height: 1, width: 64 }, { high: 63 }, rooted);
  const [low, high] = scale.ends.map((end) => element("span", { text: end ?? top }));
  return [low, bar, high];
}

/** The largest of some weights in size. */
export function topOf(values) {
  let top = 0;
  for (const value of values) if (Math.abs(value) > top) top = Math.abs(value);
  return top;
}

/** Whether a row's entropy is nearly that of uniform weights; a row with a single key is not uniform. */
function isUniform(values, allowed) {
  let [total, entropy] = [0, 0];
  for (const value of values) total += Math.max(value, 0) || 0;
  for (const value of values) if (value > 0) entropy -= (value / total) * Math.log(value / total);
  return total > 0 && allowed > 1 && entropy >= UNIFORM * Math.log(allowed);
}

/** What is said of a row of weights that is nearly uniform; nothing of another row, or of numbers that are no weights. */
export function uniformly(values, scale, row) {
  const allowed = scale.allowed(row);
  return scale.ends[1] !== null && isUniform(values, allowed) ? `nearly uniform: about 1/${allowed} each` : "";
}

/** How thick the link of a number is, 0 to 1: its weight, or its share of the largest of numbers that are no weights. */
export function thickness(values, scale, place) {
  return Math.abs(values[place]) / (scale.ends[1] === null ? topOf(values) : 1);
}

/** Shade a token by its share of a scale. */
export function tint(item, part) {
  const colour = part > 0.01 ? shade(part) : { background: "", text: "" };
  [item.style.background, item.style.color] = [colour.background, colour.text];
}

/** The places to which a token that is selected has links: those of all weights above 0.05, the strongest first, or of other numbers as `linked` has them. */
export function linkedTo(values, scale, side, place) {
  if (scale.ends[1] === null) return linked(values, scale, side, place);
  if (side === "row" && uniformly(values, scale, place)) return [];
  return [...values.keys()].filter((other) => values[other] > LEAST).sort((one, other) => values[other] - values[one]);
}

/** What is said of these links. */
export function ruleOf(scale) {
  return scale.ends[1] === null ? `Lines: above a third of the largest in size, ${LINKS} at most.` : `Lines: weights above ${LEAST}.`;
}

/** The places to which a row or a column has links: those of its strongest weights that stand out. */
export function linked(values, scale, side, place) {
  if (side === "row" && uniformly(values, scale, place)) return [];
  const least = (other) => (scale.ends[1] === null ? topOf(values) / 3 : LINKED / scale.allowed(side === "row" ? place : other));
  const isOnly = side === "row" && scale.allowed(place) === 1;
  const places = [...values.keys()].filter((other) => Math.abs(values[other]) > (isOnly ? 0 : least(other)));
  return places.sort((one, other) => Math.abs(values[other]) - Math.abs(values[one])).slice(0, LINKS);
}
