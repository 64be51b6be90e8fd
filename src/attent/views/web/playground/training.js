// Training: batches of pairs, Adam (Kingma and Ba 2015, arXiv:1412.6980), and what the model can do on pairs that it was not trained on.
import { parse } from "./formula.js";
import { Tape } from "./gradients.js";
import { generator, Model } from "./model.js";
import { HELD_OUT, TRAINING } from "./pairs.js";

export const BATCH = 16;
export const RATE = 0.005;
export const DECAYS = [0.9, 0.999];
export const TINY = 1e-8;
const [START, STOP] = ["[START]", "[STOP]"];
/** The most words that are written, and typed. */
export const MOST = 16;

export const texts = (pairs) => pairs.map((pair) => pair.split("|").slice(0, 2).map((text) => text.split(" ")));
const wordsOf = (side) => [...new Set(texts(TRAINING).flatMap((pair) => pair[side]))].sort((one, other) => (one < other ? -1 : 1));
export const VOCABULARIES = [wordsOf(0), [START, STOP, ...wordsOf(1)]];
const PLACES = VOCABULARIES.map((words) => new Map(words.map((word, place) => [word, place])));

/** Texts as numbers of words: source, what was written before each word, and the words, [STOP] at last. */
export const ENCODED = {
  pair: (source, target) => ({
    source: source.map((word) => PLACES[0].get(word)),
    written: [START, ...target].map((word) => PLACES[1].get(word)),
    words: [...target, STOP].map((word) => PLACES[1].get(word)),
  }),
  pairs: (pairs) => texts(pairs).map(([source, target]) => ENCODED.pair(source, target)),
};

export class Training {
  /** `settings`: formula, normalizer, mask, positions, fixed, identity and seed. */
  constructor(settings) {
    this.draw = generator(settings.seed);
    this.model = new Model({ ...settings, tree: parse(settings.formula) }, VOCABULARIES[0].length, VOCABULARIES[1].length, this.draw);
    this.pairs = ENCODED.pairs(TRAINING);
    this.order = [];
    this.updates = 0;
    this.moments = Object.values(this.model.parameters).map((parameter) => ({ parameter, mean: new Float64Array(parameter.data.length), square: new Float64Array(parameter.data.length) }));
  }

  /** The next pairs, in an order that is drawn anew each time all were seen. */
  batch() {
    if (this.order.length < BATCH) {
      this.order = this.pairs.map((_, place) => place);
      for (let last = this.order.length - 1; last > 0; last--) {
        const other = Math.floor(this.draw() * (last + 1));
        [this.order[last], this.order[other]] = [this.order[other], this.order[last]];
      }
    }
    return this.order.splice(0, BATCH).map((place) => this.pairs[place]);
  }

  /** One update of all parameters. Returns the loss before it, in nats per word. */
  update() {
    const batch = this.batch();
    const words = batch.reduce((sum, pair) => sum + pair.words.length, 0);
    let loss = 0;
    for (const { source, written, words: right } of batch) {
      const tape = new Tape();
      const { logits } = this.model.decode(tape, this.model.encode(tape, source).memory, written);
      const own = tape.crossEntropy(logits, right);
      tape.backward(own, 1 / words);
      loss += own.data[0] / words;
    }
    this.updates += 1;
    this.adam();
    return loss;
  }

  adam() {
    const [bias, biasOfSquare] = DECAYS.map((decay) => 1 - decay ** this.updates);
    for (const { parameter: { data, gradient }, mean, square } of this.moments) {
      for (let index = 0; index < data.length; index++) {
        const slope = gradient[index];
        mean[index] += (1 - DECAYS[0]) * (slope - mean[index]);
        square[index] += (1 - DECAYS[1]) * (slope * slope - square[index]);
        data[index] -= (RATE / bias) * mean[index] / (Math.sqrt(square[index] / biasOfSquare) + TINY);
      }
      gradient.fill(0);
    }
  }
}

/** The weights while a given translation is written, row for row of its words, and the weights of source words on each other. */
export function forced(model, { source, written }) {
  const tape = new Tape();
  const { memory, own } = model.encode(tape, source);
  const { weights, logits } = model.decode(tape, memory, written);
  return { weights, own, logits };
}

const largest = (row) => row.reduce((best, value, place) => (value > row[best] ? place : best), 0);

/** The words that are most likely, one after another (greedy search), with [STOP] left out. */
export function translate(model, source) {
  const written = [PLACES[1].get(START)];
  const { memory } = model.encode(new Tape(), source);
  while (written.length <= MOST) {
    const { logits } = model.decode(new Tape(), memory, written);
    const word = largest(logits.row(written.length - 1));
    if (word === PLACES[1].get(STOP)) break;
    written.push(word);
  }
  return written.slice(1);
}

/** The alignment error rate on pairs that were not trained on: the share of words whose largest weight is not on their source. */
export function errorRate(model, pairs = HELD_OUT) {
  let [right, links] = [0, 0];
  ENCODED.pairs(pairs).forEach((pair, number) => {
    const gold = [...pairs[number].split("|")[2]].map((digit) => parseInt(digit, 16));
    const { weights } = forced(model, pair);
    gold.forEach((place, row) => { right += Number(largest(weights.row(row)) === place); });
    links += gold.length;
  });
  return 1 - right / links;
}

/** Whether each of these pairs, which were not trained on, is translated word for word. */
export function areRight(model, pairs = HELD_OUT) {
  return ENCODED.pairs(pairs).map(({ source, written }) => translate(model, source).join() === written.slice(1).join());
}
