// Two lines of words with links: a word below is chosen, and its strongest weights lead to words above.
import { linked, scaleOf, thickness, uniformly } from "../colours.js";
import { element, moved } from "../elements.js";
import { Links } from "../links.js";
import { apart, listed } from "../words.js";

export class Board {
  /** `choose(row)` is called for a word of the lower line that is chosen. */
  constructor(title, choose) {
    [this.above, this.below] = [element("div", { class: "line" }), element("div", { class: "line", role: "group", "aria-label": title })];
    const board = element("div", { class: "board" }, this.above, this.below);
    this.links = new Links(board);
    board.append(this.links.node);
    this.node = element("div", { class: "titled" }, element("p", { class: "title", text: title }), board);
    this.choose = choose;
    this.labels = "";
  }

  /** Show the weights of row `row`, one for each word above. */
  show(above, below, weights, row) {
    if (this.labels !== JSON.stringify([above, below])) this.build(above, below);
    [...this.below.children].forEach((word, place) => {
      word.setAttribute("aria-pressed", String(place === row));
      word.tabIndex = place === row ? 0 : -1;
    });
    const scale = scaleOf({ measure: "weights", distribution: true, width: above.length, height: below.length });
    const places = weights ? linked(weights, scale, "row", row) : [];
    this.links.draw(places.map((place) => [this.above.children[place], this.below.children[row], thickness(weights, scale, place)]));
  }

  build(above, below) {
    this.labels = JSON.stringify([above, below]);
    this.above.replaceChildren(...apart(above).map((text) => element("span", { class: "word", text })));
    this.below.replaceChildren(...apart(below).map((text, place) => element("button", { type: "button", class: "word", text, on: {
      click: () => this.choose(place),
      keydown: (event) => {
        const next = moved(event.key, place, below.length);
        if (next === undefined) return;
        event.preventDefault();
        this.below.children[next].focus();
        this.choose(next);
      },
    } })));
  }
}

/** The largest weights of a row in words, or that they are nearly uniform. */
export function reading(weights, labels) {
  return uniformly(Float64Array.from(weights), { ends: ["0", "1"], allowed: () => labels.length }, 0) || listed(weights, apart(labels));
}
