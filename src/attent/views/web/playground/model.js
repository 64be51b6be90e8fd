// A small encoder and decoder with attention, of which every part is a few lines:
//
//   x = E[source] + P          the source words, and their places                  (Tk, d)
//   h = x + softmax(x W_Q (x W_K)ᵀ / √d) x W_V     each word in its context: keys and values
//   s_t = tanh(Y[target before t] + P_t + s_{t−1} R)    what was written so far       (Tq, d)
//   α = normalizer(score(s W_S, h)),  c = α h       the score is the formula that is typed
//   p = softmax(tanh(c C1 + s C2) O)                  the next word
import { MASKS } from "../formula/masks.js";
import { sinusoidal } from "../formula/positions.js";
import { normalize } from "./attention.js";
import { Tensor } from "./gradients.js";
import { scoreOf } from "./score.js";

export const WIDTH = 32;
export const FARTHEST = 24;
export const PERIOD = 100;
const EVERYWHERE = MASKS.none();
const tanhSlope = (_, y) => 1 - y * y;
export const MASK_CHOICES = { none: MASKS.none, causal: MASKS.causal, window: () => MASKS.window({ left: 2, right: 2 }) };

/** Numbers in [0, 1), the same in every language (mulberry32, Tommy Ettinger 2017). */
export function generator(seed) {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let hash = Math.imul(state ^ (state >>> 15), state | 1);
    hash = (hash + Math.imul(hash ^ (hash >>> 7), hash | 61)) ^ hash;
    return ((hash ^ (hash >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The shape and the largest first number of every parameter, in the order in which they are drawn. */
export function shapes(sourceWords, targetWords, d = WIDTH) {
  const narrow = 1 / Math.sqrt(d);
  const matrix = [d, d, Math.sqrt(3) * narrow];
  return {
    // W_V begins small: at first a key says what its word is, and its neighbors add to it as far as they help
    E: [sourceWords, d, 1], Y: [targetWords, d, 1], W_Q: matrix, W_K: matrix, W_V: [d, d, 0.1 * matrix[2]], R: matrix, W_S: matrix,
    C1: [d, d, narrow], C2: [d, d, narrow], O: [d, targetWords, narrow],
    v: [1, d, 1], W: [d, d, narrow], W1: [d, d, narrow], W2: [d, d, narrow],
  };
}

export class Model {
  /** `setup`: tree (of the score), normalizer, mask, and the switches positions, fixed and identity. */
  constructor(setup, sourceWords, targetWords, draw) {
    this.setup = setup;
    this.parameters = {};
    for (const [name, [rows, columns, size]] of Object.entries(shapes(sourceWords, targetWords))) {
      this.parameters[name] = new Tensor(rows, columns, Float64Array.from({ length: rows * columns }, () => size * (2 * draw() - 1)));
    }
    const places = sinusoidal(FARTHEST, WIDTH, 0, PERIOD);
    this.places = new Tensor(FARTHEST, WIDTH, Float64Array.from(places.data));
  }

  embed(tape, table, words, isPlaced) {
    const found = tape.gather(this.parameters[table], words);
    return isPlaced ? tape.add(found, new Tensor(words.length, WIDTH, this.places.data.slice(0, words.length * WIDTH))) : found;
  }

  /** Keys and values (Tk, d) of source words, and the weights of each word on the others. */
  encode(tape, source) {
    const { W_Q, W_K, W_V } = this.parameters;
    const x = this.embed(tape, "E", source, this.setup.positions);
    const [query, key] = this.setup.identity ? [x, x] : [tape.times(x, W_Q), tape.times(x, W_K)];
    const own = normalize(tape, tape.timesTransposed(query, key, 1 / Math.sqrt(WIDTH)), "softmax", EVERYWHERE, source.length);
    return { memory: tape.add(x, tape.times(own, tape.times(x, W_V))), own };
  }

  /** The logits of the word after each of `written`, which begins with [START], and its weights (Tq, Tk) on source words. */
  decode(tape, memory, written) {
    const { R, W_S, C1, C2, O } = this.parameters;
    const states = this.states(tape, this.embed(tape, "Y", written, true), R);
    const weights = this.weights(tape, tape.times(states, W_S), memory);
    const context = tape.times(weights, memory);
    const output = tape.map(tape.add(tape.times(context, C1), tape.times(states, C2)), Math.tanh, tanhSlope);
    return { logits: tape.times(output, O), weights };
  }

  /** States s_t = tanh(x_t + s_{t−1} R) of inputs x (T, d) and R (d, d), s_{−1} = 0: (T, d). */
  states(tape, inputs, R) {
    const states = [];
    for (let at = 0; at < inputs.rows; at++) {
      const input = tape.gather(inputs, [at]);
      states.push(tape.map(at ? tape.add(input, tape.times(states[at - 1], R)) : input, Math.tanh, tanhSlope));
    }
    return tape.stack(states);
  }

  weights(tape, query, memory) {
    const { tree, normalizer, mask, fixed } = this.setup;
    // one vector for the whole sentence: the mean of its words, whatever is being written
    if (fixed) return new Tensor(query.rows, memory.rows, new Float64Array(query.rows * memory.rows).fill(1 / memory.rows));
    const scores = scoreOf(tape, tree, query, memory, this.parameters);
    return normalize(tape, scores, normalizer, MASK_CHOICES[mask](), memory.rows);
  }
}
