// Transformers: encoder–decoder, encoder only, decoder only. Names and order as in attent.models.
import { Matrix } from "../formula/matrix.js";
import { sinusoidal } from "../formula/positions.js";
import { MultiHeadAttention } from "./attention.js";
import { ACTIVATIONS, add, apply, layerNorm, linear, linearOf, norm } from "./linear.js";

/** A layer: attentions and a feed-forward network, each with its residual connection. */
class Layer {
  /** `parts` lists [attention, residual connection, of the decoder to itself or to the source]. */
  constructor(parameters, settings, attentions, isCausal) {
    const { position } = settings;
    this.isPre = settings.norm === "pre";
    this.parts = attentions.map(([name, around]) => {
      const isCross = name === "cross_attention";
      const attention = new MultiHeadAttention(parameters.at(name), settings, { position: isCross ? "none" : position, isCausal: isCausal && !isCross });
      const run = isCross ? (read, state) => attention.recall(read, state) : (read, state) => attention.toSelf(read, state);
      return { attention, isCross, run, norm: norm(parameters.at(around).at("norm")) };
    });
    const [widen, narrow] = ["widen", "narrow"].map((name) => parameters.at("feed_forward").linear(name));
    const run = (read) => linear(narrow, apply(ACTIVATIONS[settings.activation], linear(widen, read)));
    this.parts.push({ run, norm: norm(parameters.at("around_feed_forward").at("norm")) });
  }

  /** Transform the next positions, (T, E); keys and values are kept in the state. */
  forward(features, state) {
    for (const { run, norm: own } of this.parts) {
      if (this.isPre) features = add(features, run(layerNorm(own, features), state));
      else features = layerNorm(own, add(features, run(features, state)));
    }
    return features;
  }

  /** Keep the keys and values of the source. */
  remember(memory, state) {
    for (const { attention, isCross } of this.parts) if (isCross) attention.remember(memory, state);
  }
}

const TO_SELF = [["self_attention", "around_attention"]];
const TO_BOTH = [["self_attention", "around_self"], ["cross_attention", "around_cross"]];

/** Layers, and with pre-norm a norm after the last. */
export class Stack {
  constructor(parameters, settings, count, { attentions = TO_SELF, isCausal = false } = {}) {
    this.layers = Array.from({ length: count }, (_, layer) => new Layer(parameters.at(`layers.${layer}`), settings, attentions, isCausal));
    this.norm = settings.norm === "pre" ? norm(parameters.at("norm")) : null;
  }

  forward(features, state) {
    for (const layer of this.layers) features = layer.forward(features, state);
    return this.norm ? layerNorm(this.norm, features) : features;
  }
}

/** Embeddings of tokens, √E · W[token], or of vectors, W x + b. */
export class Embedding {
  constructor(parameters, isScaled = true) {
    this.isOfTokens = parameters.has("weight");
    this.projection = this.isOfTokens ? { weight: parameters.matrix("weight") } : parameters.linear("projection");
    this.width = this.isOfTokens ? this.projection.weight.columns : this.projection.weight.rows;
    this.scale = isScaled ? Math.sqrt(this.width) : 1;
  }

  /** Features (T, E) of token ids, or of vectors (T, D). */
  of(input) {
    if (!this.isOfTokens) return linear(this.projection, input);
    const features = new Matrix(input.length, this.width);
    input.forEach((token, row) => features.row(row).set(this.projection.weight.row(token).map((value) => value * this.scale)));
    return features;
  }
}

/** Features with positions added, if the settings say so. */
export function positioned(features, position, start, table = null) {
  if (position === "sinusoidal") return add(features, sinusoidal(features.rows, features.columns, start));
  if (position !== "learned") return features;
  return add(features, new Matrix(features.rows, features.columns, table.data.subarray(start * table.columns, (start + features.rows) * table.columns)));
}

const tableOf = (parameters) => (parameters.has("table") ? parameters.matrix("table") : null);

/** The Transformer: encode a source, then read what is written token by token. */
export class Transformer {
  constructor(parameters, settings) {
    this.settings = settings;
    const isScaled = settings.scale_embeddings ?? true;
    const [source, target] = ["source_embedding", "target_embedding"].map((name) => parameters.at(name));
    [this.source, this.target] = [source, target].map((side) => new Embedding(side.at("tokens"), isScaled));
    [this.sourceTable, this.targetTable] = [source, target].map((side) => tableOf(side.at("positions")));
    this.encoder = new Stack(parameters.at("encoder"), settings, settings.encoder_layers);
    this.decoder = new Stack(parameters.at("decoder"), settings, settings.decoder_layers, { attentions: TO_BOTH, isCausal: true });
    this.toLogits = parameters.linear("to_logits");
  }

  /** Embeddings of a source with positions. */
  embedded(source) {
    return positioned(this.source.of(source), this.settings.position, 0, this.sourceTable);
  }

  /** Read a source, and return its memory (T, E). */
  encode(source, state) {
    const memory = this.encoder.forward(this.embedded(source), state);
    for (const layer of this.decoder.layers) layer.remember(memory, state);
    return memory;
  }

  step(state, token) {
    const features = positioned(this.target.of([token]), this.settings.position, state.length, this.targetTable);
    state.length += 1;
    return linearOf(this.toLogits, this.decoder.forward(features, state).row(0));
  }
}

/** A language model, which reads tokens and predicts the next one. */
export class LanguageModel {
  constructor(parameters, settings) {
    this.settings = settings;
    this.embedding = new Embedding(parameters.at("embedding.tokens"));
    this.table = tableOf(parameters.at("embedding.positions"));
    this.decoder = new Stack(parameters.at("decoder"), settings, settings.layers, { isCausal: true });
    this.toLogits = parameters.linear("to_logits");
  }

  /** Read several tokens, and return the logits of the one after the last. */
  read(state, tokens) {
    const features = positioned(this.embedding.of(tokens), this.settings.position, state.length, this.table);
    state.length += tokens.length;
    return linearOf(this.toLogits, this.decoder.forward(features, state).row(tokens.length - 1));
  }

  step(state, token) {
    return this.read(state, [token]);
  }
}

/** An encoder with an output layer; with a class vector, it comes before the sequence. */
export class EncoderModel {
  constructor(parameters, settings) {
    this.settings = settings;
    this.embedding = new Embedding(parameters.at("embedding"));
    this.cls = parameters.vector("cls");
    this.table = tableOf(parameters.at("positions"));
    this.encoder = new Stack(parameters.at("encoder"), settings, settings.layers);
    this.toLogits = parameters.linear("to_logits");
  }

  /** The features of a sequence, (T, E), or with a class vector (1 + T, E). */
  forward(sequence, state) {
    let features = this.embedding.of(sequence);
    if (this.cls) features = new Matrix(1 + features.rows, features.columns, Float32Array.from([...this.cls, ...features.data]));
    return this.encoder.forward(positioned(features, this.settings.position, 0, this.table), state);
  }

  logits(features, position) {
    return linearOf(this.toLogits, features.row(position));
  }
}
