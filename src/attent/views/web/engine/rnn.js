// The RNN encoder–decoder: without attention, Bahdanau's and Luong's. Names and order as in attent.models.
import { Matrix } from "../formula/matrix.js";
import { keep, scoreOf } from "./attention.js";
import { joined, layerNorm, linearOf, norm, sigmoid } from "./linear.js";
import { BidirectionalRecurrent, RecurrentStack, ends } from "./recurrent.js";
import { Embedding, Stack, positioned } from "./transformer.js";

const PATH = "decoder.cross_attention";
const tanh = (vector) => vector.map(Math.tanh);
const rowOf = (vector) => new Matrix(1, vector.length, vector);

/** The window of Luong's local attention: around the step ("m"), or around S · sigmoid(v·tanh(W h)) ("p"), there weighted by a Gaussian. */
function local({ local: kind, local_window: distance }, parameters, query, length, step) {
  if (kind === "none") return {};
  let center = step;
  if (kind === "p") {
    const hidden = tanh(linearOf(parameters.linear("hidden"), query));
    center = Math.fround(length * Math.fround(sigmoid(linearOf(parameters.linear("v"), hidden)[0])));
  }
  const weighting = (_, key) => Math.exp(-(((key - center) / (distance / 2)) ** 2) / 2);
  return { mask: (_, key) => Math.abs(key - center) <= distance, weighting: kind === "p" ? weighting : null };
}

export class Rnn {
  constructor(parameters, settings) {
    this.settings = settings;
    [this.source, this.target] = ["source_embedding", "target_embedding"].map((side) => new Embedding(parameters.at(side)));
    this.encoder = settings.input === "vectors"
      ? new Stack(parameters.at("encoder"), settings.vector_encoder, settings.encoder_layers)
      : new BidirectionalRecurrent(parameters.at("encoder"), settings.encoder_layers);
    this.norm = settings.layer_norm ? norm(parameters.at("norm")) : null;
    const decoder = parameters.at("decoder");
    this.recurrent = new RecurrentStack(decoder.at("recurrent"), settings.decoder_layers);
    [this.firstState, this.readout] = ["first_state", "readout"].map((name) => decoder.linear(name));
    this.readoutNorm = settings.layer_norm ? norm(decoder.at("norm")) : null;
    this.summary = settings.attention === "none" ? decoder.linear("summary") : null;
    this.asked = settings.token_in_query ? decoder.linear("asked") : null;
    this.local = decoder.at("cross_attention.local");
    this.toLogits = parameters.linear("to_logits");
    const factor = settings.scaled_score ? { scale: 1 / Math.sqrt(settings.memory_width) } : {};
    this.score = settings.attention === "none" ? null : scoreOf(settings.score, decoder.at("cross_attention.score"), 0, factor);
  }

  /** Read a source, and set the decoder's first state. */
  encode(source, state) {
    const { attention, input_feeding: hasFeed, embedding_width: width, context_every_step: hasContext } = this.settings;
    let memory = this.source.of(source);
    memory = this.settings.input === "vectors" ? this.encoder.forward(positioned(memory, "sinusoidal", 0), state) : this.encoder.forward(memory);
    if (this.norm) memory = layerNorm(this.norm, memory);
    let summary = this.settings.input === "vectors" ? mean(memory) : ends(memory);
    if (this.summary) summary = tanh(linearOf(this.summary, summary));
    const first = tanh(linearOf(this.firstState, summary));
    const own = this.recurrent.layers[0].width;
    const part = (number) => first.slice(number * own, (number + 1) * own);
    state.layers = this.recurrent.layers.map(({ isGru }, layer) => (isGru ? { hidden: part(layer), cell: null } : { hidden: part(2 * layer), cell: part(2 * layer + 1) }));
    // what enters each step beside the token
    state.beside = attention === "none" ? (hasContext ? summary : new Float32Array(0)) : new Float32Array(attention === "luong" && hasFeed ? width : 0);
    state.source = { keys: null, lowered: null, values: null };
    if (this.score) keep(state.source, memory, this.score.key(memory), memory);
    state.sourceLength = memory.rows;
  }

  /** Read a token, and return the logits of the next. */
  step(state, token) {
    const embedded = this.target.of([token]).row(0);
    const output = this[this.settings.attention](embedded, state);
    state.length += 1;
    return linearOf(this.toLogits, output);
  }

  none(embedded, state) {
    state.layers = this.recurrent.step(joined(embedded, state.beside), state.layers);
    return this.output(top(state), embedded, state.beside);
  }

  bahdanau(embedded, state) {
    let query = top(state);
    if (this.asked) query = linearOf(this.asked, embedded).map((value, index) => value + query[index]);
    const context = this.context(query, state);
    state.layers = this.recurrent.step(joined(embedded, context), state.layers);
    return this.output(top(state), embedded, context);
  }

  luong(embedded, state) {
    state.layers = this.recurrent.step(joined(embedded, state.beside), state.layers);
    const output = this.output(this.context(top(state), state), top(state));
    if (this.settings.input_feeding) state.beside = output;
    return output;
  }

  context(query, state) {
    const more = local(this.settings, this.local, query, state.sourceLength, state.length);
    return state.attend(PATH, 0, rowOf(query), state.source, { score: this.score.score, normalizer: this.settings.normalizer, start: state.length, isMasked: false, ...more }).row(0);
  }

  /** tanh(W [features] + b) */
  output(...features) {
    const read = linearOf(this.readout, joined(...features));
    return tanh(this.readoutNorm ? layerNorm(this.readoutNorm, rowOf(read)).row(0) : read);
  }
}

const top = ({ layers }) => layers[layers.length - 1].hidden;

function mean(features) {
  const total = new Float64Array(features.columns);
  for (let row = 0; row < features.rows; row++) features.row(row).forEach((value, index) => { total[index] += value; });
  return Float32Array.from(total, (value) => value / features.rows);
}
