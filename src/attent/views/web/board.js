// Two lines of words with links: those of a word that is pointed at or in focus, otherwise those of a row that is chosen, or of every row.
import { linked, scaleOf, thickness } from "./colours.js";
import { element, rove } from "./elements.js";
import { Links } from "./links.js";
import { apart } from "./words.js";

export class Board {
  /** `names` and `languages` are those of the lines; `choose(row)` is called for a word of the lower line that is pointed at or in focus. */
  constructor(names, languages, choose = () => {}) {
    this.choose = choose;
    this.lists = names.map((name, side) => element("ul", {
      class: "list", role: "listbox", "aria-label": name, lang: languages[side],
      on: {
        pointerover: (event) => this.point(side, event.target), pointerleave: () => this.point(),
        focusin: (event) => this.point(side, event.target), focusout: () => this.point(),
        keydown: (event) => rove(event, [...this.lists[side].children]),
      },
    }));
    this.node = element("div", { class: "board" }, ...this.lists);
    this.links = new Links(this.node);
    this.node.append(this.links.node);
    this.pointed = null;
  }

  /** Show texts as arrays of words, and weights row by row of the lower one, perhaps of one row alone. */
  show(above, below, weights, { row = null, isDistribution = true } = {}) {
    const texts = [apart(above), apart(below)];
    texts.forEach((words, side) => this.write(this.lists[side], words));
    Object.assign(this, { texts, weights, chosen: row === null ? null : [1, row] });
    this.scale = scaleOf({ measure: "weights", distribution: isDistribution, width: above.length, height: below.length }, Math.max(...weights.flat(), 0));
    this.draw();
  }

  write(list, words) {
    if (words.length === list.children.length && words.every((word, place) => word === list.children[place].textContent)) return;
    list.replaceChildren(...words.map((text, place) => element("li", { role: "option", "aria-selected": "false", tabindex: place ? "-1" : "0", text })));
  }

  point(side, target) {
    const item = target?.closest?.("li");
    this.pointed = item ? [side, [...this.lists[side].children].indexOf(item)] : null;
    if (item && side === 1) this.choose(this.pointed[1]);
    if (this.weights) this.draw();
  }

  draw() {
    const selected = this.pointed ?? this.chosen;
    const [side, place] = selected ?? [];
    const links = this.weights.flatMap((values, row) => linked(values, this.scale, "row", row).map((key) => [key, row, thickness(values, this.scale, key)]));
    const [above, below] = this.lists.map((list) => [...list.children]);
    this.links.draw(links.filter((link) => !selected || link[side] === place).map(([key, row, weight]) => [above[key], below[row], weight]));
    [above, below].forEach((items, which) => items.forEach((item, at) => item.setAttribute("aria-selected", String(side === which && at === place))));
  }
}
