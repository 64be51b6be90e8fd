// Page 4, page 9 and the database: from scores to weights, by a normalizer, a temperature, a mask or a bandwidth.
import { choice, element } from "../elements.js";
import { attend, normalized } from "../formula/attend.js";
import { both, MASKS } from "../formula/masks.js";
import { NORMALIZERS } from "../formula/normalizers.js";
import { reading } from "./board.js";
import { digits } from "../words.js";
import { framed, oncePerFrame, slider } from "./frame.js";
import { MatrixTable } from "../matrix_table.js";
import { Rows } from "./rows.js";

const WORDS = ["the", "black", "dog", "sings"];

export function normalizers(place) {
  const scores = [0.5, 2, 1.2, -1];
  let [normalizer, temperature] = ["softmax", 1];
  const draw = () => {
    const weights = normalized(scores.map((score) => score / temperature), normalizer);
    rows.show(scores, weights);
    const zeros = [...weights].filter((weight) => weight === 0).length;
    line.textContent = `Σ α = ${digits(weights.reduce((sum, weight) => sum + weight, 0))}; ${zeros ? `${zeros} of 4 weights are exactly 0` : "no weight is exactly 0"}.`;
  };
  const redraw = oncePerFrame(draw);
  const inputs = WORDS.map((word, key) => slider(`score of ${word}`, [-3, 3, 0.1], scores[key], (score) => {
    scores[key] = score;
    redraw();
  }));
  const rows = new Rows(WORDS, ["key", "score", "weight α", ""], { inputs });
  const names = Object.keys(NORMALIZERS).map((name) => [name, name === "top_k" ? "top_k of 2" : name]);
  const line = framed(place, [
    choice("normalizer", names, normalizer, (name) => { normalizer = name; redraw(); }),
    slider("temperature", [0.1, 5, 0.1], 1, (value) => { temperature = value; redraw(); }),
  ], rows.node);
  draw();
}

// Those whose function takes a size have one.
const MASKED = {
  causal: () => MASKS.causal(),
  none: () => MASKS.none(),
  window: (size) => MASKS.window({ left: size, right: size }),
  "causal and window": (size) => both(MASKS.causal(), MASKS.window({ left: size, right: 0 })),
  prefix: (size) => MASKS.prefix({ length: size }),
};

export function masks(place, model) {
  const { labels, decoder: [{ query, kept }] } = model.translate(WORDS);
  const columns = ["<s>", ...labels.slice(0, -1)];
  let [name, size, row, toggled] = ["causal", 1, 3, new Set()];
  const draw = () => {
    const chosen = MASKED[name](size);
    const mask = (query, key) => chosen(query, key) !== toggled.has(`${query} ${key}`);
    const weights = attend(query, kept.keys, kept.values, { mask }).weights.list().map((line, query) => line.map((weight, key) => (mask(query, key) ? weight : null)));
    matrix.show(weights, labels, columns, row);
    const seen = columns.filter((_, key) => weights[row][key] !== null);
    const own = weights[row].filter((weight) => weight !== null);
    line.textContent = seen.length ? `${labels[row]} may see ${seen.length} of ${columns.length}: ${reading(own, seen)}.` : `${labels[row]} may see nothing: all its weights are 0.`;
  };
  const redraw = oncePerFrame(draw);
  const matrix = new MatrixTable("decoder, self-attention, head 0", (query) => { row = query; redraw(); }, (query, key) => {
    if (!toggled.delete(`${query} ${key}`)) toggled.add(`${query} ${key}`);
    row = query;
    redraw();
  });
  const control = slider("size of window or prefix", [0, 4, 1], 1, (value) => { size = value; redraw(); }, String);
  control.querySelector("input").disabled = true;
  const line = framed(place, [
    choice("mask", Object.keys(MASKED).map((each) => [each, each]), name, (chosen) => {
      [name, toggled] = [chosen, new Set()];
      control.querySelector("input").disabled = !MASKED[name].length;
      redraw();
    }),
    control,
  ], matrix.node);
  draw();
}

const [GRADES, SALARIES] = [[3, 3.4, 3.5, 3.6, 4], [32000, 36000, 37000, 38500, 44000]];
// Steps of the slider: equal keys alone, the nearest key, then bandwidths, up to the mean of all.
const [EXACT, NEAREST] = [0, 1];
const BANDWIDTHS = [null, null, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 20];
const salary = (value) => Math.round(value).toLocaleString("en");

export function lookup(place) {
  let [query, step] = [3.5, 4];
  const draw = () => {
    const away = GRADES.map((grade) => Math.abs(grade - query));
    const scores = away.map((distance) => (step === EXACT ? (distance < 1e-9 ? 0 : -Infinity) : -((distance / (BANDWIDTHS[step] ?? 1)) ** 2) / 2));
    const weights = normalized(scores, step === NEAREST ? "hard" : "softmax");
    rows.show(scores, weights);
    const isMissing = !weights.some((weight) => weight > 0);
    line.textContent = isMissing ? "missing: no such key" : `value: ${salary(weights.reduce((sum, weight, key) => sum + weight * SALARIES[key], 0))}`;
  };
  const redraw = oncePerFrame(draw);
  const rows = new Rows(GRADES.map((grade, key) => `${grade.toFixed(1)} → ${salary(SALARIES[key])}`), ["key → value", "score", "weight α", ""]);
  const say = (value) => (value === EXACT ? "exact: equal keys" : value === NEAREST ? "nearest" : `soft, h = ${BANDWIDTHS[value]}`);
  const line = framed(place, [
    slider("query", [2.8, 4.2, 0.05], query, (value) => { query = value; redraw(); }),
    slider("match", [0, 11, 1], step, (value) => { step = value; redraw(); }, say),
  ], element("div", {}, rows.node));
  draw();
}
