// The attentions of a model as groups of layers, with the names, titles and texts that attent.views.build_scene gives them.

const paths = (stack, count, name) => Array.from({ length: count }, (_, layer) => `${stack}.layers.${layer}.${name}`);

/** [{name, title, rows, columns, layers, heads, about, itself, causal}] in the order in which views show them. */
export function groupsOf({ kind, heads = 1, layers = 0, encoder_layers: encoderLayers, decoder_layers: decoderLayers, attention, input, vector_encoder: ofVectors }) {
  const cross = { name: "cross", title: "cross-attention", rows: "target", columns: "source", about: "the token being written", itself: false, causal: false };
  const encoder = { name: "encoder", title: "encoder self-attention", rows: "source", columns: "source", about: "the token", itself: true, causal: false };
  const self = { ...encoder, name: "self", title: "self-attention", rows: "tokens", columns: "tokens" };
  const ofEncoder = paths("encoder", encoderLayers ?? layers, "self_attention");
  if (kind === "transformer") {
    return [
      { ...cross, layers: paths("decoder", decoderLayers, "cross_attention"), heads },
      { ...encoder, layers: ofEncoder, heads },
      { ...self, name: "decoder", title: "decoder self-attention", rows: "target", columns: "given", about: "the token being written", causal: true, layers: paths("decoder", decoderLayers, "self_attention"), heads },
    ];
  }
  if (kind === "encoder") return [{ ...self, layers: ofEncoder, heads }];
  if (kind === "decoder") return [{ ...self, causal: true, layers: paths("decoder", layers, "self_attention"), heads }];
  return [
    ...(attention === "none" ? [] : [{ ...cross, layers: ["decoder.cross_attention"], heads: 1 }]),
    ...(input === "vectors" ? [{ ...(attention === "none" ? self : encoder), layers: ofEncoder, heads: ofVectors.heads }] : []),
  ];
}
