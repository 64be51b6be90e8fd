// A picture whose patches are tokens: how a patch, the vector in front or a word looks at the patches, over the picture.

import { share } from "./colours.js";
import { element, moved } from "./elements.js";
import { combined } from "./selection.js";
import { latest } from "./state.js";
import { number, visible } from "./words.js";

// Pixels of the picture's longer side, and the colour that is laid over it: orange, which all tell from grey. Black and white beneath it
// are brought to greys, since it is dim over black.
const SIDE = 320;
const OVER = [255, 90, 0];
const GREYS = [90, 205];

export class Picture {
  constructor(source, state) {
    this.source = source;
    this.state = state;
    this.about = source.scene.picture;
    this.once = latest((error) => { this.readout.textContent = error.message; });
    this.front = element("div", { class: "options" });
    this.canvas = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "picture" });
    this.readout = element("output", { class: "readout", "aria-live": "polite" });
    this.node = element("section", { class: "card picture", "aria-label": "picture" }, element("h2", { text: "Picture" }),
      this.front, this.readout, this.canvas);
    const labels = source.scene.texts[this.about.text].labels;
    for (let place = 0; place < this.about.before; place += 1) {
      this.front.append(element("button", { type: "button", text: `how ${visible(labels[place])} looks`, on: { click: () => this.look(place) } }));
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

  /** Choose a patch: how it looks, or which words look at it if the rows are words. */
  choose(place) {
    this.state.set({ side: this.group().rows === this.about.text ? "row" : "column", place });
  }

  /** Fetch how the chosen place looks; unless one is chosen, the vector in front, or the word that was shown. */
  open() {
    const group = this.group();
    this.node.hidden = group.columns !== this.about.text;
    if (this.node.hidden) return;
    const { layer, head, side, place, places } = this.state.values;
    const rows = this.source.scene.texts[group.rows].labels;
    this.isPatch = group.rows === this.about.text;
    this.place = Math.min(side === "row" ? place : this.isPatch ? 0 : this.place ?? 0, rows.length - 1);
    const several = side === "row" && places.length > 1;
    this.name = several ? `the ${this.state.values.combine} of ${places.length} tokens` : visible(rows[this.place]);
    this.once(several ? combined(this.source, this.state.values) : this.source.row(group.name, layer, head, this.place), (line) => { this.line = line; this.draw(); });
  }

  painted() {
    const { height, width } = this.about;
    const canvas = document.createElement("canvas");
    [canvas.height, canvas.width] = [height, width];
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    const [black, white] = GREYS;
    for (let pixel = 0; pixel < height * width; pixel += 1) {
      image.data.set(this.bytes.subarray(3 * pixel, 3 * pixel + 3).map((value) => black + (value * (white - black)) / 255), 4 * pixel);
      image.data[4 * pixel + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    return canvas;
  }

  draw() {
    const { height, width, grid: [down, across], before } = this.about;
    const scale = Math.min(SIDE, Math.max(this.node.clientWidth - 34, 120)) / Math.max(height, width);
    [this.canvas.width, this.canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
    const context = this.canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(this.shown, 0, 0, this.canvas.width, this.canvas.height);
    const [tall, wide] = [this.canvas.height / down, this.canvas.width / across];
    const patches = this.line.values.subarray(before);
    const top = patches.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0);
    patches.forEach((value, patch) => {
      const [row, column] = [Math.floor(patch / across), patch % across];
      context.fillStyle = `rgba(${OVER.join(",")},${(0.85 * share(value, top)).toFixed(3)})`;
      context.fillRect(column * wide, row * tall, wide, tall);
    });
    this.grid(context, down, across, tall, wide);
    const total = patches.reduce((sum, value) => sum + (value || 0), 0);
    this.readout.textContent = `${this.name} has ${number(total)} of its weight on the patches, ${number(top, this.line.exact)} on one at most`;
    this.canvas.setAttribute("aria-label", `Picture with ${down} by ${across} patches. Arrow keys choose a patch. ${this.readout.textContent}`);
  }

  grid(context, down, across, tall, wide) {
    context.strokeStyle = "rgba(128,128,128,0.5)";
    context.lineWidth = 1;
    for (let row = 1; row < down; row += 1) context.strokeRect(-1, Math.round(row * tall) + 0.5, this.canvas.width + 2, 0);
    for (let column = 1; column < across; column += 1) context.strokeRect(Math.round(column * wide) + 0.5, -1, 0, this.canvas.height + 2);
    const { side, place } = this.state.values;
    const patch = (this.isPatch ? this.place : side === "column" ? place : -1) - this.about.before;
    if (patch < 0) return;
    context.strokeStyle = "#1f77b4";
    context.lineWidth = 3;
    context.strokeRect((patch % across) * wide, Math.floor(patch / across) * tall, wide, tall);
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
