// What is drawn on a canvas, as SVG: the calls of a canvas' context that the views use, of which each becomes an element.

import { drawn } from "./elements.js";

// Pixels of a picture that become rectangles; larger ones stay pixels.
const RECTANGLES = 10_000;
// What XML cannot hold.
const UNWRITABLE = /[\ufffe\uffff]|\p{Cs}/gu;

export class SvgContext {
  constructor(width, height) {
    this.root = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
    this.group = this.root;
    this.ruler = document.createElement("canvas").getContext("2d");
    Object.assign(this, { font: "12px sans-serif", fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, textAlign: "left" });
    [this.stack, this.clips] = [[], 0];
  }

  save() {
    const { group, font, fillStyle, strokeStyle, lineWidth, textAlign } = this;
    this.stack.push({ group, font, fillStyle, strokeStyle, lineWidth, textAlign });
  }

  restore() {
    Object.assign(this, this.stack.pop());
  }

  translate(x, y) {
    this.enter({ transform: `translate(${short(x)} ${short(y)})` });
  }

  rotate(angle) {
    this.enter({ transform: `rotate(${short((angle * 180) / Math.PI)})` });
  }

  beginPath() {}

  /** Of paths there are rectangles alone, to clip by. */
  rect(...given) {
    this.path = given;
  }

  clip() {
    const id = `clip${(this.clips += 1)}`;
    this.add("clipPath", { id }).append(drawn("rect", box(...this.path)));
    this.enter({ "clip-path": `url(#${id})` });
  }

  line(x1, y1, x2, y2, opacity) {
    this.add("line", { x1: short(x1), y1: short(y1), x2: short(x2), y2: short(y2), "stroke-opacity": opacity, ...this.pen() });
  }

  measureText(text) {
    this.ruler.font = this.font;
    return this.ruler.measureText(text);
  }

  fillText(text, x, y) {
    const [, size, family] = /^([\d.]+)px (.*)$/.exec(this.font);
    const anchor = { left: "start", center: "middle", right: "end" }[this.textAlign];
    // not dominant-baseline, which some programs do not know
    this.add("text", {
      x: short(x), y: short(y), dy: "0.35em", "font-size": size, "font-family": family, "text-anchor": anchor, fill: this.fillStyle,
      text: text.replace(UNWRITABLE, "⌁"),
    });
  }

  fillRect(...given) {
    this.add("rect", { ...box(...given), fill: this.fillStyle });
  }

  strokeRect(...given) {
    this.add("rect", { ...box(...given), fill: "none", ...this.pen() });
  }

  /** A canvas of a pixel a cell, or a part of it. */
  drawImage(image, ...given) {
    const [left, top, wide, high] = (given.length > 4 ? given : [0, 0, image.width, image.height]).slice(0, 4).map(Math.ceil);
    const [x, y, width, height] = given.slice(-4);
    this.save();
    this.enter({ transform: `translate(${short(x)} ${short(y)}) scale(${width / wide} ${height / high})`, "shape-rendering": "crispEdges" });
    if (wide * high > RECTANGLES) {
      const part = document.createElement("canvas");
      [part.width, part.height] = [wide, high];
      part.getContext("2d").drawImage(image, left, top, wide, high, 0, 0, part.width, part.height);
      this.add("image", { ...box(0, 0, wide, high), preserveAspectRatio: "none", "image-rendering": "pixelated", href: part.toDataURL() });
    } else {
      const { data } = image.getContext("2d").getImageData(left, top, wide, high);
      for (let cell = 0; cell < wide * high; cell += 1) {
        const fill = `rgb(${data.slice(4 * cell, 4 * cell + 3).join(",")})`;
        this.add("rect", { x: cell % wide, y: Math.floor(cell / wide), width: 1, height: 1, fill });
      }
    }
    this.restore();
  }

  add(tag, attributes) {
    return this.group.appendChild(drawn(tag, attributes));
  }

  enter(attributes) {
    this.group = this.add("g", attributes);
  }

  pen() {
    return { stroke: this.strokeStyle, "stroke-width": this.lineWidth };
  }
}

function box(x, y, width, height) {
  return { x: short(x), y: short(y), width: short(width), height: short(height) };
}

function short(value) {
  return Number(value.toFixed(3));
}
