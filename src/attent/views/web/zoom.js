// The map of one head at every scale: zoomed by wheel, pinch and keys, moved by dragging and keys. Only tiles that are looked at are
// asked for; while they are on their way, what is known of a higher level stands in their place.

import { legend, onScheme, painted, scaleOf, shade, share, topOf } from "./colours.js";
import { choice, element, tick } from "./elements.js";
import { Pyramid, SIDE } from "./pyramid.js";
import { mapTable, saving } from "./save.js";
import { keyOf } from "./selection.js";
import { isAnotherMap } from "./state.js";
import { fenced, number, ofHowMany } from "./words.js";
import { Scale, spans } from "./zoom_scale.js";
import { drawLabels, drawMark, drawNumbers, longestOf } from "./zoom_labels.js";
import { listen } from "./zoom_hands.js";

const TALLEST = 640;
// Measures whose numbers can be negative; their colors are those of the size.
const SIGNED = ["scores", "gradients"];

export class Zoom {
  constructor(source, state, signal) {
    this.source = source;
    this.state = state;
    this.how = "mean";
    this.rooted = false;
    this.cell = [0, 0];
    this.canvas = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "zoomable map" });
    this.readout = element("output", { class: "readout", "aria-live": "polite" });
    this.level = element("p", { class: "level", role: "status" });
    this.legend = element("div", { class: "legend" });
    this.options = element("div", { class: "options" });
    const button = (text, label, act) => element("button", { type: "button", text, "aria-label": label, on: { click: act } });
    this.buttons = element("div", { class: "zooming" }, element("span", { text: "zoom" }), button("+", "zoom in", () => this.zoom(2)), button("−", "zoom out", () => this.zoom(0.5)), button("all", "show all of the matrix", () => this.fit()));
    this.node = element("section", { class: "map zoom", "aria-label": "matrix" }, this.readout,
      element("div", { class: "frame" }, this.canvas), element("div", { class: "under" }, this.legend, this.buttons), this.level);
    this.further = element("div", {}, element("h3", { text: "Matrix" }), this.options,
      element("p", { class: "about", text: "Wheel, pinch or + and − zoom; dragging moves; arrow keys move the cell, with Shift the matrix; 0 shows all; Enter or a click selects the row." }),
      saving("matrix", source, state, () => this.table(), this.canvas));
    this.scale = new Scale();
    this.offer();
    listen(this);
    state.follow((values, changed) => {
      if (isAnotherMap(changed)) this.open(changed.has("group"));
      else if (["side", "place", "cell"].some((name) => changed.has(name)) && values.side === "row") this.follow(values);
      else this.draw();
    });
    new ResizeObserver(() => { if (this.node.clientWidth !== this.width) this.resized(); }).observe(this.node);
    onScheme(() => this.repaint(), signal);
    signal?.addEventListener("abort", () => this.close());
  }

  get group() {
    return this.source.scene.groups.find((one) => one.name === this.state.values.group);
  }

  offer() {
    this.options.replaceChildren(
      choice("cells show the", [["mean", "mean"], ["max", "largest"]], this.how, (how) => { this.how = how; this.open(false); }),
      tick("square root of the scale, for small weights", this.rooted, (ticked) => { this.rooted = ticked; this.repaint(); }),
    );
  }

  /** Begin with another map; of the same size it is seen where the one before was. */
  open(fresh) {
    const { layer, head } = this.state.values;
    const group = this.group;
    this.pyramid?.close();
    const load = (level, y, x, signal) => this.source.tile(group.name, layer, head, level, y, x, this.how, signal);
    this.pyramid = new Pyramid(group.height, group.width, load, () => this.draw());
    this.labels = { rows: this.source.scene.texts[group.rows].labels, columns: this.source.scene.texts[group.columns].labels };
    const longest = (texts) => longestOf(this.canvas.getContext("2d"), getComputedStyle(this.node), texts);
    this.scale.of(group.height, group.width, [longest(this.labels.rows), longest(this.labels.columns)]);
    if (fresh) this.cell = [0, 0];
    this.resized(fresh);
    if (this.state.values.side === "row") this.follow(this.state.values);
  }

  resized(fresh = false) {
    this.width = this.node.clientWidth;
    this.scale.room(Math.max(this.width - 2, 200), TALLEST);
    if (fresh || !this.touched) this.scale.fit();
    this.buttons.hidden = !this.scale.isLarge;
    this.draw();
  }

  fit() {
    this.touched = false;
    this.scale.fit();
    this.draw();
  }

  /** By a factor, about a point of the canvas or its middle. */
  zoom(factor, at = undefined) {
    this.touched = true;
    this.scale.zoom(factor, at);
    this.draw();
  }

  move(right, down) {
    this.touched = true;
    this.scale.move(right, down);
    this.draw();
  }

  /** The cell of the present level under a point of the canvas. */
  at(x, y) {
    const [row, column] = this.scale.cell(x, y);
    return row < 0 || column < 0 || row >= this.pyramid.height || column >= this.pyramid.width ? null : [row, column];
  }

  /** Speak of the cell that is selected, or of the strongest weight of the row that is. */
  follow({ group, layer, head, place, cell }) {
    this.go(cell?.[0] === place ? cell : [place, this.cell[1]]);
    const asked = Object.entries({ group, layer, head, place, cell });
    this.source.row(group, layer, head, place).then(({ values }) => {
      const key = keyOf(place, values, cell);
      // another row, or that of another map, may be looked at meanwhile
      if (this.pyramid && key >= 0 && asked.every(([name, value]) => this.state.values[name] === value)) this.go([place, key]);
    }, () => {});
  }

  /** Speak of the cell of these places, and move the map where it is not seen. */
  go(cell, follow = false) {
    this.cell = cell;
    if (follow) this.scale.show(...cell);
    this.draw();
  }

  choose(cell) {
    this.go(cell);
    this.state.set({ side: "row", place: cell[0], cell });
  }

  /** Nothing is asked for any more. */
  close() {
    this.pyramid?.close();
    this.pyramid = null;
  }

  repaint() {
    if (!this.pyramid) return;
    for (const tile of this.pyramid.tiles.values()) tile.canvas = null;
    this.draw();
  }

  /** Once before the next picture, however often it is asked for. */
  draw() {
    if (this.waiting || !this.pyramid) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; if (this.pyramid) this.paint(); });
  }

  paint() {
    const { scale, pyramid, canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const context = canvas.getContext("2d");
    [canvas.width, canvas.height] = [Math.round(scale.wide * ratio), Math.round(scale.high * ratio)];
    [canvas.style.width, canvas.style.height] = [`${scale.wide}px`, `${scale.high}px`];
    context.scale(ratio, ratio);
    const level = Math.max(scale.level(pyramid.top), this.group.level ?? 0);
    const places = this.places(level);
    pyramid.want(places);
    const shown = places.map(([, y, x]) => [y, x, pyramid.get(level, y, x)]);
    const there = shown.filter(([, , tile]) => tile).map(([, , tile]) => tile);
    // a scale of colours that does not jump while tiles of a level come
    if (there.length) this.top = Math.max(...there.map((tile) => tile.top ??= topOf(tile.values)));
    this.shown = { level, tiles: shown };
    this.sketch(context);
    this.say(level, there, places);
    if (pyramid.complete && canvas.dataset.complete !== "true") performance.mark("attention drawn");
    canvas.dataset.complete = String(pyramid.complete);
    canvas.dataset.level = String(level);
  }

  /** Draw the tiles that are shown and what stands around them on a canvas, or into a file. */
  sketch(context) {
    const { scale } = this;
    const { level, tiles } = this.shown;
    context.imageSmoothingEnabled = false;
    context.save();
    context.beginPath();
    context.rect(scale.left, scale.above, scale.wide - scale.left, scale.high - scale.above);
    context.clip();
    for (const [y, x, tile] of tiles) {
      if (tile) this.place(context, tile, level, y, x);
      else this.stand(context, level, y, x);
    }
    context.restore();
    const style = getComputedStyle(this.node);
    drawLabels(context, style, scale, this.labels);
    drawMark(context, scale, level, this.cell, this.state.values);
  }

  /** The numbers of the cells that are seen. */
  table() {
    const { level, tiles } = this.shown;
    const step = 2 ** level;
    const [rows, columns] = this.scale.seen();
    const isSeen = (row, column) => row + step > rows[0] && row < rows[1] && column + step > columns[0] && column < columns[1];
    const parts = tiles.filter(([, , tile]) => tile).map(([y, x, { values, width }]) => ({ values, width, y: y * SIDE, x: x * SIDE }));
    return mapTable(parts, step, this.how, this.labels.rows, this.labels.columns, isSeen);
  }

  /** The tiles of a level that are seen, those in the middle first. */
  places(level) {
    const [rows, columns] = this.scale.seen();
    const step = SIDE * 2 ** level;
    const found = [];
    for (let y = Math.floor(rows[0] / step); y * step < rows[1]; y += 1) {
      for (let x = Math.floor(columns[0] / step); x * step < columns[1]; x += 1) found.push([level, y, x]);
    }
    const far = ([, y, x]) => Math.abs((y + 0.5) * step - (rows[0] + rows[1]) / 2) + Math.abs((x + 0.5) * step - (columns[0] + columns[1]) / 2);
    return found.sort((one, other) => far(one) - far(other));
  }

  place(context, tile, level, y, x) {
    const colours = scaleOf(this.group, this.top);
    if (!tile.canvas || tile.painted !== colours.high) {
      tile.canvas = painted(tile, colours, this.rooted, y * SIDE, 2 ** level);
      tile.painted = colours.high;
    }
    const step = 2 ** level;
    const [left, above] = this.scale.point(y * SIDE * step, x * SIDE * step);
    context.drawImage(tile.canvas, left, above, tile.width * step * this.scale.size, tile.height * step * this.scale.size);
    if (!level) drawNumbers(context, this.scale, tile, [y * SIDE, x * SIDE], (value, row) => shade(share(value, colours, row, this.rooted)).text);
  }

  /** What is known of a higher level, in the place of a tile that is on its way. */
  stand(context, level, y, x) {
    const found = this.pyramid.above(level, y, x);
    if (!found) return;
    const { tile } = found;
    tile.canvas ??= painted(tile, scaleOf(this.group, tile.top ??= topOf(tile.values)), this.rooted, Math.floor(y / 2 ** (found.level - level)) * SIDE, 2 ** found.level);
    const part = SIDE / 2 ** (found.level - level);
    const [fromX, fromY] = [(x * part) % SIDE, (y * part) % SIDE];
    const [wide, high] = [Math.min(part, tile.width - fromX), Math.min(part, tile.height - fromY)];
    const size = 2 ** found.level * this.scale.size;
    const [left, above] = this.scale.point(y * SIDE * 2 ** level, x * SIDE * 2 ** level);
    context.drawImage(tile.canvas, fromX, fromY, wide, high, left, above, wide * size, high * size);
  }

  /** The value of the cell that is spoken of, and what the cells are. */
  say(level, there, places) {
    const step = 2 ** level;
    const [row, column] = this.cell;
    const [y, x] = [Math.floor(row / step), Math.floor(column / step)];
    const tile = this.pyramid.get(level, Math.floor(y / SIDE), Math.floor(x / SIDE));
    const value = tile ? tile.values[(y % SIDE) * tile.width + (x % SIDE)] : NaN;
    const shown = number(value, tile?.exact ?? false);
    const name = (labels, place) => {
      const [first, last] = spans(place, step, labels.length);
      return first === last ? fenced(labels[first]) : `${fenced(labels[first])} … ${fenced(labels[last])}`;
    };
    const kind = ofHowMany(y * step, x * step, step, this.labels.rows.length, this.labels.columns.length, this.how);
    const { layer, head } = this.state.values;
    this.readout.textContent = this.source.switches?.told(this.group.layers[layer], head) || `${name(this.labels.rows, row)} → ${name(this.labels.columns, column)}: ${shown}${kind}${tile && !tile.exact ? ", of some rows" : ""}`;
    Object.assign(this.readout.dataset, { value: Number.isNaN(value) ? "" : String(value), row: spans(row, step, this.labels.rows.length)[0], column: spans(column, step, this.labels.columns.length)[0] });
    this.canvas.setAttribute("aria-label", `Matrix of ${this.group.title}: from the word of a row to that of a column. ${this.readout.textContent}`);
    const notes = [...new Set(there.map((one) => one.note).filter(Boolean))];
    const cells = step === 1 ? "" : `Level ${level}: each cell stands for ${step} × ${step} weights.`;
    const said = notes.length ? ` Shown: ${notes.join("; ")}.` : "";
    const missing = places.length - there.length ? ` ${places.length - there.length} of ${places.length} tiles are on their way.` : "";
    const { error } = this.pyramid;
    this.level.textContent = error ? `Not all of it came, and it is asked for again in a while: ${error}` : `${cells}${said}${missing}`;
    this.legend.replaceChildren(...legend(scaleOf(this.group, this.top), `${SIGNED.includes(this.group.measure) ? "±" : ""}${number(this.top ?? 0, false)}`, this.rooted));
  }
}
