// The source of a page that has all its numbers inside: see the note of each group for what was pooled or rounded.

import { cut, mean, pooled } from "./pooling.js";
import { plainTexts } from "./words.js";
import { halves, shares, unpacked } from "./unpacked.js";

const TILE = 256;

export class EmbeddedSource {
  constructor(scene = JSON.parse(document.getElementById("scene").textContent)) {
    this.scene = plainTexts(scene);
    this.found = new Map();
  }

  /** How one query looks at every key. */
  async row(group, layer, head, query) {
    return this.line(group, layer, head, query, "rows");
  }

  /** How every query looks at one key. */
  async column(group, layer, head, key) {
    return this.line(group, layer, head, key, "columns");
  }

  /** A tile of the map; level n is of squares of 2ⁿ × 2ⁿ cells, and none is finer than the group's. */
  async tile(group, layer, head, level, y, x, how = "mean") {
    const about = this.about(group);
    const whole = pooled(await this.matrix(group, layer, head), 2 ** Math.max(level - about.level, 0), how);
    const [top, left] = [y * TILE, x * TILE];
    const part = cut(whole, top, left, Math.min(TILE, whole.height - top), Math.min(TILE, whole.width - left));
    return { ...part, exact: about.numbers === "float32", note: about.note };
  }

  /** A head's map small, with the largest weight in it. */
  async thumbnail(group, layer, head) {
    const about = this.about(group);
    const { height, width, tops, signed } = about.thumbnails;
    const bytes = await this.once(`${about.number}.thumbnails`, (found) => found);
    const one = (which) => {
      const start = (layer * about.heads + which) * height * width;
      return { height, width, values: shares(bytes.subarray(start, start + height * width), tops[layer][which], signed[layer]) };
    };
    const made = head === "mean" ? mean(Array.from({ length: about.heads }, (_, which) => one(which))) : one(head);
    return { ...made, top: made.values.reduce((most, value) => Math.max(most, Math.abs(value)), 0) };
  }

  /** Figures of each layer and head, of every row. */
  async summary(group) {
    return { figures: this.about(group).summary, every: 1 };
  }

  /** The pixels of the picture, red, green and blue of each. */
  async pixels() {
    return this.once("picture", (bytes) => bytes);
  }

  about(group) {
    const number = this.scene.groups.findIndex((one) => one.name === group);
    return { number, ...this.scene.groups[number] };
  }

  /** Numbers of a pack, unpacked when they are first looked at. */
  once(name, read) {
    if (!this.found.has(name)) this.found.set(name, unpacked(name).then(read));
    return this.found.get(name);
  }

  /** The map of one head, or the mean of all, at the finest level there is. */
  async matrix(group, layer, head) {
    const about = this.about(group);
    const step = 2 ** about.level;
    const [height, width] = [Math.ceil(about.height / step), Math.ceil(about.width / step)];
    const name = `${about.number}.${layer}.map`;
    const read = (bytes) => {
      if (about.maps) return bytes;
      return about.numbers === "float32" ? new Float32Array(bytes.buffer) : halves(bytes);
    };
    const numbers = await this.once(name, read);
    const one = (which) => {
      const values = numbers.subarray(which * height * width, (which + 1) * height * width);
      return { height, width, values: about.maps ? shares(values, about.maps.tops[layer][which], about.maps.signed[layer]) : values };
    };
    return head === "mean" ? mean(Array.from({ length: about.heads }, (_, which) => one(which))) : one(head);
  }

  // a line has no note of its own: what was rounded stands above, once for all
  async line(group, layer, head, place, side) {
    const about = this.about(group);
    const length = side === "rows" ? about.width : about.height;
    if (about.maps) return { values: await this.kept(about, layer, head, place, side, length), exact: false };
    const matrix = await this.matrix(group, layer, head);
    const values = side === "rows"
      ? matrix.values.slice(place * length, (place + 1) * length)
      : Float32Array.from({ length }, (_, row) => matrix.values[row * about.width + place]);
    return { values, exact: about.numbers === "float32" };
  }

  /** The largest weights of a row or a column; NaN where none is known. */
  async kept(about, layer, head, place, side, length) {
    const values = new Float32Array(length).fill(NaN);
    const count = about.kept[side === "rows" ? 0 : 1];
    if (!count) return values;
    const lines = side === "rows" ? about.height : about.width;
    const total = (about.heads + 1) * lines * count;
    const { places, weights } = await this.once(`${about.number}.${layer}.${side}`, (bytes) => {
      const wide = length > 65536 ? 4 : 2;
      const numbers = bytes.subarray(0, total * wide);
      const kind = wide === 4 ? Uint32Array : Uint16Array;
      return { places: new kind(numbers.buffer, 0, total), weights: halves(bytes.subarray(total * wide)) };
    });
    const start = ((head === "mean" ? about.heads : head) * lines + place) * count;
    for (let one = start; one < start + count; one += 1) values[places[one]] = weights[one];
    return values;
  }
}
