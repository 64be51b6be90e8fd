// A weight written out: the context that a word reads, α of one key from its score, and the score from query and key.

import { dot } from "../formula/matrix.js";
import { element } from "../elements.js";
import { keyOf } from "../selection.js";
import { largest, ranked, short, visible } from "../words.js";

// Terms of a sum that are written; the others are counted.
const TERMS = 6;
// What each normalizer does to the scores of a row.
const NORMALIZED = {
  softmax: "the softmax of the scores of its row",
  top_k: "the softmax of the two largest scores of its row, 0 for all others",
  hard: "1 for the largest score of its row, 0 for all others",
  sigmoid: "the sigmoid of the score alone: a row does not sum to 1",
  identity: "the score itself, which is no weight: it can be negative",
};
// How a weight is computed from its score and those of its row, of the normalizers for which that is one term.
const FORMULAS = { softmax: softmaxOf, sigmoid: (score) => `1 / (1 + exp(−${fenced(score)})) = ` };
// How far a product may be from the score that it is said to be.
const NEAR = 1e-3;

export class Sum {
  constructor(source, state) {
    this.source = source;
    this.output = element("output", { "aria-live": "polite" });
    this.node = element("section", { class: "sum", "aria-label": "the sum of a weight" }, this.output, element("p", { class: "about", text: "Select a cell of the matrix, and its weight is written out here." }));
    state.follow((values) => this.write(values));
  }

  write({ group, layer, head, side, place, cell }) {
    const { scene } = this.source;
    const about = scene.groups.find(({ name }) => name === group);
    if (side !== "row") return this.output.replaceChildren();
    const { width, values } = this.source.matrix(group, layer, head);
    const weights = values.subarray(place * width, (place + 1) * width);
    const key = Math.max(keyOf(place, weights, cell), 0);
    const rows = scene.texts[about.rows].labels;
    const columns = scene.texts[about.columns].labels;
    const lines = [this.context(rows[place], weights, columns)];
    const name = () => [word(rows[place], "query"), " → ", word(columns[key], "key")];
    if (head === "mean") lines.push(["Select one head to see how ", ...name(), " becomes ", number(weights[key], "weight"), "."]);
    else {
      const parts = this.source.parts(group, layer, head);
      lines.push(feature(parts.value, weights), ...written(parts, place, key, name, this.source.normalizer));
    }
    this.output.replaceChildren(...lines.map((line) => element("p", {}, ...line)));
  }

  /** What a query reads: its values by their weights. */
  context(query, weights, labels) {
    const places = ranked(weights, TERMS);
    const rest = weights.filter((weight, place) => weight !== 0 && !places.includes(place));
    const terms = added(places, (place) => [number(weights[place], "weight", fenced), " v(", word(labels[place], "value"), ")"]);
    const more = rest.length ? ` + ${rest.length} smaller, ${short(rest.reduce((sum, weight) => sum + weight, 0))} together` : "";
    return [word(query, "query"), " reads ", ...(terms.length ? terms : ["nothing: every key is hidden"]), more];
  }
}

/** The first feature of what a query reads. */
function feature(value, weights) {
  const firsts = weights.map((_, place) => value.at(place, 0));
  return ["its first number = ", ...productsOf(weights, firsts, ["weight", "value"]), " = ", short(dot(weights, firsts))];
}

/** The largest products of two lists of numbers, in the colors of their roles; the others are counted. */
function productsOf(left, right, [one, other]) {
  const places = largest(left.map((factor, place) => factor * right[place]), TERMS);
  const rest = left.filter((factor, place) => factor * right[place] !== 0 && !places.includes(place)).length;
  return [...added(places, (place) => [number(left[place], one, fenced), "·", number(right[place], other, fenced)]), rest ? ` + ${rest} smaller` : ""];
}

function added(places, term) {
  return places.flatMap((place, index) => [index ? " + " : "", ...term(place)]);
}

/** The weight of a key from the scores of its row, and its score from the products of query and key. */
function written({ query, key, scores, weights, factors }, row, column, name, normalizer) {
  const own = scores.row(row);
  if (own[column] === -Infinity) return [["α of ", ...name(), " = ", number(0, "weight"), ": the mask hides it."]];
  const lines = [["α of ", ...name(), " = ", formula(normalizer, own, column, factors[row]?.(column)), number(weights.at(row, column), "weight"),
    `: ${NORMALIZED[normalizer] ?? `the ${normalizer} of the scores of its row`}${factors[row] ? ", times a Gaussian of the distance to the predicted position" : ""}`]];
  const score = ["score of ", ...name(), " = "];
  const product = query.columns === key.columns ? dot(query.row(row), key.row(column)) : NaN;
  const factor = own[column] / product;
  if (!isScaled(query, key, own, row, factor)) return [...lines, [...score, short(own[column])]];
  const products = productsOf(query.row(row), key.row(column), ["query", "key"]);
  return [...lines, [...score, `${short(factor)} · (`, ...products, ") = ", short(own[column])]];
}

/** The formula of a normalizer with the numbers of one key, times a factor if the weights have one; nothing where it is not one term. */
function formula(normalizer, scores, column, factor) {
  const text = FORMULAS[normalizer]?.(scores[column], scores) ?? "";
  return text && factor !== undefined ? `${text.slice(0, -3)} · ${short(factor)} = ` : text;
}

/** exp s / Σ exp; a score that the mask hides adds nothing. */
function softmaxOf(score, scores) {
  const top = Math.max(...scores);
  const total = scores.reduce((sum, one) => sum + Math.exp(one - top), 0);
  return `exp(${short(score)} − ${fenced(top)}) / Σ exp(s − ${fenced(top)}) = ${short(Math.exp(score - top))} / ${short(total)} = `;
}

/** Whether all scores of a row are its products with the keys times one factor. */
function isScaled(query, key, own, row, factor) {
  if (!Number.isFinite(factor)) return false;
  return own.every((score, other) => score === -Infinity || Math.abs(factor * dot(query.row(row), key.row(other)) - score) <= NEAR * Math.max(1, Math.abs(score)));
}

/** A number behind a minus. */
function fenced(value) {
  return value < 0 ? `(${short(value)})` : short(value);
}

function word(label, role) {
  return element("bdi", { class: role, text: visible(label) });
}

function number(value, role, write = short) {
  return element("span", { class: role, text: write(value) });
}
