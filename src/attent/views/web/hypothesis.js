// A translation or a continuation as it grows. A token that is clicked can be changed: to another that was likely, or to anything that is typed.

import { element, rove, ordered } from "./elements.js";
import { direction, visible } from "./words.js";

const STOP = 3;

export class Hypothesis {
  /** `name` says what is written; `change(prefix, more)` is called with the ids that stay and the text behind them; `point(place, how)` when a token is pointed at ("over"), left (null) or selected ("choose"). */
  constructor(name, change, point) {
    this.change = change;
    this.point = point;
    this.list = element("ol", { class: "pieces written", "aria-label": `the ${name}; select a token to replace it`, on: { pointerleave: () => this.point(null, "over"), keydown: (event) => this.key(event) } });
    this.menu = element("div");
    // the place of the token that was changed, until another stands there, and what was written before
    this.changed = null;
    this.before = null;
    this.begin();
  }

  begin() {
    // who is elsewhere by now stays there
    if (![this.list, this.menu].some((part) => part.contains(document.activeElement))) this.changed = null;
    if (this.changed === null) this.before = null;
    this.steps = [];
    this.list.replaceChildren();
    this.menu.replaceChildren();
  }

  add(step) {
    const place = this.steps.length;
    this.steps.push(step);
    const button = element("button", {
      type: "button", "aria-expanded": "false", tabindex: place ? -1 : 0, title: chance(step.said.probability),
      on: { click: () => this.open(place), pointerenter: () => this.point(place, "over"), focus: () => this.point(place, "choose") },
    }, element("bdi", { text: visible(step.said.piece) }));
    // against what was written before a token was replaced
    const isNew = this.before !== null && this.before[place] !== step.said.token;
    this.list.append(element("li", { class: [step.forced && "forced", isNew && "changed"].filter(Boolean).join(" ") }, button));
    const way = direction(this.steps.filter(({ said }) => said.token !== STOP).map(({ said }) => said.piece));
    ordered(this.list, this.steps.map(({ said }) => (said.token === STOP ? "" : said.piece)), way);
    if (place !== this.changed) return;
    this.changed = null;
    // with what had the focus it went to the page
    if (document.activeElement === document.body) button.focus();
  }

  /** Whether the menu of a token is open. */
  get isOpen() {
    return this.menu.childElementCount > 0;
  }

  /** Mark the token whose weights are shown. */
  select(place) {
    [...this.list.children].forEach((item, which) => {
      item.classList.toggle("shown", which === place);
      item.firstChild.tabIndex = which === place ? 0 : -1;
    });
  }

  key(event) {
    const buttons = [...this.list.children].map((item) => item.firstChild);
    const key = this.list.dir === "rtl" ? { ArrowLeft: "ArrowRight", ArrowRight: "ArrowLeft" }[event.key] ?? event.key : event.key;
    rove(event, buttons, 1, key);
  }

  /** What else a token might have been. */
  open(place) {
    this.point(place, "choose");
    const step = this.steps[place];
    for (const [which, item] of [...this.list.children].entries()) item.firstChild.setAttribute("aria-expanded", String(which === place));
    const prefix = this.steps.slice(0, place).map(({ said }) => said.token);
    const change = (ids, more) => {
      this.changed = place;
      this.before = this.steps.map(({ said }) => said.token);
      this.change(ids, more);
    };
    const offers = step.best.filter(({ token }) => token !== STOP).map((candidate) => element("button", {
      type: "button", on: { click: () => change([...prefix, candidate.token], "") },
    }, element("bdi", { text: visible(candidate.piece) }), element("small", { text: chance(candidate.probability) })));
    const typed = element("input", { type: "text", dir: "auto", "aria-label": "another continuation from here" });
    const form = element("form", { on: { submit: (event) => { event.preventDefault(); change(prefix, typed.value); } } },
      typed, element("button", { text: "continue from here" }));
    const close = () => {
      this.menu.replaceChildren();
      this.list.children[place]?.firstChild.setAttribute("aria-expanded", "false");
      this.list.children[place]?.firstChild.focus();
    };
    const node = element("div", {
      class: "instead", role: "dialog", "aria-label": `instead of ${visible(step.said.piece)}`,
      on: { keydown: (event) => { if (event.key === "Escape") { event.stopPropagation(); close(); } } },
    }, element("p", { class: "status", text: "Replace it; the model writes the rest anew:" }), element("div", { class: "offers" }, ...offers), form);
    this.menu.replaceChildren(node);
    offers[0]?.focus();
  }
}

function chance(probability) {
  if (probability < 0.001) return "< 0.1 %";
  return probability >= 0.995 ? "100 %" : `${(100 * probability).toFixed(probability < 0.1 ? 1 : 0)} %`;
}
