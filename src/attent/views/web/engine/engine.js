// A run in the page: from what is typed or drawn to what the model writes, token by token, with the attention of every layer and head.
import { NORMALIZERS } from "../formula/normalizers.js";
import { State, stacked } from "./attention.js";
import { groupsOf } from "./groups.js";
import { Parameters, unpackedTensors } from "./parameters.js";
import { vectorsOf } from "./pictures.js";
import { Rnn } from "./rnn.js";
import { BOS, EOS, PAD, SPECIALS, UNK, labelOf, respelled, tokenizerOf, unknownPieces, withBlanks } from "./tokenizers.js";
import { EncoderModel, LanguageModel, Transformer } from "./transformer.js";
import { checkYear } from "./years.js";

const MODELS = { transformer: Transformer, rnn: Rnn, encoder: EncoderModel, decoder: LanguageModel };
// candidates of a step, guesses for a blank, and new tokens of a continuation
const [CANDIDATES, GUESSES, LENGTH] = [8, 5, 64];

/** The engine of a run: `description` is what attent.formats.html writes, `weights` the bytes of its tensors. */
export function open({ description, weights }) {
  return new Engine(description, new Parameters(unpackedTensors(description.tensors, weights)));
}

class Engine {
  constructor(description, parameters) {
    this.description = description;
    this.task = description.task;
    this.model = new MODELS[description.settings.kind](parameters, description.settings);
    const tokenizers = Object.fromEntries(Object.entries(description.tokenizers).map(([name, own]) => [name, tokenizerOf(own)]));
    this.source = tokenizers.source ?? tokenizers.text;
    this.target = tokenizers.target ?? tokenizers.text;
    this.groups = groupsOf(description.settings);
    this.normalizer = description.settings.normalizer;
    this.normalizers = Object.keys(NORMALIZERS);
    this.masks = ["none", "causal", "window"];
  }

  /** Read a source: ids, or vectors (T, D). The state that is returned grows with each step. */
  encode(source, options = {}) {
    const state = new State(options);
    this.model.encode?.(source, state);
    return state;
  }

  /** Read a token, and return the logits of the next. */
  step(state, token) {
    return this.model.step(state, token);
  }

  /** Whether there is a position left for another token. */
  canRead(state) {
    return state.length < (this.description.longest ?? Infinity);
  }

  /**
   * Write a translation, a continuation or a caption, by greedy search: first {kind: "start", labels, unknown, ids, state}, perhaps {kind: "pause"},
   * then each token, {kind: "token", token, text, probability, logits, candidates, forced, state}. `force` has the ids that are written first; a
   * continuation has at most `length` tokens.
   */
  *write(input, { force = [], length = LENGTH, ...options } = {}) {
    const isGeneration = this.task === "text-generation";
    const { labels, unknown, ids, source, count } = this.read(input, force);
    const state = new State(options);
    yield { kind: "start", labels, unknown, ids, state };
    if (!isGeneration) this.model.encode(source, state);
    yield { kind: "pause" };
    const limit = isGeneration ? Math.min(length, (this.description.context ?? Infinity) - ids.length) : Math.min(2 * count + 32, (this.description.longest ?? Infinity) - 1);
    const forbidden = isGeneration ? [PAD, UNK, BOS] : [PAD, BOS];
    let logits = isGeneration ? this.model.read(state, [BOS, ...ids]) : this.step(state, BOS);
    for (let written = 0; ; written++) {
      const isForced = written < force.length;
      if (isGeneration && !isForced && written >= limit) return;
      const probabilities = NORMALIZERS.softmax(logits);
      for (const token of forbidden) probabilities[token] = 0;
      const best = largest(logits, CANDIDATES, forbidden);
      const atEnd = !isGeneration && written >= limit;
      const token = isForced ? force[written] : atEnd ? EOS : best[0];
      const named = (each) => ({ token: each, text: labelOf(this.target, each), probability: probabilities[each] });
      yield { kind: "token", ...named(token), logits, candidates: best.map(named), forced: isForced, state };
      if (token === EOS && (!isGeneration || this.description.stops_at_line_end)) return;
      if (isGeneration && written + 1 >= Math.max(limit, force.length)) return;
      logits = this.step(state, token);
    }
  }

  /** What is read: its ids or vectors, with labels. */
  read(input, force) {
    if (this.task === "caption") {
      const source = vectorsOf(input, this.description.picture);
      return { labels: this.patches(), unknown: [], ids: [], source, count: source.rows };
    }
    if (this.task === "text-generation") return this.prompt(input, force);
    const { text, ids } = respelled(input, this.source);
    const { longest, years } = this.description;
    // sources are padded to multiples of 16
    const most = longest === null ? null : longest - (longest % 16);
    if (!ids.length) throw new Error("there is nothing to translate: the text is empty");
    if (most !== null && ids.length > most) throw new Error(`not translated: ${ids.length} tokens, more than the ${most} that this model can read`);
    if (years) checkYear(text, years);
    if (longest !== null && force.length >= longest) throw new Error(`the prefix has ${force.length} tokens, more than the ${longest - 1} that this model can write`);
    return { labels: this.source.pieces(text), unknown: unknownPieces(text, this.source), ids, source: ids, count: ids.length };
  }

  /** The tokens of the beginning of a text, whose lines except the last end with EOS. */
  prompt(text, force) {
    const ids = text.split("\n").flatMap((line, number) => {
      const [unknown] = unknownPieces(line, this.source);
      if (unknown !== undefined) throw new Error(`'${unknown.trim() || unknown}' is unknown to this model: its vocabulary lacks the word or sign`);
      return [...(number ? [EOS] : []), ...this.source.encode(line)];
    });
    const { context } = this.description;
    const count = ids.length + force.length;
    if (context !== null && count + 1 > context) throw new Error(`the text has ${count} tokens, more than the ${context - 1} that this model can read`);
    return { labels: [BOS, ...ids].map((token) => labelOf(this.source, token)), unknown: [], ids };
  }

  /** The ids of what is typed to be written. */
  ids(text) {
    return this.task === "text-generation" ? this.prompt(text, []).ids : this.target.encode(text);
  }

  /** The text of what was written. */
  decode(tokens) {
    return this.target.decode(tokens);
  }

  /** What tokens add to a beginning that is given as ids. */
  continuation(ids, tokens) {
    return this.lines([...ids, ...tokens]).slice(this.lines(ids).length);
  }

  lines(tokens) {
    if (this.description.stops_at_line_end && tokens[tokens.length - 1] === EOS) tokens = tokens.slice(0, -1);
    const lines = [[]];
    for (const token of tokens) token === EOS ? lines.push([]) : lines[lines.length - 1].push(token);
    return lines.map((line) => this.target.decode(line)).join("\n");
  }

  /** Guesses for the blanks of a text, written [MASK] or _____. */
  fill(text, options = {}) {
    const { tokens, pieces, places } = withBlanks(text, this.source);
    const { longest } = this.description;
    if (!tokens.length) throw new Error("a text without tokens has no attention to show");
    if (longest !== null && tokens.length > longest) throw new Error(`the text has ${tokens.length} tokens, more than the ${longest} that this model can read`);
    const state = new State(options);
    const features = this.model.forward(tokens, state);
    const words = Array.from({ length: this.source.size - SPECIALS }, (_, index) => index + SPECIALS).filter((token) => this.source.piece(token));
    const blanks = places.map((place) => {
      const logits = this.model.logits(features, place);
      const all = NORMALIZERS.softmax(logits.subarray(SPECIALS));
      const best = largest(Float32Array.from(words, (token) => logits[token]), GUESSES, []).map((index) => words[index]);
      return { place, logits, guesses: best.map((token) => ({ word: this.source.decode([token]), probability: all[token - SPECIALS] })) };
    });
    const unknown = [...new Set(pieces.filter((_, place) => tokens[place] === UNK).map((piece) => piece.trim()))];
    return { labels: pieces, unknown, blanks, state };
  }

  /** The most probable classes of a text, or of a picture {height, width, channels, values}. */
  classify(input, options = {}) {
    const { labels: classes, longest, reads } = this.description;
    const isText = reads === "texts";
    if (isText && !input.trim()) throw new Error("there is nothing to classify: the text is empty");
    const source = isText ? this.source.encode(input) : vectorsOf(input, this.description.picture);
    const length = isText ? source.length : source.rows;
    if (longest !== null && length > longest) throw new Error(`the example has a length of ${length}, more than the ${longest} tokens, vectors or patches that this model can read`);
    const state = new State(options);
    const logits = this.model.logits(this.model.forward(source, state), 0);
    const probabilities = NORMALIZERS.softmax(logits);
    const best = largest(logits, GUESSES, []).map((index) => ({ label: classes[index], probability: probabilities[index] }));
    return { labels: ["CLS", ...(isText ? this.source.pieces(input) : this.patches())], best, logits, state };
  }

  patches() {
    const [down, across] = this.description.picture.grid;
    return Array.from({ length: down * across }, (_, place) => `patch ${Math.floor(place / across) + 1},${(place % across) + 1}`);
  }

  /** All weights so far: each group with layers of a matrix (queries, keys) for each head. */
  maps(state) {
    return this.groups.map((group) => ({ ...group, layers: group.layers.map((path) => state.weights(path)) }));
  }

  /** The weights of the last query; those of all heads' mean if head is null. */
  row(state, group, layer, head) {
    const rows = state.records.get(this.pathOf(group, layer)).map(({ weights }) => weights[weights.length - 1]);
    return head === null ? rows[0].map((_, key) => rows.reduce((sum, row) => sum + row[key], 0) / rows.length) : rows[head];
  }

  /** What the weights of a head were computed from: queries, keys and values, scores with everything added, and the weights. */
  parts(state, group, layer, head) {
    const { query, kept, scores, weights } = state.records.get(this.pathOf(group, layer))[head];
    const count = kept.keys.rows;
    return { query, key: kept.keys, value: kept.values, scores: stacked(scores, count, -Infinity), weights: stacked(weights, count) };
  }

  /** What multiplies the weights of each row of a head: a function of the key, or null. */
  factors(state, group, layer, head) {
    return state.records.get(this.pathOf(group, layer))[head].factors;
  }

  pathOf(group, layer) {
    return this.groups.find(({ name }) => name === group).layers[layer];
  }
}

/** The indices of the largest numbers, the first of equal ones first, without the forbidden. */
function largest(numbers, count, forbidden) {
  const best = [];
  for (let index = 0; index < numbers.length; index++) {
    if (forbidden.includes(index)) continue;
    if (best.length === count && numbers[index] <= numbers[best[count - 1]]) continue;
    let place = best.length;
    while (place > 0 && numbers[index] > numbers[best[place - 1]]) place -= 1;
    best.splice(place, 0, index);
    if (best.length > count) best.pop();
  }
  return best;
}
