// The picture that a run reads: one of its examples, a file, or what is drawn with mouse, finger or keys.

import { bitmap, element, moved } from "../elements.js";

// Pixels of the canvas, and of its frame in which the brush is so wide.
const SIDE = 240;
const BRUSH = 1 / 9;

export class Pictures {
  /** `examples` are the bytes of all examples; `change(picture)` is called with {height, width, channels, values} of the model's size. */
  constructor({ picture, examples }, bytes, change) {
    Object.assign(this, picture);
    this.change = change;
    this.canvas = element("canvas", { width: SIDE, height: Math.round((SIDE * this.height) / this.width), tabindex: 0, role: "application", "aria-roledescription": "drawing" });
    this.context = this.canvas.getContext("2d", { willReadFrequently: true });
    this.status = element("p", { class: "about", role: "status" });
    const size = this.height * this.width * this.channels;
    this.examples = Array.from({ length: examples?.count ?? 0 }, (_, index) => bytes.subarray(index * size, (index + 1) * size));
    const shown = this.examples.map((values, index) => element("button", {
      type: "button", class: "example", "aria-label": `example ${index + 1}`, on: { click: () => this.show(values) },
    }, this.painted(values)));
    const file = element("input", { type: "file", accept: "image/*", on: { change: () => this.read(file.files[0]) } });
    const opened = element("label", { class: "choice file" }, file, element("span", { text: "open a picture" }));
    const clear = element("button", { type: "button", text: "clear", on: { click: () => this.clear() } });
    this.node = element("section", { class: "input", "aria-label": "the picture" }, this.canvas,
      element("p", { class: "about", text: "Draw with mouse or finger; by keys, arrows move and Space draws." }),
      element("div", { class: "options" }, clear, opened), element("div", { class: "options examples" }, ...shown), this.status);
    this.cell = [0, 0];
    this.listen();
  }

  /** Begin with the first example, or an empty picture. */
  start() {
    if (this.examples.length) this.show(this.examples[0]);
    else this.clear();
  }

  show(values) {
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(this.painted(values), 0, 0, this.canvas.width, this.canvas.height);
    // what a file held is not seen again through a canvas
    this.send(values);
    this.isFresh = true;
  }

  clear() {
    this.context.fillStyle = "#000";
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.isFresh = false;
    this.sample();
  }

  /** Bytes of the model's size as a canvas. */
  painted(values) {
    return bitmap(this.height, this.width, (bytes) => {
      for (let pixel = 0; pixel < this.height * this.width; pixel++) {
        for (let channel = 0; channel < 3; channel++) bytes[4 * pixel + channel] = values[pixel * this.channels + (this.channels === 3 ? channel : 0)];
      }
    });
  }

  async read(file) {
    if (!file) return;
    this.status.textContent = "";
    try {
      const picture = await createImageBitmap(file, { resizeWidth: this.canvas.width, resizeHeight: this.canvas.height });
      this.context.drawImage(picture, 0, 0);
      this.isFresh = true;
      this.sample();
    } catch {
      this.status.textContent = "This file is no picture that the browser can open.";
    }
  }

  /** The canvas in the model's size: each pixel is the mean of those that it covers. */
  sample() {
    const { width, height } = this.canvas;
    const { data } = this.context.getImageData(0, 0, width, height);
    const values = new Uint8Array(this.height * this.width * this.channels);
    const span = (place, count, length) => [Math.floor((place * length) / count), Math.floor(((place + 1) * length) / count)];
    for (let row = 0; row < this.height; row++) {
      for (let column = 0; column < this.width; column++) {
        const [[top, bottom], [left, right]] = [span(row, this.height, height), span(column, this.width, width)];
        const sums = [0, 0, 0];
        for (let y = top; y < bottom; y++) for (let x = left; x < right; x++) for (let channel = 0; channel < 3; channel++) sums[channel] += data[4 * (y * width + x) + channel];
        const means = sums.map((sum) => sum / ((bottom - top) * (right - left)));
        const at = (row * this.width + column) * this.channels;
        if (this.channels === 3) values.set(means, at);
        else values[at] = 0.299 * means[0] + 0.587 * means[1] + 0.114 * means[2];
      }
    }
    this.send(values);
  }

  send(values) {
    this.canvas.setAttribute("aria-label", "the picture that the model reads; draw on it");
    this.change({ height: this.height, width: this.width, channels: this.channels, values });
  }

  listen() {
    const { canvas, context } = this;
    let last = null;
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      return [((event.clientX - box.left) / box.width) * canvas.width, ((event.clientY - box.top) / box.height) * canvas.height];
    };
    const draw = (event) => {
      const here = at(event);
      Object.assign(context, { strokeStyle: "#fff", lineWidth: BRUSH * canvas.width, lineCap: "round" });
      context.beginPath();
      context.moveTo(...last);
      context.lineTo(...here);
      context.stroke();
      last = here;
      this.soon();
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      // an example is not drawn over
      if (this.isFresh) this.clear();
      last = at(event);
      draw(event);
    });
    canvas.addEventListener("pointermove", (event) => { if (last) draw(event); });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { last = null; });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** Move by the model's pixels, and draw one. */
  key(event) {
    const [row, column] = this.cell;
    const next = moved(event.key, row * this.width + column, this.height * this.width, this.width);
    if (next === undefined && event.key !== " ") return;
    event.preventDefault();
    if (next !== undefined) this.cell = [Math.floor(next / this.width), next % this.width];
    else {
      if (this.isFresh) this.clear();
      const [wide, high] = [this.canvas.width / this.width, this.canvas.height / this.height];
      this.context.fillStyle = "#fff";
      this.context.fillRect(column * wide, row * high, wide, high);
      this.sample();
    }
    this.status.textContent = `Row ${this.cell[0] + 1}, column ${this.cell[1] + 1}.`;
  }

  /** Read what is drawn, once before the next frame. */
  soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.sample(); });
  }
}
