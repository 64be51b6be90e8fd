// A translation or a continuation as it grows. A token that is clicked can be changed: to another that was likely, or to anything that is typed.

import { element, ordered } from "./elements.js";
import { direction, visible } from "./words.js";

const STOP = 3;

export class Hypothesis {
  /** `name` says what is written; `change(prefix, more)` is called with the ids that stay and the text behind them; `point(place)` when a token is pointed at. */
  constructor(name, change, point) {
    this.change = change;
    this.point = point;
    this.list = element("ol", { class: "pieces written", "aria-label": `the ${name}; a token that is chosen can be changed` });
    this.menu = element("div");
    this.node = element("div", {}, this.list, this.menu);
    // the place of the token that was changed, until another stands there
    this.changed = null;
    this.begin();
  }

  begin() {
    // who is elsewhere by now stays there
    if (!this.node.contains(document.activeElement)) this.changed = null;
    this.steps = [];
    this.list.replaceChildren();
    this.menu.replaceChildren();
  }

  add(step) {
    const place = this.steps.length;
    this.steps.push(step);
    const point = () => this.point(place);
    const button = element("button", {
      type: "button", "aria-expanded": "false", on: { click: () => this.open(place), pointerenter: point, focus: point },
    }, element("bdi", { text: visible(step.said.piece) }), element("small", { dir: "ltr", text: chance(step.said.probability) }));
    this.list.append(element("li", { class: step.forced ? "forced" : "" }, button));
    const way = direction(this.steps.filter(({ said }) => said.token !== STOP).map(({ said }) => said.piece));
    ordered(this.list, this.steps.map(({ said }) => (said.token === STOP ? "" : said.piece)), way);
    if (place !== this.changed) return;
    this.changed = null;
    // with what had the focus it went to the page
    if (document.activeElement === document.body) button.focus();
  }

  /** What else a token might have been. */
  open(place) {
    const step = this.steps[place];
    for (const [which, item] of [...this.list.children].entries()) item.firstChild.setAttribute("aria-expanded", String(which === place));
    const prefix = this.steps.slice(0, place).map(({ said }) => said.token);
    const change = (ids, more) => {
      this.changed = place;
      this.change(ids, more);
    };
    const offers = step.best.filter(({ token }) => token !== STOP).map((candidate) => element("button", {
      type: "button", on: { click: () => change([...prefix, candidate.token], "") },
    }, element("bdi", { text: visible(candidate.piece) }), element("small", { text: chance(candidate.probability) })));
    const typed = element("input", { type: "text", dir: "auto", "aria-label": "what comes from here on" });
    const form = element("form", { on: { submit: (event) => { event.preventDefault(); change(prefix, typed.value); } } },
      typed, element("button", { text: "go on from this" }));
    const close = () => {
      this.menu.replaceChildren();
      this.list.children[place]?.firstChild.setAttribute("aria-expanded", "false");
      this.list.children[place]?.firstChild.focus();
    };
    const node = element("div", {
      class: "instead", role: "dialog", "aria-label": `instead of ${visible(step.said.piece)}`,
      on: { keydown: (event) => { if (event.key === "Escape") { event.stopPropagation(); close(); } } },
    }, element("p", { class: "status", text: "Instead, the likeliest first; the model goes on from there:" }), element("div", { class: "offers" }, ...offers), form);
    this.menu.replaceChildren(node);
    offers[0]?.focus();
  }
}

function chance(probability) {
  if (probability < 0.001) return "< 0.1 %";
  return probability >= 0.995 ? "100 %" : `${(100 * probability).toFixed(probability < 0.1 ? 1 : 0)} %`;
}
