// The translator of the course (runs/phrases, page 2), whose weights the site has beside its pages, as the engine of live pages computes it.
import { State } from "../engine/attention.js";
import { Parameters, unpackedTensors } from "../engine/parameters.js";
import { BOS, EOS, labelOf, tokenizerOf } from "../engine/tokenizers.js";
import { Transformer } from "../engine/transformer.js";

const LONGEST = 29;
const GROUPS = { encoder: "encoder.layers.0.self_attention", decoder: "decoder.layers.0.self_attention", cross: "decoder.layers.0.cross_attention" };

export class Translator {
  /** `description` is what attent.formats.html writes, `weights` the bytes of its tensors in base64. */
  constructor({ description: { settings, tensors, tokenizers }, weights }) {
    const parameters = new Parameters(unpackedTensors(tensors, Uint8Array.from(atob(weights), (letter) => letter.charCodeAt(0))));
    this.model = new Transformer(parameters, settings);
    this.withoutPositions = new Transformer(parameters, { ...settings, position: "none" });
    [this.source, this.target] = [tokenizers.source, tokenizers.target].map(tokenizerOf);
    this.words = new Set(tokenizers.source.entries.map((entry) => entry.trimStart()));
  }

  /** The word of a target token, without the space before it. */
  label(id) {
    return labelOf(this.target, id).trimStart();
  }

  /**
   * Greedy search, perhaps without the positions of the source. Returns the words of the translation, with EOS, their ids, text and logits; `maps`,
   * the weights of each of GROUPS by head and row; `decoder`, what those of the decoder were computed from; and `vectors`, (T, E) each: the
   * embeddings of the source, what self-attention adds to them, and the memory.
   */
  translate(words, hasPositions = true) {
    const model = hasPositions ? this.model : this.withoutPositions;
    const [state, source] = [new State(), this.source.encode(words.join(" "))];
    const [ids, logits] = [[], []];
    const [embeddings, memory] = [model.embedded(source), model.encode(source, state)];
    const added = model.encoder.layers[0].parts[0].run(embeddings, new State());
    while (ids.at(-1) !== EOS && ids.length < LONGEST) {
      const next = this.model.step(state, ids.at(-1) ?? BOS);
      logits.push(next);
      ids.push(next.indexOf(Math.max(...next)));
    }
    const maps = Object.fromEntries(Object.entries(GROUPS).map(([name, path]) => [name, state.weights(path).map((map) => map.list())]));
    return {
      words, labels: ids.map((id) => this.label(id)), ids, text: this.target.decode(ids), logits,
      maps, decoder: state.records.get(GROUPS.decoder), vectors: [embeddings, added, memory],
    };
  }
}
