// Every head of every layer, small: a click enlarges it. Or a figure of each.

import { onScheme, painted, shade } from "./colours.js";
import { choice, element, moved } from "./elements.js";
import { latest } from "./state.js";
import { number } from "./words.js";

// What is said of a head, and how it is called.
const FIGURES = [
  ["thumbnails", "maps"],
  ["entropy", "entropy, nats"],
  ["distance", "distance, tokens"],
  ["first", "share on the first token"],
  ["previous", "share on the token before"],
  ["same", "share on the same token"],
];

export class Grid {
  constructor(source, state, signal) {
    this.source = source;
    this.state = state;
    this.shown = "thumbnails";
    this.once = latest((error) => this.fail(error));
    this.options = element("div", { class: "options" });
    this.about = element("p", { class: "about" });
    this.table = element("div", { class: "heads", role: "grid", "aria-label": "layers and heads" });
    this.summary = element("output", { class: "readout summary", "aria-live": "polite" });
    this.node = element("section", { class: "card grid", "aria-label": "heads" }, element("h2", { text: "Heads" }),
      this.options, this.summary, element("div", { class: "frame" }, this.table), this.about);
    this.table.addEventListener("keydown", (event) => this.key(event));
    state.follow((_, changed) => {
      if (changed.has("group")) this.open();
      this.mark();
    });
    onScheme(() => this.open(), signal);
  }

  group() {
    return this.source.scene.groups.find((one) => one.name === this.state.values.group);
  }

  open() {
    const group = this.group();
    const { heads, layers } = group;
    // those of another group are not of this one's heads
    this.figures = null;
    this.summary.textContent = "";
    this.once(this.source.summary(group.name), ({ figures, every }) => {
      this.figures = figures;
      this.told = every > 1 ? `one row in ${every.toLocaleString("en")}` : "all rows";
      const offered = FIGURES.filter(([name]) => name === "thumbnails" || figures.some((row) => row.some((one) => one[name] !== null)));
      if (!offered.some(([name]) => name === this.shown)) this.shown = "thumbnails";
      this.options.replaceChildren(choice("show", offered, this.shown, (chosen) => {
        this.shown = chosen;
        if (this.figures) this.fill();
      }));
      this.fill();
      this.mark();
    });
    const columns = heads > 1 ? heads + 1 : 1;
    this.table.style.gridTemplateColumns = `auto repeat(${columns}, minmax(22px, 88px))`;
    const names = [...Array(heads).keys()].map(String).concat(heads > 1 ? ["mean"] : []);
    const header = element("div", { role: "row", class: "row" }, element("span", { role: "columnheader", text: "" }),
      ...names.map((name) => element("span", { role: "columnheader", class: "heading", text: name })));
    this.cells = layers.map((_, layer) => names.map((name) => element("button", {
      type: "button", class: "head", role: "gridcell", tabindex: -1, "aria-label": called(layer, name),
      on: { click: () => this.state.set({ layer, head: name === "mean" ? "mean" : Number(name) }) },
    })));
    this.table.replaceChildren(header, ...this.cells.map((row, layer) => element("div", { role: "row", class: "row" },
      element("span", { role: "rowheader", class: "heading", text: String(layer) }), ...row)));
  }

  /** Draw what is shown of each head. */
  fill() {
    const group = this.group();
    const values = this.shown === "thumbnails" ? null : this.figures.map((row) => row.map((one) => one[this.shown]));
    const top = values ? Math.max(...values.flat().map((value) => value ?? 0)) : 0;
    this.cells.forEach((row, layer) => row.forEach((cell, which) => {
      const head = which < group.heads ? which : "mean";
      cell.style.background = "";
      cell.setAttribute("aria-label", called(layer, head));
      if (!values) return this.thumbnail(cell, group.name, layer, head);
      const value = head === "mean" ? mean(values[layer]) : values[layer][which];
      cell.setAttribute("aria-label", `${called(layer, head)}: ${short(value)}`);
      const colour = shade(top ? Math.max(value, 0) / top : 0);
      cell.style.background = colour.background;
      cell.replaceChildren(element("span", { class: "figure", text: short(value) }));
      cell.firstChild.style.color = colour.text;
    }));
    this.about.textContent = this.shown === "thumbnails"
      ? "Rows are layers, columns heads. Each map has a scale of its own, and small weights are strengthened (square root)."
      : `Rows are layers, columns heads: the mean over ${this.told} of the map, those left out that see nothing.`;
  }

  async thumbnail(cell, group, layer, head) {
    let found;
    try {
      found = await this.source.thumbnail(group, layer, head);
    } catch (error) {
      if (!cell.isConnected) return;
      cell.replaceChildren();
      this.fail(error);
      return;
    }
    if (this.shown !== "thumbnails" || !cell.isConnected) return;
    const { height, width, values, top } = found;
    const canvas = painted(values, height, width, top, true);
    canvas.setAttribute("aria-hidden", "true");
    cell.replaceChildren(canvas);
  }

  fail(error) {
    this.summary.textContent = error.message;
  }

  mark() {
    const { layer, head } = this.state.values;
    this.cells?.forEach((row, place) => row.forEach((cell, which) => {
      const chosen = place === layer && (which === row.length - 1 && row.length > 1 ? head === "mean" : head === which || row.length === 1);
      cell.setAttribute("aria-selected", String(chosen));
      cell.tabIndex = chosen ? 0 : -1;
    }));
    const figures = this.figures?.[layer];
    if (!figures) return;
    const of = (name) => (head === "mean" ? mean(figures.map((one) => one[name])) : figures[head]?.[name] ?? null);
    const said = FIGURES.slice(1).filter(([name]) => of(name) !== null && of(name) !== undefined).map(([name, text]) => `${text} ${number(of(name))}`);
    const group = this.group();
    const who = head === "mean" ? (group.heads > 1 ? `mean of ${group.heads} heads` : "its one head") : `head ${head}`;
    this.summary.textContent = `layer ${layer}, ${who}${said.length ? `: ${said.join(" · ")}, the mean over ${this.told}` : ""}`;
  }

  key(event) {
    const place = this.cells.flat().indexOf(event.target);
    const across = this.cells[0].length;
    const next = place < 0 ? undefined : moved(event.key, place, this.cells.length * across, across);
    if (next === undefined) return;
    event.preventDefault();
    this.cells.flat()[next].focus();
  }
}

function called(layer, head) {
  return `layer ${layer}, ${head === "mean" ? "mean over heads" : `head ${head}`}`;
}

function mean(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((total, value) => total + value, 0) / known.length : null;
}

function short(value) {
  if (value === null) return "–";
  return value < 1 ? value.toFixed(2) : value < 10 ? value.toFixed(1) : value.toFixed(0);
}
