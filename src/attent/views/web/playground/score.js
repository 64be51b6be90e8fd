// The score of all pairs of queries (Tq, d) and keys (Tk, d) by the tree of a formula, with derivatives.
// What depends on queries alone has Tq rows, on keys alone Tk, on both Tq · Tk, on neither one.
import { Tensor } from "./gradients.js";

const OPERATIONS = {
  "+": [(x, y) => x + y, () => [1, 1]],
  "-": [(x, y) => x - y, () => [1, -1]],
  "*": [(x, y) => x * y, (x, y) => [y, x]],
  "/": [(x, y) => x / y, (x, y, z) => [1 / y, -z / y]],
};
const MAPS = {
  negative: [(x) => -x, () => -1],
  sqrt: [Math.sqrt, (_, y) => 0.5 / y],
  exp: [Math.exp, (_, y) => y],
  tanh: [Math.tanh, (_, y) => 1 - y * y],
  abs: [Math.abs, (x) => Math.sign(x)],
};

/** Scores (Tq · Tk, 1), those of the first query first; `parameters` are the tensors of the names that are learned. */
export function scoreOf(tape, tree, query, key, parameters) {
  const [Tq, Tk] = [query.rows, key.rows];
  const pairs = Array.from({ length: Tq * Tk }, (_, index) => index);
  const rows = { "": [0], one: [0], q: [...query.data.keys()].slice(0, Tq), k: [...key.data.keys()].slice(0, Tk) };
  /** Repeat the rows of a value for what else the result depends on. */
  const spread = (tensor, from, to) => {
    if (from === to || (tensor.rows === 1 && rows[to]?.length === 1)) return tensor;
    if (to !== "pair") return tape.gather(tensor, rows[to].map(() => 0));
    return tape.gather(tensor, pairs.map((index) => (from === "q" ? Math.floor(index / Tk) : from === "k" ? index % Tk : 0)));
  };

  const value = (node) => {
    const parts = node.parts ?? [];
    if (node.kind === "number") return new Tensor(1, 1, Float64Array.of(node.value));
    if (node.kind === "name") return { q: query, k: key }[node.name] ?? (node.name === "d" ? new Tensor(1, 1, Float64Array.of(query.columns)) : parameters[node.name]);
    if (node.kind === "matrix") return tape.timesTransposed(value(parts[1]), parameters[parts[0].name]);
    if (node.kind === "dot" && parts[0].of === "q" && parts[1].of === "k") {
      const products = tape.timesTransposed(value(parts[0]), value(parts[1]));
      return Object.assign(products, { rows: Tq * Tk, columns: 1 });
    }
    if (node.kind === "norm") return norm(tape, value(parts[0]));
    if (node.kind === "^") return power(tape, value(parts[0]), value(parts[1]).data[0]);
    if (parts.length === 1) return tape.map(value(parts[0]), ...MAPS[node.kind]);
    const [left, right] = parts.map((part) => spread(value(part), part.of, node.of));
    return node.kind === "dot" ? tape.sum(tape.zip(left, right, ...OPERATIONS["*"])) : tape.zip(left, right, ...OPERATIONS[node.kind]);
  };
  return spread(value(tree), tree.of, "pair");
}

/** |x| of each row; its derivative at 0 is 0. */
function norm(tape, x) {
  const squares = tape.sum(tape.map(x, (number) => number * number, (number) => 2 * number));
  return tape.map(squares, Math.sqrt, (_, length) => (length > 0 ? 0.5 / length : 0));
}

function power(tape, x, exponent) {
  return tape.map(x, (number) => number ** exponent, (number) => (exponent === 0 ? 0 : exponent * number ** (exponent - 1)));
}
