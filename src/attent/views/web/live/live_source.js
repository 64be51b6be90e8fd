// The source of a view whose maps the engine in the page computed.

import { cut, mean, pooled } from "../pooling.js";
import { direction, plainTexts } from "../words.js";
import { statistics } from "./statistics.js";
import { Sum } from "./sum.js";

const TILE = 256;
const THUMBNAIL = 48;
// Normalizers whose rows do not sum to one.
const SUMLESS = ["sigmoid", "identity"];

export class LiveSource {
  /** `texts` are labels by name, of which a group has as many as its map has rows or columns; `picture` is described as a scene's, with its pixels. */
  constructor(engine, state, number, { title, texts, normalizer, picture = null }) {
    this.engine = engine;
    this.state = state;
    this.number = number;
    this.normalizer = normalizer;
    this.picture = picture;
    this.maps = new Map(engine.maps(state).map((group) => [group.name, group]));
    const groups = [...this.maps.values()].map(({ layers, ...group }) => {
      const { rows: height, columns: width } = layers[0][0];
      return {
        ...group, layers: engine.groups.find(({ name }) => name === group.name).layers, height, width,
        distribution: !SUMLESS.includes(normalizer), measure: "weights", base: group.name, note: "", level: 0,
      };
    });
    const named = groups.flatMap(({ rows, columns, height, width }) => [[rows, height], [columns, width]]);
    const lengths = Object.fromEntries(named);
    const cutTexts = Object.entries(lengths).map(([name, length]) => [name, Array.from({ length }, (_, place) => texts[name]?.[place] ?? String(place))]);
    this.scene = plainTexts({
      title, groups, notes: engine.description.about ? [engine.description.about] : [], picture: picture?.about, texts: Object.fromEntries(cutTexts.map(([name, labels]) => [name, { labels, direction: direction(labels) }])),
    });
  }

  about(group) {
    return this.scene.groups.find(({ name }) => name === group);
  }

  /** The map of one head, or the mean of all. */
  matrix(group, layer, head) {
    const heads = this.maps.get(group).layers[layer].map(({ rows, columns, data }) => ({ height: rows, width: columns, values: data }));
    return head === "mean" ? mean(heads) : heads[head];
  }

  async row(group, layer, head, query) {
    const { width, values } = this.matrix(group, layer, head);
    return { values: values.slice(query * width, (query + 1) * width), exact: true };
  }

  async column(group, layer, head, key) {
    const { height, width, values } = this.matrix(group, layer, head);
    return { values: Float32Array.from({ length: height }, (_, row) => values[row * width + key]), exact: true };
  }

  async tile(group, layer, head, level, y, x, how = "mean") {
    const whole = pooled(this.matrix(group, layer, head), 2 ** level, how);
    const [top, left] = [y * TILE, x * TILE];
    return { ...cut(whole, top, left, Math.min(TILE, whole.height - top), Math.min(TILE, whole.width - left)), exact: true, note: "" };
  }

  async thumbnail(group, layer, head) {
    const whole = this.matrix(group, layer, head);
    const level = Math.max(0, Math.ceil(Math.log2(Math.max(whole.height, whole.width) / THUMBNAIL)));
    const part = pooled(whole, 2 ** level, "mean");
    return { ...part, top: part.values.reduce((most, value) => Math.max(most, Math.abs(value)), 0) };
  }

  async summary(group) {
    const { distribution, itself } = this.about(group);
    const figures = this.maps.get(group).layers.map((heads) => heads.map((matrix) => statistics(matrix, distribution, itself)));
    return { figures, every: 1 };
  }

  /** The pixels of the picture, red, green and blue of each. */
  async pixels() {
    return this.picture.rgb;
  }

  /** Queries, keys, values, scores and weights of one head. */
  parts(group, layer, head) {
    return this.engine.parts(this.state, group, layer, head);
  }

  /** What a view shows below the matrix. */
  below(state) {
    return [new Sum(this, state).node];
  }
}
