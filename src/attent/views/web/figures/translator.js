// The translator of the course (runs/phrases, page 2), whose weights the site has beside its pages: one encoder layer and one decoder layer
// with post-norm and sinusoidal positions, as in models/transformer_layers.py.
import { attend } from "../formula/attend.js";
import { MASKS } from "../formula/masks.js";
import { Matrix, tabulate, timesTransposed } from "../formula/matrix.js";
import { sinusoidal } from "../formula/positions.js";
import { halves } from "../unpacked.js";

export const BEGIN = 2;
const END = 3;
const NAMES = { 1: "<unk>", [BEGIN]: "<s>", [END]: "</s>" };
const [HEADS, EPSILON, LONGEST] = [4, 1e-5, 30];

const bare = (piece) => piece.trimStart();
const plus = (a, b) => tabulate(a.rows, a.columns, (row, column) => a.at(row, column) + b.at(row, column));

/** A part of the columns of a matrix. */
export function columnsOf(matrix, start, count) {
  return tabulate(matrix.rows, count, (row, column) => matrix.at(row, start + column));
}

export class Translator {
  /** `data` has the pieces of source and target, and the shapes of the weights, which are 16-bit floats one after another in base64. */
  constructor({ source, target, shapes, weights }) {
    const numbers = halves(Uint8Array.from(atob(weights), (letter) => letter.charCodeAt(0)));
    let start = 0;
    this.weights = Object.fromEntries(Object.entries(shapes).map(([name, [rows, columns]]) => {
      const matrix = new Matrix(rows, columns, numbers.subarray(start, start + rows * columns));
      start += rows * columns;
      return [name, matrix];
    }));
    this.pieces = target;
    this.ids = new Map(source.map((piece, id) => [bare(piece), id]).filter(([word]) => word));
    this.words = new Set(this.ids.keys());
  }

  /** The word of a target token, without the space before it. */
  label(id) {
    return NAMES[id] ?? bare(this.pieces[id]);
  }

  text(ids) {
    return bare(ids.filter((id) => id !== END).map((id) => this.pieces[id]).join(""));
  }

  /** Embeddings (T, E) of tokens, times √E, with or without their positions. */
  embedded(side, ids, hasPositions = true) {
    const table = this.weights[`${side}_embedding.tokens.weight`];
    const places = sinusoidal(ids.length, table.columns);
    return tabulate(ids.length, table.columns, (row, column) =>
      Math.sqrt(table.columns) * table.at(ids[row], column) + (hasPositions ? places.at(row, column) : 0));
  }

  linear(name, x) {
    const [product, bias] = [timesTransposed(x, this.weights[`${name}.weight`]), this.weights[`${name}.bias`]];
    return bias ? tabulate(x.rows, product.columns, (row, column) => product.at(row, column) + bias.data[column]) : product;
  }

  norm(name, x) {
    const [gain, bias] = [this.weights[`${name}.norm.weight`].data, this.weights[`${name}.norm.bias`].data];
    const statistics = x.list().map((row) => {
      const mean = row.reduce((sum, value) => sum + value, 0) / row.length;
      return [mean, Math.sqrt(row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / row.length + EPSILON)];
    });
    return tabulate(x.rows, x.columns, (row, column) => ((x.at(row, column) - statistics[row][0]) / statistics[row][1]) * gain[column] + bias[column]);
  }

  /** Multi-head attention of queries to a memory: q and k of each head, weights and scores by head, and the output (Tq, E). */
  attention(name, x, memory, options = {}) {
    const [q, k, v] = ["query", "key", "value"].map((part, place) => this.linear(`${name}.${part}_projection`, place ? memory : x));
    const width = q.columns / HEADS;
    const heads = Array.from({ length: HEADS }, (_, head) => attend(...[q, k, v].map((part) => columnsOf(part, head * width, width)), options));
    const merged = tabulate(x.rows, q.columns, (row, column) => heads[Math.floor(column / width)].context.at(row, column % width));
    return { heads: heads.map(({ weights }) => weights.list()), scores: heads.map(({ scores }) => scores), output: this.linear(`${name}.output`, merged) };
  }

  feedForward(name, x) {
    const wide = this.linear(`${name}.widen`, x);
    return this.linear(`${name}.narrow`, tabulate(wide.rows, wide.columns, (row, column) => Math.max(wide.at(row, column), 0)));
  }

  /** Embeddings, self-attention and memory of a source sentence. */
  encode(words, hasPositions = true) {
    const layer = "encoder.layers.0";
    const x = this.embedded("source", words.map((word) => this.ids.get(word) ?? 1), hasPositions);
    const self = this.attention(`${layer}.self_attention`, x, x);
    const between = this.norm(`${layer}.around_attention`, plus(x, self.output));
    return { x, self, memory: this.norm(`${layer}.around_feed_forward`, plus(between, this.feedForward(`${layer}.feed_forward`, between))) };
  }

  /** Self- and cross-attention of a target that begins with BEGIN, and the probabilities of the token after each of its tokens. */
  decode(memory, ids, mask = MASKS.causal()) {
    const layer = "decoder.layers.0";
    const y = this.embedded("target", ids);
    const self = this.attention(`${layer}.self_attention`, y, y, { mask });
    const read = this.norm(`${layer}.around_self`, plus(y, self.output));
    const cross = this.attention(`${layer}.cross_attention`, read, memory);
    const found = this.norm(`${layer}.around_cross`, plus(read, cross.output));
    const features = this.norm(`${layer}.around_feed_forward`, plus(found, this.feedForward(`${layer}.feed_forward`, found)));
    return { self, cross, features, logits: this.linear("to_logits", features) };
  }

  /** Greedy search: the ids and words of the translation, with END, and what the last pass of encoder and decoder computed. */
  translate(words, hasPositions = true) {
    const encoded = this.encode(words, hasPositions);
    const ids = [BEGIN];
    let decoded;
    while (ids.at(-1) !== END && ids.length < LONGEST) {
      decoded = this.decode(encoded.memory, ids);
      const last = decoded.logits.row(ids.length - 1);
      ids.push(last.indexOf(Math.max(...last)));
    }
    const written = ids.slice(1);
    return { words, encoded, decoded, ids: written, labels: written.map((id) => this.label(id)) };
  }
}
