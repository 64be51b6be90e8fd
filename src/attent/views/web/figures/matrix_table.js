// A matrix of weights as cells with digits, in which one row is lit.
import { shade } from "../colours.js";
import { element } from "../elements.js";
import { apart } from "../words.js";
import { digits } from "./frame.js";

export class MatrixTable {
  /** `choose(row, column)` is called for the cell that is pointed at or focused, `press` for one that is clicked or entered. */
  constructor(title, choose, press = () => {}) {
    Object.assign(this, { choose, press, labels: "" });
    this.table = element("table", { role: "grid", class: "matrix", "aria-label": title, on: {
      pointerover: ({ target, pointerType }) => pointerType === "mouse" && this.visit(target),
      focusin: ({ target }) => this.visit(target),
      click: ({ target }) => this.pressed(target),
      keydown: (event) => this.key(event),
    } });
    this.node = element("div", { class: "titled" }, element("p", { class: "title", text: title }), element("div", { class: "scroll" }, this.table));
  }

  /** Show weights by row; `lit` is the row that the figure speaks of. Hidden cells have the weight null; `top` is full on the scale. */
  show(weights, queries, keys, lit, top = 1) {
    const [rows, columns] = [apart(queries), apart(keys)];
    if (this.labels !== JSON.stringify([rows, columns])) this.build(rows, columns);
    this.cells.forEach((line, row) => line.forEach((cell, column) => {
      const weight = weights[row][column];
      const text = weight === null ? "–" : digits(weight);
      if (cell.textContent !== text) cell.textContent = text;
      const { background, text: color } = shade(Math.min(Math.abs(weight ?? 0) / top, 1));
      Object.assign(cell.style, { background, color });
      cell.setAttribute("aria-label", `${rows[row]} to ${columns[column]}: ${weight === null ? "hidden" : text}`);
    }));
    [...this.table.tBodies[0].rows].forEach((line, row) => line.classList.toggle("lit", row === lit));
  }

  build(rows, columns) {
    this.labels = JSON.stringify([rows, columns]);
    this.cells = rows.map(() => columns.map(() => element("td", { role: "gridcell", tabindex: -1 })));
    this.cells[0][0].tabIndex = 0;
    const lines = rows.map((row, place) => element("tr", {}, element("th", { scope: "row", text: row }), ...this.cells[place]));
    const top = element("tr", {}, element("td"), ...columns.map((column) => element("th", { scope: "col" }, element("span", { text: column }))));
    this.table.replaceChildren(element("thead", {}, top), element("tbody", {}, ...lines));
  }

  position(target) {
    const row = this.cells.findIndex((line) => line.includes(target));
    return row < 0 ? null : [row, this.cells[row].indexOf(target)];
  }

  visit(target) {
    const position = this.position(target);
    if (position) this.choose(...position);
  }

  pressed(target) {
    const position = this.position(target);
    if (position) this.press(...position);
  }

  key(event) {
    const position = this.position(event.target);
    const way = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!position || !(way || event.key === "Enter" || event.key === " ")) return;
    event.preventDefault();
    if (!way) return this.press(...position);
    const next = this.cells[position[0] + way[0]]?.[position[1] + way[1]];
    if (!next) return;
    [event.target.tabIndex, next.tabIndex] = [-1, 0];
    next.focus();
  }
}
