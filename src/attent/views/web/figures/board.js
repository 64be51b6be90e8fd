// A board of a figure, with a title; and what a row of weights says.
import { Board } from "../board.js";
import { uniformly } from "../colours.js";
import { element } from "../elements.js";
import { apart, listed } from "../words.js";

/** A board with a title above it, in which a row is chosen. */
export class TitledBoard extends Board {
  constructor(title, choose) {
    super(["keys", title], [], choose);
    this.titled = element("div", { class: "titled" }, element("p", { class: "title", text: title }), this.node);
  }
}

/** The largest weights of a row in words, or that they are nearly uniform. */
export function reading(weights, labels) {
  return uniformly(Float64Array.from(weights), { ends: ["0", "1"], allowed: () => labels.length }, 0) || listed(weights, apart(labels));
}
