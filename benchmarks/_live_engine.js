// Answers questions to the engine of a page under node: {call, input, options}; `write` collects all steps, and the weights after the last.
const numbers = (matrix) => matrix.list();
const shown = (engine, state) => Object.fromEntries(engine.maps(state).flatMap(({ name, layers }) => layers.map((heads, layer) => [`${name}.${layer}`, heads.map(numbers)])));
const typed = (input) => (input.values ? { ...input, values: Float32Array.from(input.values) } : input);
function answerOf(engine, { call, input, options = {} }) {
  try {
    if (call === "write") {
      const [first, ...rest] = engine.write(typed(input), options);
      const steps = rest.filter(({ kind }) => kind === "token");
      return () => {
      const plain = steps.map(({ token, text, probability, logits, candidates, forced }) => ({ token, text, probability, logits: [...logits], candidates, forced }));
      return { labels: first.labels, unknown: first.unknown, ids: first.ids, steps: plain, maps: shown(engine, first.state) };
      };
    }
    if (call === "parts") {
      const [first, ...rest] = engine.write(typed(input.text), options);
      const parts = engine.parts(first.state, ...input.head);
      return { ...Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, numbers(part)])), row: [...engine.row(first.state, ...input.head)], count: rest.length };
    }
    const { state, ...answer } = call === "groups" ? { groups: engine.groups, normalizers: engine.normalizers } : engine[call](typed(input), options);
    if (answer.logits) answer.logits = [...answer.logits];
    if (answer.blanks) answer.blanks = answer.blanks.map((blank) => ({ ...blank, logits: [...blank.logits] }));
    return state ? { ...answer, maps: shown(engine, state) } : answer;
  } catch (error) {
    return { error: error.message };
  }
}
// The time is that of the engine, without the text of its numbers.
function timed(engine, question) {
  const begin = performance.now();
  const kept = answerOf(engine, question);
  const milliseconds = performance.now() - begin;
  return { ...(typeof kept === "function" ? kept() : kept), milliseconds };
}

const { readFileSync } = require("fs");
const { description, questions, weights } = JSON.parse(readFileSync(0, "utf8"));
const engine = module_engine_engine.open({ description, weights: Uint8Array.from(Buffer.from(weights, "base64")) });
process.stdout.write(JSON.stringify(questions.map((question) => timed(engine, question)), (_, value) => (value === -Infinity ? "-Infinity" : value)));
