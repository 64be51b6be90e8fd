// Scores to weights with derivatives: the normalizers and masks of formula/, and the Jacobian of each normalizer as a function of its weights.
import { normalized } from "../formula/attend.js";

// Of the weights w of a row and the derivative g by each, the derivative by each score. Through hard, nothing is learned.
const centered = (w, g, size) => {
  let [sum, total] = [0, 0];
  for (let index = 0; index < w.length; index++) {
    sum += size(w[index]) * g[index];
    total += size(w[index]);
  }
  return w.map((weight, index) => size(weight) * (g[index] - (total ? sum / total : 0)));
};
export const SLOPES = {
  softmax: (w, g) => centered(w, g, (weight) => weight),
  entmax15: (w, g) => centered(w, g, Math.sqrt),
  sparsemax: (w, g) => centered(w, g, (weight) => Number(weight > 0)),
  top_k: (w, g) => centered(w, g, (weight) => weight),
  hard: (w) => w.map(() => 0),
  sigmoid: (w, g) => w.map((weight, index) => weight * (1 - weight) * g[index]),
  identity: (w, g) => g.slice(),
};

/** The weights (Tq, Tk) of the scores of as many pairs, with `columns` keys; those that `mask(query, key)` hides are 0, and so is what they get back. */
export function normalize(tape, scores, normalizer, mask, columns) {
  const rows = scores.data.length / columns;
  const weights = tape.record(rows, columns, ({ gradient }) => {
    for (let row = 0; row < rows; row++) {
      const at = row * columns;
      const seen = Array.from({ length: columns }, (_, key) => key).filter((key) => mask(row, key));
      const slopes = SLOPES[normalizer](seen.map((key) => weights.data[at + key]), seen.map((key) => gradient[at + key]));
      seen.forEach((key, index) => { scores.gradient[at + key] += slopes[index]; });
    }
  });
  for (let row = 0; row < rows; row++) {
    const own = Float64Array.from(scores.data.subarray(row * columns, (row + 1) * columns), (score, key) => (mask(row, key) ? score : -Infinity));
    normalized(own, normalizer, weights.row(row));
  }
  return weights;
}
