// Answers questions to a page's engine under node: one is {call, input, options}; `write` collects the steps of a translation, with all weights after the last.
const numbers = (matrix) => matrix.list();
const shown = (engine, state) => Object.fromEntries(engine.maps(state).flatMap(({ name, layers }) => layers.map((heads, layer) => [`${name}.${layer}`, heads.map(numbers)])));
const typed = (input) => (input.values ? { ...input, values: Float32Array.from(input.values) } : input);
function answerOf(engine, { call, input, options = {} }) {
  try {
    if (call === "write") {
      const [first, ...rest] = engine.write(typed(input), options);
      const steps = rest.filter(({ kind }) => kind === "token");
      const plain = steps.map(({ token, text, probability, logits, candidates, forced }) => ({ token, text, probability, logits: [...logits], candidates, forced }));
      return { labels: first.labels, unknown: first.unknown, ids: first.ids, steps: plain, maps: shown(engine, first.state) };
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
const { readFileSync } = require("fs");
const { description, questions, weights } = JSON.parse(readFileSync(0, "utf8"));
const engine = module_engine_engine.open({ description, weights: Uint8Array.from(Buffer.from(weights, "base64")) });
process.stdout.write(JSON.stringify(questions.map((question) => answerOf(engine, question)), (_, value) => (value === -Infinity ? "-Infinity" : value)));
