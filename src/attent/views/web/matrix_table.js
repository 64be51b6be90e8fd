// A matrix of weights as cells with digits, in which one row is lit.
import { shade } from "./colours.js";
import { element, rove } from "./elements.js";
import { apart, digits } from "./words.js";

export class MatrixTable {
  /** `choose(row, column)` is called for the cell that is pointed at or focused, `press` for one that is clicked or entered. */
  constructor(title, choose = () => {}, press = () => {}) {
    this.title = element("p", { class: "title" });
    this.table = element("table", { role: "grid", class: "matrix", on: {
      pointerover: ({ target, pointerType }) => pointerType === "mouse" && this.tell(target, choose),
      focusin: ({ target }) => this.tell(target, choose),
      click: ({ target }) => this.tell(target, press),
      keydown: (event) => {
        if (["Enter", " "].includes(event.key)) this.tell(event.target, press);
        else rove(event, this.cells, this.across);
      },
    } });
    this.node = element("div", { class: "titled" }, this.title, element("div", { class: "scroll" }, this.table));
    this.labels = "";
    this.say(title);
  }

  say(title) {
    this.title.textContent = title;
    this.table.setAttribute("aria-label", title);
  }

  /** Show weights by row; `lit` is the row that the figure speaks of. Hidden cells have the weight null; `top` is full on the scale. */
  show(weights, queries, keys, lit, top = 1) {
    const [rows, columns] = [apart(queries), apart(keys)];
    if (this.labels !== JSON.stringify([rows, columns])) this.build(rows, columns);
    weights.flat().forEach((weight, place) => {
      const cell = this.cells[place];
      const text = weight === null ? "–" : digits(weight);
      if (cell.textContent !== text) cell.textContent = text;
      const { background, text: color } = shade(Math.min(Math.abs(weight ?? 0) / top, 1));
      Object.assign(cell.style, { background, color });
      cell.setAttribute("aria-label", `${rows[Math.floor(place / this.across)]} to ${columns[place % this.across]}: ${weight === null ? "hidden" : text}`);
    });
    [...this.table.tBodies[0].rows].forEach((line, row) => line.classList.toggle("lit", row === lit));
  }

  build(rows, columns) {
    this.labels = JSON.stringify([rows, columns]);
    this.across = columns.length;
    this.cells = rows.flatMap(() => columns.map(() => element("td", { role: "gridcell", tabindex: -1 })));
    if (rows.length) this.cells[0].tabIndex = 0;
    const cellsOf = (row) => this.cells.slice(row * this.across, (row + 1) * this.across);
    const lines = rows.map((text, row) => element("tr", {}, element("th", { scope: "row", text }), ...cellsOf(row)));
    const top = element("tr", {}, element("td"), ...columns.map((column) => element("th", { scope: "col" }, element("span", { text: column }))));
    this.table.replaceChildren(element("thead", {}, top), element("tbody", {}, ...lines));
  }

  tell(target, listener) {
    const place = this.cells.indexOf(target);
    if (place >= 0) listener(Math.floor(place / this.across), place % this.across);
  }
}
