// Firefox's engine under node: translate the lines of a file one by one, and write their translations as JSON.
//
// node _firefox_engine.mjs ENGINE MODEL LINES OUT PRECISION ROWS VOCABULARY [VOCABULARY]
// With ROWS, the size of the vocabulary, other than 0, OUT.trace gets the rounded activations of each product of 8 bits (unsigned) and the logits (float32).
// ENGINE is a folder with node_modules/@browsermt/bergamot-translator. The module computes products of 8 bits by its own portable functions.

import { openSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";

const [engine, modelFile, linesFile, out, precision, rows, ...vocabularies] = process.argv.slice(2);
const folder = join(engine, "node_modules/@browsermt/bergamot-translator/worker");
// as Firefox translates, one sentence at a time
const CONFIG = {
  "beam-size": 1, normalize: "1.0", "word-penalty": 0, "max-length-break": 128, "mini-batch-words": 1024, workspace: 128, "max-length-factor": process.env.LENGTH_FACTOR ?? "2.0",
  "skip-cost": true, "cpu-threads": 0, quiet: true, "quiet-translation": true, "gemm-precision": precision, alignment: "soft", "ssplit-mode": "sentence",
};
const PRODUCTS = {
  int8_prepare_a: "int8PrepareAFallback", int8_prepare_b: "int8PrepareBFallback", int8_prepare_b_from_transposed: "int8PrepareBFromTransposedFallback",
  int8_prepare_b_from_quantized_transposed: "int8PrepareBFromQuantizedTransposedFallback", int8_prepare_bias: "int8PrepareBiasFallback",
  int8_multiply_and_add_bias: "int8MultiplyAndAddBiasFallback", int8_select_columns_of_b: "int8SelectColumnsOfBFallback",
};
const trace = Number(rows) ? openSync(`${out}.trace`, "w") : 0;
const calls = [];
let line = 0;
// what a product read, by its factor, or wrote: its place in the trace is the sum of the sizes before
function record(name, values) {
  const [kind, factor, size, shape, at] = name === "int8_prepare_a" ? ["rounded", values[1], 1, values.slice(3, 5), values[5]]
    : name === "int8_multiply_and_add_bias" && values[10] === Number(rows) ? ["logits", 0, 4, [values[8], values[10]], values[11]] : [];
  if (!kind) return;
  writeSync(trace, new Uint8Array(module.HEAPU8.buffer, at, size * shape[0] * shape[1]));
  calls.push([line, kind, factor, ...shape]);
}
const module = globalThis.Module = { print: (line) => console.error(line), printErr: (line) => console.error(line) };
await new Promise((ready, fail) => {
  module.onRuntimeInitialized = ready;
  module.instantiateWasm = (imports, accept) => {
    const products = Object.fromEntries(Object.entries(PRODUCTS).map(([name, own]) => [name, trace ? (...values) => {
      const result = module.asm[own](...values);
      record(name, values);
      return result;
    } : (...values) => module.asm[own](...values)]));
    const binary = readFileSync(join(folder, "bergamot-translator-worker.wasm"));
    WebAssembly.instantiate(binary, { ...imports, wasm_gemm: products }).then(({ instance }) => accept(instance), fail);
    return {};
  };
  (0, eval)(readFileSync(join(folder, "bergamot-translator-worker.js"), "utf8"));
});

function aligned(file, alignment) {
  const content = file ? readFileSync(file) : Buffer.alloc(0);
  const memory = new module.AlignedMemory(content.length, alignment);
  if (content.length) memory.getByteArrayView().set(content);
  return memory;
}

const service = new module.BlockingService({ cacheSize: 0 });
const list = new module.AlignedMemoryList();
for (const file of vocabularies) list.push_back(aligned(file, 64));
const config = Object.entries(CONFIG).map(([name, value]) => `${name}: ${value}\n`).join("");
// an empty memory is no shortlist
const model = new module.TranslationModel(config, aligned(modelFile, 256), aligned(null, 64), list, null);
const lines = readFileSync(linesFile, "utf8").split("\n").filter(Boolean);
const begin = performance.now();
const translations = lines.map((text, index) => {
  line = index;
  const [input, options] = [new module.VectorString(), new module.VectorResponseOptions()];
  input.push_back(text);
  options.push_back({ qualityScores: false, alignment: false, html: false });
  const answer = service.translate(model, input, options);
  const translation = answer.get(0).getTranslatedText();
  for (const part of [input, options, answer]) part.delete();
  return translation;
});
writeFileSync(out, JSON.stringify({ seconds: (performance.now() - begin) / 1000, translations, calls }));
