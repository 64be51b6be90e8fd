// From the scores of one query to its weights: the normalizers of attention/normalizers, by the same names.
// normalize(scores) takes a row of at least one finite score and returns its weights; hidden keys are left out before (attend.js).

const largest = (scores) => scores.reduce((top, score) => Math.max(top, score), -Infinity);
const descending = (scores) => Float64Array.from(scores).sort().reverse();

function softmax(scores) {
  const top = largest(scores);
  const powers = Float64Array.from(scores, (score) => Math.exp(score - top));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}

/** max(s − τ, 0) with τ such that the weights sum to one. */
function sparsemax(scores) {
  const top = largest(scores);
  const ordered = descending(scores).map((score) => score - top);
  let [sum, threshold] = [0, 0];
  for (let index = 0; index < ordered.length; index++) {
    sum += ordered[index];
    if (1 + (index + 1) * ordered[index] <= sum) break;
    threshold = (sum - 1) / (index + 1);
  }
  return Float64Array.from(scores, (score) => Math.max(score - top - threshold, 0));
}

/** max(s/2 − τ, 0)² with τ such that the weights sum to one. */
function entmax15(scores) {
  const top = largest(scores);
  const ordered = descending(scores).map((score) => Math.max((score - top) / 2, -2));
  let [sum, squares, threshold] = [0, 0, 0];
  for (let index = 0; index < ordered.length; index++) {
    const count = index + 1;
    sum += ordered[index];
    squares += ordered[index] ** 2;
    const mean = sum / count;
    const next = mean - Math.sqrt(Math.max((1 - (squares - count * mean ** 2)) / count, 0));
    if (next > ordered[index]) break;
    threshold = next;
  }
  return Float64Array.from(scores, (score) => Math.max((score - top) / 2 - threshold, 0) ** 2);
}

/** The softmax of the two largest scores; of equal ones, the first. */
function topTwo(scores) {
  const places = [...scores.keys()].sort((one, other) => scores[other] - scores[one] || one - other).slice(0, 2);
  const weights = new Float64Array(scores.length);
  softmax(places.map((place) => scores[place])).forEach((weight, index) => { weights[places[index]] = weight; });
  return weights;
}

/** 1 for the largest score, the first of equal ones. */
function hard(scores) {
  const weights = new Float64Array(scores.length);
  weights[scores.indexOf(largest(scores))] = 1;
  return weights;
}

export const NORMALIZERS = {
  softmax,
  entmax15,
  sparsemax,
  top_k: topTwo,
  hard,
  sigmoid: (scores) => Float64Array.from(scores, (score) => 1 / (1 + Math.exp(-score))),
  identity: (scores) => Float64Array.from(scores),
};
