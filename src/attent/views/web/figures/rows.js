// Keys one below the other: score, weight, and the weight as a bar.
import { element } from "../elements.js";
import { digits } from "../words.js";

export class Rows {
  /** `heads` names the four columns; with `inputs`, one for each key, the scores are chosen by these. Bars have the color of a role. */
  constructor(keys, heads, { inputs = null, role = "weight" } = {}) {
    this.rows = keys.map((key, place) => {
      const [score, weight, bar] = [element("td"), element("td"), element("span", { class: `bar ${role}` })];
      if (inputs) score.append(inputs[place]);
      return { score, weight, bar, node: element("tr", {}, element("th", { scope: "row", text: key }), score, weight, element("td", { class: "bars" }, bar)) };
    });
    this.hasInputs = inputs !== null;
    const head = element("tr", {}, ...heads.map((text) => element(text ? "th" : "td", text ? { scope: "col", text } : {})));
    this.node = element("table", { class: "rows" }, element("thead", {}, head), element("tbody", {}, ...this.rows.map(({ node }) => node)));
  }

  /** `scores` may be null, where there are none to show. */
  show(scores, weights) {
    this.rows.forEach(({ score, weight, bar }, place) => {
      if (scores && !this.hasInputs) score.textContent = digits(scores[place]);
      weight.textContent = digits(weights[place]);
      bar.style.width = `${(100 * Math.min(Math.abs(weights[place]), 1)).toFixed(1)}%`;
      bar.classList.toggle("negative", weights[place] < 0);
    });
  }
}
