// A picture whose patches are tokens: the weights of a row over the picture, which stays recognisable below.

import { legend, linked, overlay, scaleOf, share, token, topOf } from "./colours.js";
import { bitmap, element, moved } from "./elements.js";
import { combined } from "./selection.js";
import { latest } from "./state.js";
import { short, strongest, visible } from "./words.js";

// Pixels of the picture's longer side, and how opaque the overlay is at most.
const SIDE = 400;
const OPAQUE = 0.6;

export class Picture {
  constructor(source, state) {
    this.source = source;
    this.state = state;
    this.about = source.scene.picture;
    this.once = latest((error) => { this.readout.textContent = error.message; });
    this.front = element("div", { class: "options" });
    this.canvas = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "picture" });
    this.readout = element("output", { class: "readout", "aria-live": "polite" });
    this.legend = element("div", { class: "legend" });
    this.node = element("section", { class: "picture", "aria-label": "picture" }, this.canvas, this.legend, this.readout, this.front);
    const labels = source.scene.texts[this.about.text].labels;
    for (let place = 0; place < this.about.before; place += 1) {
      this.front.append(element("button", { type: "button", text: `weights from ${visible(labels[place])}`, on: { click: () => this.look(place) } }));
    }
    this.listen();
    this.once(source.pixels(), (bytes) => {
      this.bytes = bytes;
      this.shown = this.painted();
      state.follow(() => this.open());
    });
  }

  group() {
    return this.source.scene.groups.find((one) => one.name === this.state.values.group);
  }

  look(place) {
    this.state.set({ side: "row", place });
  }

  /** Select a patch: its own row, or the words whose weights it has, if the rows are words. */
  choose(place) {
    this.state.set({ side: this.group().rows === this.about.text ? "row" : "column", place });
  }

  /** Fetch the weights of the selected row; unless one is selected, those of the vector in front, or of the word that was shown. */
  open() {
    const group = this.group();
    this.node.hidden = group.columns !== this.about.text;
    if (this.node.hidden) return;
    const { layer, head, side, place, places } = this.state.values;
    const rows = this.source.scene.texts[group.rows].labels;
    this.isPatch = group.rows === this.about.text;
    this.place = Math.min(side === "row" ? place : this.isPatch ? 0 : this.place ?? 0, rows.length - 1);
    const several = side === "row" && places.length > 1;
    this.name = several ? `the ${this.state.values.combine} of ${places.length} words` : visible(rows[this.place]);
    this.node.classList.add("former");
    this.once(several ? combined(this.source, this.state.values) : this.source.row(group.name, layer, head, this.place), (line) => {
      this.node.classList.remove("former");
      this.off = this.source.switches?.told(group.layers[layer], head) ?? "";
      this.line = this.off ? { ...line, values: new Float32Array(line.values.length) } : line;
      this.draw();
    });
  }

  painted() {
    const { height, width } = this.about;
    return bitmap(height, width, (bytes) => {
      for (let pixel = 0; pixel < height * width; pixel += 1) bytes.set(this.bytes.subarray(3 * pixel, 3 * pixel + 3), 4 * pixel);
    });
  }

  draw() {
    const { height, width, grid: [down, across], before } = this.about;
    const longer = Math.min(SIDE, Math.max(this.node.clientWidth, 120)) / Math.max(height, width);
    [this.canvas.width, this.canvas.height] = [Math.round(width * longer), Math.round(height * longer)];
    const context = this.canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(this.shown, 0, 0, this.canvas.width, this.canvas.height);
    const [tall, wide] = [this.canvas.height / down, this.canvas.width / across];
    const patches = this.line.values.subarray(before);
    const top = topOf(patches);
    const scale = scaleOf(this.group(), top, true);
    context.fillStyle = overlay();
    patches.forEach((value, patch) => {
      context.globalAlpha = OPAQUE * share(value, scale, this.place);
      context.fillRect((patch % across) * wide, Math.floor(patch / across) * tall, wide, tall);
    });
    context.globalAlpha = 1;
    this.frame(context, across, tall, wide);
    const total = patches.reduce((sum, value) => sum + (value || 0), 0);
    const most = linked(patches, scale, "row", this.place).length ? strongest(patches) : -1;
    const where = most < 0 ? "; no patch stands out" : `; most in row ${Math.floor(most / across) + 1}, column ${(most % across) + 1}: ${short(patches[most])}`;
    this.readout.textContent = this.off || `${this.name}: ${short(total)} on the picture${where}`;
    this.legend.replaceChildren(...legend(scale, short(top)));
    this.canvas.setAttribute("aria-label", `Picture with ${down} by ${across} patches. Arrow keys choose a patch. ${this.readout.textContent}`);
  }

  /** Frame the patch that is selected. */
  frame(context, across, tall, wide) {
    const { side, place } = this.state.values;
    const patch = (side === "row" && !this.isPatch ? -1 : place ?? -1) - this.about.before;
    if (patch < 0) return;
    for (const [colour, thick] of [["paper", 5], ["ink", 2]]) {
      Object.assign(context, { strokeStyle: token(colour), lineWidth: thick });
      context.strokeRect((patch % across) * wide, Math.floor(patch / across) * tall, wide, tall);
    }
  }

  listen() {
    const { grid: [down, across], before } = this.about;
    this.canvas.addEventListener("pointermove", (event) => {
      const box = this.canvas.getBoundingClientRect();
      const [row, column] = [Math.floor(((event.clientY - box.top) / box.height) * down), Math.floor(((event.clientX - box.left) / box.width) * across)];
      if (this.state.values.places.length) return;
      if (row >= 0 && column >= 0 && row < down && column < across) this.choose(before + row * across + column);
    });
    this.canvas.addEventListener("keydown", (event) => {
      const { side, place } = this.state.values;
      const chosen = this.isPatch ? this.place : side === "column" ? place : 0;
      const next = moved(event.key, Math.max((chosen ?? 0) - before, 0), down * across, across);
      if (next === undefined) return;
      event.preventDefault();
      this.choose(before + next);
    });
  }
}
