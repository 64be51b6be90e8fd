// Computes cases of the formula, given the bundle of engine/attention; infinities are text in JSON.
const { attend } = module_formula_attend, { MASKS, both } = module_formula_masks, { Matrix } = module_formula_matrix;
const { rotary, alibi, slopes, relative_bias, sinusoidal } = module_formula_positions;
const matrixOf = ({ rows, columns, data }) => new Matrix(rows, columns, Float32Array.from(data));
function biasOf({ kind, head, heads, table }) {
  if (kind === "alibi") return alibi(slopes(heads)[head]);
  return kind === "relative_bias" ? relative_bias(matrixOf(table), head) : null;
}
function computed({ query, key, value, score, parameters, vectors, normalizer, mask, position, start, added }) {
  if (added) return { added: [...sinusoidal(added.length, added.width, added.start).data] };
  let [q, k] = [matrixOf(query), matrixOf(key)];
  if (position.kind === "rotary") [q, k] = [rotary(q, start), rotary(k)];
  const own = { ...vectors, ...Object.fromEntries(Object.entries(parameters).map(([name, part]) => [name, matrixOf(part)])) };
  const result = attend(q, k, matrixOf(value), { score, parameters: own, normalizer, start, bias: biasOf(position), mask: mask.map(({ name, ...more }) => MASKS[name](more)).reduce(both) });
  return Object.fromEntries(Object.entries(result).map(([name, part]) => [name, [...part.data].map((number) => (number === -Infinity ? "-Infinity" : number))]));
}
