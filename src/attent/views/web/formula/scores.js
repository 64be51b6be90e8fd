// How well each key matches each query: the scores of attention/scores, by the same names.
// score(query, key, parameters) of queries (Tq, D) and keys (Tk, D) is (Tq, Tk). Parameters have the names of the Python modules'.
import { Matrix, dot as product, tabulate, times, timesTransposed } from "./matrix.js";

const length = (row) => Math.max(Math.sqrt(product(row, row)), 1e-12);

/** v·tanh(q' + k') of rows that are projected already; without v, the sum. */
function tanhScore(query, key, v) {
  return tabulate(query.rows, key.rows, (row, column) => {
    const [q, k] = [query.row(row), key.row(column)];
    let sum = 0;
    for (let index = 0; index < q.length; index++) sum += (v ? v[index] : 1) * Math.tanh(q[index] + k[index]);
    return sum;
  });
}

function shifted(rows, bias) {
  return bias ? tabulate(rows.rows, rows.columns, (row, column) => rows.at(row, column) + bias[column]) : rows;
}

const SCORES = {
  /** qᵀk */
  dot: (query, key) => timesTransposed(query, key),
  /** qᵀk / √D, or times a scale */
  scaled_dot: (query, key, { scale = 1 / Math.sqrt(Math.max(query.columns, 1)) } = {}) => timesTransposed(query, key, scale),
  /** The cosine of the angle, over a temperature. */
  cosine: (query, key, { temperature = 1 } = {}) =>
    tabulate(query.rows, key.rows, (row, column) => {
      const [q, k] = [query.row(row), key.row(column)];
      return product(q, k) / (length(q) * length(k) * temperature);
    }),
  /** −Σ (q_d − k_d)² / 2σ_d², with one sigma or one per feature */
  gaussian: (query, key, { sigma = 1 } = {}) =>
    tabulate(query.rows, key.rows, (row, column) => {
      const [q, k] = [query.row(row), key.row(column)];
      let sum = 0;
      for (let index = 0; index < q.length; index++) sum -= ((q[index] - k[index]) / (sigma[index] ?? sigma)) ** 2 / 2;
      return sum;
    }),
  /** qᵀWk, weight (Dq, Dk) */
  general: (query, key, { weight, scale = 1 }) => timesTransposed(times(query, weight), key, scale),
  /** σ(W_g[q; k] + b) · qᵀk, query_weight (Dq, 1), key_weight (Dk, 1), bias a number */
  gated: (query, key, { query_weight, key_weight, bias = 0 }) =>
    tabulate(query.rows, key.rows, (row, column) => {
      const [q, k] = [query.row(row), key.row(column)];
      return product(q, k) / (1 + Math.exp(-(product(q, query_weight.data) + product(k, key_weight.data) + bias)));
    }),
  /** (Wᵀq)ⱼ, weight (Dq, positions) */
  location: (query, key, { weight }) => {
    const all = times(query, weight);
    return tabulate(query.rows, key.rows, (row, column) => all.at(row, column));
  },
};

// Scores v·tanh(q' + k') of projected queries and keys.
const PROJECTED = {
  /** v·tanh(W₁q + W₂k + b), query_weight (Dq, hidden), key_weight (Dk, hidden); bias and v are vectors or null */
  additive: ({ query_weight, key_weight, bias = null }) => ({ query: (queries) => shifted(times(queries, query_weight), bias), key: (keys) => times(keys, key_weight) }),
  /** v·tanh(W[q; k]), weight (Dq + Dk, hidden) */
  concat: ({ weight }) => ({
    query: (queries) => times(queries, rowsOf(weight, 0, queries.columns)), key: (keys) => times(keys, rowsOf(weight, weight.rows - keys.columns, weight.rows)),
  }),
};

/** A score by its name, whose keys are projected once: `key` of keys as they are, and `score` of queries and what `key` returned. */
export function keyed(name, parameters = {}) {
  if (!(name in PROJECTED)) return { key: (keys) => keys, score: (queries, keys) => SCORES[name](queries, keys, parameters) };
  const { query, key } = PROJECTED[name](parameters);
  return { key, score: (queries, keys) => tanhScore(query(queries), keys, parameters.v) };
}

function rowsOf({ columns, data }, begin, end) {
  return new Matrix(end - begin, columns, data.subarray(begin * columns, end * columns));
}
