// What the model does with one sentence: links between the two texts, and its weights as matrices.
import { linked, onScheme, scaleOf, shade, share, thickness } from "../colours.js";
import { element, moved } from "../elements.js";
import { Links } from "../links.js";
import { apart } from "../words.js";

export class Board {
  constructor() {
    this.lists = ["English", "French"].map((name, side) => element("ul", {
      class: "list", role: "listbox", "aria-label": `${name} words`, lang: side ? "fr" : "en",
      on: { pointerover: (event) => this.point(side, event.target), pointerleave: () => this.point(), focusin: (event) => this.point(side, event.target), focusout: () => this.point(), keydown: (event) => this.move(event) },
    }));
    this.node = element("div", { class: "board" }, ...this.lists);
    this.links = new Links(this.node);
    this.node.append(this.links.node);
    this.said = element("output", { class: "said" });
    this.matrices = element("div", { class: "matrices" });
    this.pointed = null;
    onScheme(() => this.shown && this.show(this.shown));
  }

  /** Show source and rows, texts as arrays of words, and weights (rows, source); without `whole`, no matrices. */
  show(shown, whole = true) {
    const { weights, own, isDistribution } = shown;
    const [source, rows] = [apart(shown.source), apart(shown.rows)];
    this.shown = { ...shown, source, rows };
    [source, rows].forEach((words, side) => this.write(this.lists[side], words));
    this.scale = scaleOf({ measure: "weights", distribution: isDistribution, width: source.length, height: rows.length, causal: false }, Math.max(...weights, 0));
    this.rows = rows.map((_, row) => weights.slice(row * source.length, (row + 1) * source.length));
    this.draw();
    if (!whole) return;
    const mean = source.reduce((sum, _, place) => sum + own[place * source.length + place], 0) / source.length;
    const tables = [table("Attention", "α, while each French word is written", rows, source, weights, this.scale),
      table("Self-attention", `of the English words; ${mean.toFixed(2)} on the word itself`, source, source, own, { high: 1 })];
    if (this.matrices.contains(document.activeElement)) return;
    this.matrices.replaceChildren(...tables);
  }

  write(list, words) {
    if (words.length === list.children.length && words.every((word, place) => word === list.children[place].textContent)) return;
    list.replaceChildren(...words.map((text, place) => element("li", { role: "option", "aria-selected": "false", tabindex: place ? "-1" : "0", text })));
  }

  /** Look at one word alone, or with none given at all of them. */
  point(side, target) {
    const item = target?.closest?.("li");
    this.pointed = item ? [side, [...this.lists[side].children].indexOf(item)] : null;
    this.draw();
  }

  move(event) {
    const items = [...event.currentTarget.children];
    const next = moved(event.key, items.indexOf(event.target), items.length);
    if (next === undefined) return;
    event.preventDefault();
    items.forEach((item, place) => { item.tabIndex = place === next ? 0 : -1; });
    items[next].focus();
  }

  draw() {
    if (!this.rows) return;
    const [side, place] = this.pointed ?? [];
    const [above, below] = this.lists.map((list) => [...list.children]);
    const places = this.rows.flatMap((values, row) => linked(values, this.scale, "row", row).map((key) => [key, row, thickness(values, this.scale, key)]));
    this.links.draw(places.filter((link) => !this.pointed || link[side] === place).map(([key, row, weight]) => [above[key], below[row], weight]));
    [above, below].forEach((items, which) => items.forEach((item, at) => item.setAttribute("aria-selected", String(side === which && at === place))));
    const { source, rows } = this.shown;
    const values = (side ? [...(this.rows[place] ?? [])].map((value, at) => [source[at], value]) : this.rows.map((row, at) => [rows[at], row[place]]));
    const listed = values.sort((one, other) => other[1] - one[1]).slice(0, 3).map(([word, value]) => `${word} ${value?.toFixed(2)}`).join(" · ");
    this.said.textContent = this.pointed ? side ? `while writing ${rows[place]}: ${listed}` : `the weight of ${source[place]} while writing ${listed}` : "Below is the right translation. Thickness is the weight while each of its words is written; point at a word to see its weights alone.";
  }
}

function table(name, about, rows, columns, weights, scale) {
  const cells = (row) => columns.map((_, column) => {
    const value = weights[row * columns.length + column];
    const cell = element("td", { text: value.toFixed(2).replace("-", "−") });
    const colors = shade(share(value, scale, row));
    [cell.style.background, cell.style.color] = [colors.background, colors.text];
    return cell;
  });
  const head = element("tr", {}, element("td"), ...columns.map((text) => element("th", { scope: "col", text })));
  const body = rows.map((text, row) => element("tr", {}, element("th", { scope: "row", text }), ...cells(row)));
  const label = `${name} ${about}`;
  return element("div", {}, element("h3", { text: label }),
    element("div", { class: "frame", tabindex: "0", role: "region", "aria-label": label }, element("table", { class: "weights" }, element("thead", {}, head), element("tbody", {}, ...body))));
}
