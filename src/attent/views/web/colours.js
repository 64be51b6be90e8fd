// Weights as colours: one hue by lightness, which everyone can tell apart, towards the far side of the background.

const LIGHT = ["#f7fbff", "#c6dbef", "#6baed6", "#2171b5", "#08306b"];
const DARK = ["#161b22", "#173a5e", "#1f77b4", "#7cc4ea", "#f2fbff"];
const STEPS = 256;
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function channels(hex) {
  return [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
}

function made(stops) {
  const found = new Uint8ClampedArray(STEPS * 3);
  for (let step = 0; step < STEPS; step += 1) {
    const place = (step / (STEPS - 1)) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    const [from, to] = [channels(stops[low]), channels(stops[low + 1])];
    for (let channel = 0; channel < 3; channel += 1) {
      found[3 * step + channel] = from[channel] + (to[channel] - from[channel]) * (place - low);
    }
  }
  return found;
}

const tables = { light: made(LIGHT), dark: made(DARK) };

/** The colours of today, red, green and blue of each of 256 steps. */
export function table() {
  return dark.matches ? tables.dark : tables.light;
}

/** Whether the page is dark. */
export function isDark() {
  return dark.matches;
}

/** Be told when the page turns light or dark, until a signal. */
export function onScheme(listener, signal = undefined) {
  dark.addEventListener("change", listener, { signal });
}

/** How much of its scale a weight is, 0 to 1; `rooted` lets small ones be seen. */
export function share(value, top, rooted = false) {
  if (!top || Number.isNaN(value)) return 0;
  const part = Math.min(Math.abs(value) / top, 1);
  return rooted ? Math.sqrt(part) : part;
}

/** A share as a colour of CSS, and the colour of text that can be read on it. */
export function shade(part) {
  const step = Math.round(part * (STEPS - 1));
  const rgb = Array.from(table().subarray(3 * step, 3 * step + 3));
  const [red, green, blue] = rgb.map((channel) => {
    const linear = channel / 255;
    return linear <= 0.04045 ? linear / 12.92 : ((linear + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return { background: `rgb(${rgb.join(",")})`, text: luminance > 0.18 ? "#111111" : "#ffffff" };
}

/** A matrix as a canvas of one pixel a cell. */
export function painted(values, height, width, top, rooted = false) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const colours = table();
  for (let cell = 0; cell < values.length; cell += 1) {
    const step = 3 * Math.round(share(values[cell], top, rooted) * (STEPS - 1));
    image.data[4 * cell] = colours[step];
    image.data[4 * cell + 1] = colours[step + 1];
    image.data[4 * cell + 2] = colours[step + 2];
    image.data[4 * cell + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** The largest of some weights in size. */
export function topOf(values) {
  let top = 0;
  for (const value of values) if (Math.abs(value) > top) top = Math.abs(value);
  return top;
}
