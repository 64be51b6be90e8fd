// The source of a view whose maps the engine in the page computed.

import { topOf } from "../colours.js";
import { EmbeddedSource } from "../embedded_source.js";
import { mean, pooled } from "../pooling.js";
import { direction } from "../words.js";
import { statistics } from "./statistics.js";
import { Sum } from "./sum.js";

const THUMBNAIL = 48;
// Normalizers whose rows do not sum to one.
const SUMLESS = ["sigmoid", "identity"];

export class LiveSource extends EmbeddedSource {
  /** `texts` are labels by name, of which a group has as many as its map has rows or columns; `picture` is described as a scene's, with its pixels. */
  constructor(engine, state, number, { title, texts, normalizer, picture = null }) {
    const maps = engine.maps(state);
    const groups = maps.map(({ layers, ...group }) => {
      const { rows: height, columns: width } = layers[0][0];
      return {
        ...group, layers: engine.groups.find(({ name }) => name === group.name).layers, height, width,
        distribution: !SUMLESS.includes(normalizer), measure: normalizer === "identity" ? "scores" : "weights", base: group.name, note: "", level: 0, numbers: "float32",
      };
    });
    const lengths = groups.flatMap(({ rows, columns, height, width }) => [[rows, height], [columns, width]]);
    const cutTexts = lengths.map(([name, length]) => {
      const labels = Array.from({ length }, (_, place) => texts[name]?.[place] ?? String(place));
      return [name, { labels, direction: direction(labels) }];
    });
    super({ title, groups, notes: engine.description.about ? [engine.description.about] : [], picture: picture?.about, texts: Object.fromEntries(cutTexts) });
    this.maps = new Map(maps.map((group) => [group.name, group]));
    Object.assign(this, { engine, state, number, normalizer, picture });
  }

  /** The map of one head, or the mean of all. */
  matrix(group, layer, head) {
    const heads = this.maps.get(group).layers[layer].map(({ rows, columns, data }) => ({ height: rows, width: columns, values: data }));
    return head === "mean" ? mean(heads) : heads[head];
  }

  async thumbnail(group, layer, head) {
    const whole = this.matrix(group, layer, head);
    const level = Math.max(0, Math.ceil(Math.log2(Math.max(whole.height, whole.width) / THUMBNAIL)));
    const part = pooled(whole, 2 ** level, "mean");
    return { ...part, top: topOf(part.values) };
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

  /** Queries, keys, values, scores and weights of one head, and what multiplies the weights of each row. */
  parts(group, layer, head) {
    const where = [this.state, group, layer, head];
    return { ...this.engine.parts(...where), factors: this.engine.factors(...where) };
  }

  /** What a view shows below the matrix. */
  below(state) {
    return [new Sum(this, state).node];
  }
}
