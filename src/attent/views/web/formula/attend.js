// Attention(q, D) = Σᵢ α(q, kᵢ) vᵢ, step by step, for one head: the formula of attention/reference.py.
import { MASKS } from "./masks.js";
import { Matrix, times } from "./matrix.js";
import { NORMALIZERS } from "./normalizers.js";
import { keyed } from "./scores.js";

/**
 * Attend from queries (Tq, D) to keys (Tk, D) and values (Tk, Dv).
 *
 * `score` is a name with `parameters`, or a function; `normalizer` is a name. `mask` is a function of the positions of query and key, `bias` one
 * that is added to scores, `weighting` one that multiplies weights; scores are divided by `temperature`. `start` is the position of the first query.
 * Returns scores (Tq, Tk), with -Infinity for hidden pairs, weights (Tq, Tk), which are 0 there, and context (Tq, Dv).
 */
export function attend(query, key, value, { score = "scaled_dot", parameters = {}, normalizer = "softmax", mask = MASKS.none(), bias = null, weighting = null, temperature = 1, start = 0 } = {}) {
  const { key: project, score: compare } = typeof score === "function" ? { key: (keys) => keys, score } : keyed(score, parameters);
  const scores = compare(query, project(key));
  const weights = new Matrix(query.rows, key.rows);
  for (let row = 0; row < query.rows; row++) {
    const own = scores.row(row);
    for (let column = 0; column < key.rows; column++) {
      if (bias) own[column] += bias(start + row, column);
      own[column] = mask(start + row, column) ? own[column] / temperature : -Infinity;
    }
    normalized(own, normalizer, weights.row(row));
    if (weighting) weights.row(row).forEach((weight, column, all) => { all[column] = weight * weighting(start + row, column); });
  }
  return { scores, weights, context: times(weights, value) };
}

/** Write the weights of a row of scores, in which -Infinity hides a key; a row that is hidden whole has none. */
export function normalized(scores, normalizer, weights = new Float64Array(scores.length)) {
  const visible = [...scores.keys()].filter((place) => scores[place] !== -Infinity);
  weights.fill(0);
  if (visible.length) NORMALIZERS[normalizer](visible.map((place) => scores[place])).forEach((weight, index) => { weights[visible[index]] = weight; });
  return weights;
}
