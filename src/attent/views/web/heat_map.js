// The map of one head as colours, with the value of the cell under the pointer or the keys.

import { legend, onScheme, painted, scaleOf, shade, share, token, topOf } from "./colours.js";
import { element, moved, tick } from "./elements.js";
import { mapTable, saving, sketched } from "./save.js";
import { isAnotherMap, latest } from "./state.js";
import { fenced, number, ofHowMany, short, trimmed } from "./words.js";

const TILE = 256;
// Pixels of a cell, of labels, and of the whole.
const LARGEST_CELL = 40;
const LETTERS = 12;
const TALLEST = 640;
// From here on a cell has room for its weight, in hundredths.
const ROOMY = 28;

export class HeatMap {
  constructor(source, state, signal) {
    this.source = source;
    this.state = state;
    this.rooted = false;
    this.cell = [0, 0];
    this.once = latest((error) => { this.canvas.width = 0; this.readout.textContent = error.message; });
    this.canvas = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "map" });
    this.readout = element("output", { class: "readout", "aria-live": "polite" });
    this.legend = element("div", { class: "legend" });
    this.options = element("div", { class: "options" });
    this.node = element("section", { class: "map", "aria-label": "matrix" }, this.readout, element("div", { class: "frame" }, this.canvas), this.legend);
    this.further = element("div", {}, element("h3", { text: "Matrix" }), this.options,
      saving("matrix", source, state, () => sketched(this.place.wide, this.place.high, (context) => this.sketch(context)), () => this.table()));
    this.listen();
    state.follow((_, changed) => {
      if (isAnotherMap(changed)) this.open(changed.has("group"));
      else this.follow(changed);
    });
    new ResizeObserver(() => this.resized()).observe(this.node);
    onScheme(() => this.draw(), signal);
  }

  group() {
    return this.source.scene.groups.find((one) => one.name === this.state.values.group);
  }

  /** Fetch the map of a head, as fine as there is room for. */
  open(fresh) {
    const group = this.group();
    if (fresh) {
      this.cell = [0, 0];
      this.rooted = false;
      this.options.replaceChildren(tick("square root of the scale, for small weights", this.rooted, (ticked) => {
        this.rooted = ticked;
        this.draw();
      }));
    }
    // what is drawn is of the matrix before
    this.matrix = null;
    this.node.classList.add("former");
    this.readout.textContent = "";
    const { layer, head } = this.state.values;
    const room = Math.max(this.node.clientWidth - 8, 240);
    const level = Math.max(group.level ?? 0, Math.ceil(Math.log2(Math.max(group.height / TALLEST, group.width / room))));
    this.once(whole(this.source, group, layer, head, level), (matrix) => {
      this.matrix = matrix;
      this.node.classList.remove("former");
      this.top = topOf(matrix.values);
      this.scale = scaleOf(group, this.top);
      this.follow(new Set(["place"]));
      this.say();
      // how long that took, for whoever asks the browser
      performance.mark("attention drawn");
    });
  }

  /** Speak of the strongest weight of the row or column that is selected. */
  follow(changed) {
    const { side, place } = this.state.values;
    if (this.matrix && side !== null && changed.has("place")) {
      const { height, width, step, values } = this.matrix;
      const at = Math.min(Math.floor(place / step), (side === "row" ? height : width) - 1);
      const line = side === "row" ? values.subarray(at * width, (at + 1) * width) : Float32Array.from({ length: height }, (_, row) => values[row * width + at]);
      const other = line.reduce((best, value, index) => (Math.abs(value) > Math.abs(line[best]) ? index : best), 0);
      this.cell = side === "row" ? [at, other] : [other, at];
    }
    this.draw();
    if (this.matrix) this.say();
  }

  resized() {
    if (this.matrix && this.node.clientWidth !== this.width) this.draw();
  }

  /** Where labels and cells stand, in pixels. */
  layout(context) {
    const { height, width } = this.matrix;
    const room = Math.max(this.node.clientWidth - 2, 200);
    const texts = this.source.scene.texts;
    const [rows, columns] = [texts[this.group().rows].labels, texts[this.group().columns].labels];
    const { step } = this.matrix;
    const longest = (labels, cells, most) => {
      const every = step * Math.max(1, Math.ceil((cells * (LETTERS + 1)) / room));
      const shown = labels.filter((_, place) => place % every === 0);
      return Math.min(most, Math.max(...shown.map((label) => context.measureText(trimmed(context, label, most)).width)));
    };
    const left = Math.ceil(longest(rows, height, room * 0.3)) + 8;
    const cell = Math.min(LARGEST_CELL, (room - left) / width, Math.max(TALLEST / height, 1));
    // labels that are no wider than their columns lie flat
    const tall = Math.ceil(longest(columns, width, 110));
    const flat = tall <= cell - 2;
    const above = flat ? LETTERS + 8 : tall + 8;
    return { left, above, cell, flat, rows, columns, wide: left + cell * width + 2, high: above + cell * height + 2 };
  }

  draw() {
    if (!this.matrix) return;
    this.width = this.node.clientWidth;
    const context = this.canvas.getContext("2d");
    const style = getComputedStyle(this.node);
    context.font = `${LETTERS}px ${style.fontFamily}`;
    const place = (this.place = this.layout(context));
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(place.wide * scale);
    this.canvas.height = Math.round(place.high * scale);
    this.canvas.style.width = `${place.wide}px`;
    this.canvas.style.height = `${place.high}px`;
    context.scale(scale, scale);
    this.sketch(context);
    this.explain();
  }

  /** Draw cells and what stands around them on a canvas, or into a file. */
  sketch(context) {
    const style = getComputedStyle(this.node);
    const { place } = this;
    context.font = `${LETTERS}px ${style.fontFamily}`;
    context.imageSmoothingEnabled = false;
    const { height, width } = this.matrix;
    context.drawImage(painted(this.matrix, this.scale, this.rooted, 0, this.matrix.step), place.left, place.above, place.cell * width, place.cell * height);
    context.strokeStyle = token("line");
    context.strokeRect(place.left - 0.5, place.above - 0.5, place.cell * width + 1, place.cell * height + 1);
    this.label(context);
    this.write(context, style);
    this.mark(context);
  }

  /** The numbers that are shown. */
  table() {
    const { rows, columns } = this.place;
    return mapTable([{ ...this.matrix, y: 0, x: 0 }], this.matrix.step, "mean", rows, columns);
  }

  label(context) {
    const { left, above, cell, rows, columns } = this.place;
    const { step } = this.matrix;
    context.fillStyle = token("ink");
    context.textBaseline = "middle";
    const every = Math.max(1, Math.ceil((LETTERS + 1) / cell));
    context.textAlign = "right";
    for (let row = 0; row < this.matrix.height; row += every) {
      context.fillText(trimmed(context, rows[row * step], left - 8), left - 5, above + (row + 0.5) * cell);
    }
    context.textAlign = this.place.flat ? "center" : "left";
    for (let column = 0; column < this.matrix.width; column += every) {
      context.save();
      context.translate(left + (column + 0.5) * cell, above - 5);
      if (!this.place.flat) context.rotate(-Math.PI / 2);
      context.fillText(trimmed(context, columns[column * step], this.place.flat ? cell : above - 8), 0, this.place.flat ? -LETTERS / 2 : 0);
      context.restore();
    }
  }

  /** The weight of each cell, where there is room. */
  write(context, style) {
    const { left, above, cell } = this.place;
    if (cell < ROOMY || this.top >= 9.995) return;
    context.font = `${LETTERS}px ${style.fontFamily}`;
    context.textAlign = "center";
    this.matrix.values.forEach((value, place) => {
      const [row, column] = [Math.floor(place / this.matrix.width), place % this.matrix.width];
      if (Math.abs(value) < 0.005) return;
      context.fillStyle = shade(share(value, this.scale, row, this.rooted)).text;
      context.fillText(short(value).replace("0.", "."), left + (column + 0.5) * cell, above + (row + 0.5) * cell);
    });
  }

  /** The cell that is spoken of, and the row or column that is looked at elsewhere. */
  mark(context) {
    const { left, above, cell } = this.place;
    const { height, width, step } = this.matrix;
    const { side, place, places } = this.state.values;
    context.strokeStyle = token("ink");
    context.lineWidth = 1.5;
    for (const one of places.length ? places : [place]) {
      if (side === "row") context.strokeRect(left, above + Math.floor(one / step) * cell, width * cell, cell);
      if (side === "column") context.strokeRect(left + Math.floor(one / step) * cell, above, cell, height * cell);
    }
    const [row, column] = this.cell;
    context.lineWidth = 2.5;
    context.strokeRect(left + column * cell, above + row * cell, cell, cell);
  }

  listen() {
    const at = (event) => {
      if (!this.matrix || !this.place) return null;
      const box = this.canvas.getBoundingClientRect();
      const row = Math.floor((event.clientY - box.top - this.place.above) / this.place.cell);
      const column = Math.floor((event.clientX - box.left - this.place.left) / this.place.cell);
      return row >= 0 && column >= 0 && row < this.matrix.height && column < this.matrix.width ? [row, column] : null;
    };
    this.canvas.addEventListener("pointermove", (event) => { const cell = at(event); if (cell) this.go(cell); });
    this.canvas.addEventListener("click", (event) => { const cell = at(event); if (cell) this.choose(cell); });
    this.canvas.addEventListener("keydown", (event) => {
      if (!this.matrix) return;
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        this.choose(this.cell);
        return;
      }
      const { height, width } = this.matrix;
      const down = event.key === "ArrowUp" || event.key === "ArrowDown" || event.key.startsWith("Page");
      const next = moved(event.key, this.cell[down ? 0 : 1], down ? height : width);
      if (next === undefined) return;
      event.preventDefault();
      this.go(down ? [next, this.cell[1]] : [this.cell[0], next]);
    });
  }

  go(cell) {
    if (cell[0] === this.cell[0] && cell[1] === this.cell[1]) return;
    this.cell = cell;
    this.draw();
    this.say();
  }

  choose(cell) {
    this.go(cell);
    this.state.set({ side: "row", place: Math.min(cell[0] * this.matrix.step, this.group().height - 1) });
  }

  say() {
    const { step, width, exact } = this.matrix;
    const [row, column] = this.cell;
    const weight = this.matrix.values[row * width + column];
    const value = number(weight, exact);
    const group = this.group();
    const texts = this.source.scene.texts;
    const name = (labels, at, count) => {
      const last = Math.min((at + 1) * step, count) - 1;
      return step === 1 ? fenced(labels[at]) : `${fenced(labels[at * step])} … ${fenced(labels[last])}`;
    };
    const pooled = ofHowMany(row * step, column * step, step, group.height, group.width, "mean");
    this.readout.textContent = `${name(texts[group.rows].labels, row, group.height)} → ${name(texts[group.columns].labels, column, group.width)}: ${value}${pooled}`;
    Object.assign(this.readout.dataset, { value: weight, row: row * step, column: column * step });
    this.canvas.setAttribute("aria-label", `Matrix of ${group.title}, ${this.matrix.height} by ${width} cells: from the word of a row to that of a column. `
      + `Arrow keys move; Enter selects the row. ${this.readout.textContent}`);
  }

  explain() {
    const kind = this.matrix.step === 1 ? "" : `each cell is the mean of up to ${this.matrix.step} × ${this.matrix.step} weights`;
    this.legend.replaceChildren(...legend(this.scale, number(this.top, this.matrix.exact), this.rooted), element("span", { text: kind }));
  }
}

/** A whole level of a map, put together from its tiles; `step` is how many rows and columns a cell stands for. */
export async function whole(source, group, layer, head, level) {
  const step = 2 ** level;
  const [height, width] = [Math.ceil(group.height / step), Math.ceil(group.width / step)];
  const places = [];
  for (let y = 0; y * TILE < height; y += 1) for (let x = 0; x * TILE < width; x += 1) places.push([y, x]);
  const tiles = await Promise.all(places.map(([y, x]) => source.tile(group.name, layer, head, level, y, x, "mean")));
  const values = new Float32Array(height * width);
  tiles.forEach((tile, which) => {
    const [y, x] = places[which];
    for (let row = 0; row < tile.height; row += 1) {
      values.set(tile.values.subarray(row * tile.width, (row + 1) * tile.width), (y * TILE + row) * width + x * TILE);
    }
  });
  return { height, width, values, step, exact: tiles.every((tile) => tile.exact) };
}
