// Multi-head attention as models use it: keys and values that are kept, queries that come one after another, and a record of what was computed.
import { attend } from "../formula/attend.js";
import { MASKS, both } from "../formula/masks.js";
import { Matrix } from "../formula/matrix.js";
import { alibi, relative_bias, rotary, slopes } from "../formula/positions.js";
import { keyed } from "../formula/scores.js";
import { Growing, linear } from "./linear.js";

/** What a model has read and written so far: caches and records of its attentions by the paths of their modules, and the options of the computation. */
export class State {
  /** `off` lists {module, head}; scores are divided by `temperature`; `normalizer` and `mask` replace the model's, or are added to them. */
  constructor({ off = [], temperature = 1, normalizer = null, mask = null } = {}) {
    this.off = new Set(off.map(({ module, head }) => `${module} ${head}`));
    this.temperature = temperature;
    this.normalizer = normalizer;
    this.mask = mask ? MASKS[mask]() : null;
    [this.caches, this.records] = [new Map(), new Map()];
    this.length = 0;
  }

  /** The keys and values that an attention has kept. */
  cache(path, heads) {
    if (!this.caches.has(path)) this.caches.set(path, new Cache(heads));
    return this.caches.get(path);
  }

  /**
   * Attend from the queries (Tq, D) of one head to keys and values that were kept, record it, and return the context (Tq, Dv), zeros if the head is
   * switched off. `kept` has the keys as they were projected, those that the score reads, and the values.
   */
  attend(path, head, query, kept, { score, normalizer, mask = MASKS.none(), isMasked = true, bias = null, weighting = null, start = 0 }) {
    const { scores, weights, context } = attend(query, kept.lowered, kept.values, {
      score, bias, weighting, start, temperature: this.temperature,
      normalizer: this.normalizer ?? normalizer, mask: isMasked && this.mask ? both(mask, this.mask) : mask,
    });
    if (!this.records.has(path)) this.records.set(path, []);
    const heads = this.records.get(path);
    heads[head] ??= { kept, query: new Growing(query.columns), scores: [], weights: [], factors: [] };
    heads[head].query.append(query);
    for (let row = 0; row < query.rows; row++) {
      heads[head].scores.push(scores.row(row));
      heads[head].weights.push(weights.row(row));
      heads[head].factors.push(weighting && ((key) => weighting(start + row, key)));
    }
    return this.off.has(`${path} ${head}`) ? new Matrix(context.rows, context.columns) : context;
  }

  /** The weights (queries, keys) of each head of an attention so far. */
  weights(path) {
    return (this.records.get(path) ?? []).map(({ weights, kept }) => stacked(weights, kept.keys.rows));
  }
}

/** Rows of which later ones may be longer, as a matrix. */
export function stacked(rows, columns, rest = 0) {
  const matrix = new Matrix(rows.length, columns, new Float32Array(rows.length * columns).fill(rest));
  rows.forEach((row, index) => matrix.row(index).set(row));
  return matrix;
}

/** The keys and values of each head, which grow. */
class Cache {
  constructor(heads) {
    this.heads = Array.from({ length: heads }, () => ({ keys: null, lowered: null, values: null }));
    this.length = 0;
  }
}

/** Append keys, what the score reads of them, and values to those of a head. */
export function keep(kept, keys, lowered, values) {
  for (const [name, rows] of Object.entries({ keys, lowered, values })) {
    kept[name] ??= new Growing(rows.columns);
    kept[name].append(rows);
  }
}

/** The score of an attention, for a head, whose parameters may have an axis of heads. */
export function scoreOf(name, parameters, head = 0, more = {}) {
  const own = { ...more };
  for (const matrix of ["weight", "query_weight", "key_weight"]) if (parameters.has(matrix)) own[matrix] = parameters.matrix(matrix, head);
  for (const vector of ["bias", "v"]) {
    if (!parameters.has(vector)) continue;
    const numbers = parameters.vector(vector);
    const width = own.query_weight?.columns ?? own.weight.columns;
    own[vector] = numbers.length > width ? numbers.subarray(head * width, (head + 1) * width) : numbers;
  }
  if (name === "gated" && own.bias) own.bias = own.bias[0];
  return keyed(name, own);
}

/** H attentions beside each other: project, split heads, attend, merge. */
export class MultiHeadAttention {
  /** `position` is that inside the attention: rotary, alibi, relative_bias, or another name for none. */
  constructor(parameters, { width, heads, key_value_heads, score, normalizer }, { position = "none", isCausal = false } = {}) {
    this.path = parameters.path;
    [this.query, this.key, this.value, this.output] = ["query_projection", "key_projection", "value_projection", "output"].map((name) => parameters.linear(name));
    this.heads = heads;
    this.width = width / heads;
    this.group = heads / (key_value_heads ?? heads);
    this.normalizer = normalizer;
    this.isCausal = isCausal;
    this.rotates = position === "rotary";
    this.scores = Array.from({ length: heads }, (_, head) => scoreOf(score, parameters.at("score"), head));
    this.biases = Array.from({ length: heads }, (_, head) => {
      if (position === "alibi") return alibi(slopes(heads)[head]);
      return position === "relative_bias" ? relative_bias(parameters.at("position").matrix("table"), head) : null;
    });
  }

  /** Attend from the next positions of a sequence (T, E) to these and to those before. */
  toSelf(features, state) {
    const start = state.cache(this.path, this.heads).length;
    this.remember(features, state);
    return this.recall(features, state, start);
  }

  /** Keep the keys and values of features (T, E). */
  remember(features, state) {
    const cache = state.cache(this.path, this.heads);
    const [keys, values] = [linear(this.key, features), linear(this.value, features)];
    for (let head = 0; head < this.heads; head++) {
      const from = Math.floor(head / this.group) * this.width;
      const key = this.turned(columns(keys, from, this.width), cache.length);
      keep(cache.heads[head], key, this.scores[head].key(key), columns(values, from, this.width));
    }
    cache.length += features.rows;
  }

  /** Attend from features (T, E), the first at position `start`, to what was kept; null for the attention to another text. */
  recall(features, state, start = null) {
    const queries = linear(this.query, features);
    const merged = new Matrix(features.rows, this.heads * this.width);
    for (let head = 0; head < this.heads; head++) {
      const query = this.turned(columns(queries, head * this.width, this.width), start ?? 0);
      const context = state.attend(this.path, head, query, state.cache(this.path).heads[head], {
        score: this.scores[head].score, normalizer: this.normalizer, mask: this.isCausal ? MASKS.causal() : MASKS.none(),
        isMasked: start !== null, bias: this.biases[head], start: start ?? 0,
      });
      for (let row = 0; row < features.rows; row++) merged.row(row).set(context.row(row), head * this.width);
    }
    return linear(this.output, merged);
  }

  turned(features, start) {
    return this.rotates ? rotary(features, start) : features;
  }
}

function columns(matrix, first, count) {
  const part = new Matrix(matrix.rows, count);
  for (let row = 0; row < matrix.rows; row++) part.row(row).set(matrix.row(row).subarray(first, first + count));
  return part;
}
