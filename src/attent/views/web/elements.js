// Elements of a page. Text enters by textContent alone, so that no token is ever read as markup.

import { order } from "./words.js";

/** An element with attributes and children; `text` is its text, `on` its listeners by event. */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same within a drawing. */
export function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(made, { text, on = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  if (text !== undefined) made.textContent = text;
  for (const [event, listener] of Object.entries(on)) made.addEventListener(event, listener);
  made.append(...children);
  return made;
}

/** A canvas of opaque pixels, of which `paint(bytes)` writes red, green, blue and opacity. */
export function bitmap(height, width, paint) {
  const canvas = element("canvas", { height, width, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  image.data.fill(255);
  paint(image.data);
  context.putImageData(image, 0, 0);
  return canvas;
}

/** attent's mark, a link home where there is one. */
export function mark(home) {
  const cells = Array.from({ length: 9 }, (_, cell) => drawn("rect", {
    x: 8 * (cell % 3), y: 8 * Math.floor(cell / 3), width: 7, height: 7, rx: 1.5, opacity: [0, 5, 7].includes(cell) ? 1 : 0.2,
  }));
  const sign = drawn("svg", { viewBox: "0 0 23 23", fill: "currentColor", "aria-hidden": "true" }, ...cells);
  return element(home ? "a" : "span", { class: "mark", href: home }, sign, "attent");
}

/** A choice among named values. */
export function choice(label, options, chosen, listener) {
  const select = element("select", { on: { change: () => listener(options[select.selectedIndex][0]) } });
  for (const [value, text] of options) select.append(element("option", { value: String(value), text }));
  select.selectedIndex = Math.max(0, options.findIndex(([value]) => value === chosen));
  return element("label", { class: "choice" }, element("span", { text: label }), select);
}

/** A box to tick. */
export function tick(label, ticked, listener) {
  const box = element("input", { type: "checkbox", on: { change: () => listener(box.checked) } });
  box.checked = ticked;
  return element("label", { class: "choice" }, box, element("span", { text: label }));
}

/** Run tokens in a flexible box one way. */
export function ordered(box, labels, way) {
  box.dir = way;
  order(labels, way).forEach((place, token) => { box.children[token].style.order = String(place); });
}

/** A line that says how many children of lists lie below the end of a box that scrolls, and where more text fades out. */
export function moreBelow(box, ...lists) {
  const sign = element("p", { class: "more", hidden: true });
  const say = () => {
    const end = box.getBoundingClientRect().bottom;
    const below = lists.map((list) => [...list.children].filter((child) => child.getBoundingClientRect().top > end - 12).length);
    const count = Math.max(...below);
    sign.textContent = `scroll: ${count.toLocaleString("en")} more`;
    sign.hidden = count === 0 || box.scrollHeight <= box.clientHeight + 1;
    box.classList.toggle("cut", !sign.hidden);
  };
  box.addEventListener("scroll", say, { passive: true });
  new ResizeObserver(say).observe(box);
  return { sign, say };
}

/** Move the focus among items in rows of so many by a key, and with it what Tab reaches; returns the place of the item, if it moves. */
export function rove(event, items, across = 1, key = event.key) {
  const place = items.indexOf(event.target);
  const next = place < 0 ? undefined : moved(key, place, items.length, across);
  if (next === undefined) return undefined;
  event.preventDefault();
  [items[place].tabIndex, items[next].tabIndex] = [-1, 0];
  items[next].focus();
  return next;
}

/** Where a key on the keyboard moves to in rows of so many places; undefined for keys that do not move. */
export function moved(key, place, count, across = 1) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across, PageUp: -10 * across, PageDown: 10 * across };
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return key in steps ? Math.min(Math.max(place + steps[key], 0), count - 1) : undefined;
}
