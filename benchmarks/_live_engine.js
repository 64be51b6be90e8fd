// Answers questions to the engine of a page under node: {call, input, options}; `write` collects all steps, and the weights after the last.
// Arrays of numbers are written as {float32, shape}, in base64.
const packed = (data, ...shape) => ({ float32: Buffer.from(Float32Array.from(data).buffer).toString("base64"), shape });
const numbers = ({ rows, columns, data }) => packed(data.subarray(0, rows * columns), rows, columns);
const heads = (matrices) => packed(matrices.flatMap(({ data }) => [...data]), matrices.length, matrices[0]?.rows ?? 0, matrices[0]?.columns ?? 0);
const shown = (engine, state) => Object.fromEntries(engine.maps(state).flatMap(({ name, layers }) => layers.map((own, layer) => [`${name}.${layer}`, heads(own)])));
const typed = (input) => (input.values ? { ...input, values: Float32Array.from(input.values) } : input);

function answerOf(engine, { call, input, options = {} }) {
  try {
    if (call === "write" || call === "parts") {
      const [first, ...rest] = engine.write(typed(input.text ?? input), options);
      const steps = rest.filter(({ kind }) => kind === "token").map(({ state, logits, ...step }) => ({ ...step, logits }));
      const { labels, unknown, ids, state } = first;
      if (call === "write") return () => ({ labels, unknown, ids, steps: steps.map((step) => ({ ...step, logits: packed(step.logits, step.logits.length) })), maps: shown(engine, state) });
      const parts = Object.entries(engine.parts(state, ...input.head)).map(([name, part]) => [name, numbers(part)]);
      const row = engine.row(state, ...input.head);
      return () => ({ ...Object.fromEntries(parts), row: packed(row, row.length) });
    }
    const { state, ...answer } = call === "groups" ? { groups: engine.groups, normalizers: engine.normalizers } : engine[call](typed(input), options);
    return () => {
      for (const part of [answer, ...(answer.blanks ?? [])]) if (part.logits) part.logits = packed(part.logits, part.logits.length);
      return state ? { ...answer, maps: shown(engine, state) } : answer;
    };
  } catch (error) {
    return () => ({ error: error.message });
  }
}

const { readFileSync } = require("fs");
const { description, questions, weights } = JSON.parse(readFileSync(0, "utf8"));
const engine = module_engine_engine.open({ description, weights: Uint8Array.from(Buffer.from(weights, "base64")) });
process.stdout.write(JSON.stringify(questions.map((question) => answerOf(engine, question)())));
