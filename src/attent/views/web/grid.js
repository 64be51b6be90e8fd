// Every head of every layer, small: a click shows it. Or a figure of each.

import { onScheme, painted, scaleOf, shade } from "./colours.js";
import { choice, element, rove } from "./elements.js";
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
    this.turn = 0;
    this.once = latest((error) => this.fail(error));
    this.options = element("div", { class: "options" });
    this.table = element("div", { class: "heads", role: "grid", "aria-label": "layers and heads" });
    this.wrong = element("p", { class: "about", role: "status" });
    this.summary = element("output", { class: "summary", "aria-live": "polite" });
    // of a run that can be asked again
    this.switch = element("button", { type: "button", class: "switch", on: { click: () => this.toggle(this.state.values) } });
    this.restore = element("button", { type: "button", on: { click: () => { source.switches.clear(); this.offer(); } } });
    const switching = source.switches ? [element("div", { class: "options" }, this.switch, this.restore)] : [];
    this.title = element("h2");
    this.node = element("section", { class: "grid", "aria-label": "heads" }, this.title, element("div", { class: "frame" }, this.table), element("p", { class: "about", text: `Select a map to show that head${source.switches ? ", or to switch it off" : ""}.` }), this.wrong, ...switching);
    this.further = element("div", {}, element("h3", { text: "Heads" }), this.options, this.summary);
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
    this.turn += 1;
    this.summary.textContent = "";
    this.wrong.textContent = "";
    this.once(this.source.summary(group.name), ({ figures, every }) => {
      this.figures = figures;
      this.told = every > 1 ? `one row in ${every.toLocaleString("en")}` : "all rows";
      const offered = FIGURES.filter(([name]) => name === "thumbnails" || figures.some((row) => row.some((one) => one[name] !== null)));
      if (!offered.some(([name]) => name === this.shown)) this.shown = "thumbnails";
      this.options.replaceChildren(choice("in place of each head, show", offered, this.shown, (chosen) => { this.shown = chosen; if (this.figures) this.fill(); }));
      this.fill();
      this.mark();
    });
    this.table.style.setProperty("--heads", heads > 1 ? heads + 1 : 1);
    const names = [...Array(heads).keys()].map(String).concat(heads > 1 ? ["mean"] : []);
    const header = element("div", { role: "row", class: "row" }, element("span", { role: "columnheader", class: "heading", text: "layer" }),
      ...names.map((name) => element("span", { role: "columnheader", class: "heading", text: name })));
    this.cells = layers.map((_, layer) => names.map((name) => element("button", {
      type: "button", class: "head", role: "gridcell", tabindex: -1, "aria-label": called(layer, name),
      on: { click: (event) => this.choose({ layer, head: name === "mean" ? "mean" : Number(name) }, event.shiftKey) },
    })));
    this.table.replaceChildren(header, ...this.cells.map((row, layer) => element("div", { role: "row", class: "row" },
      element("span", { role: "rowheader", class: "heading", text: String(layer) }), ...row)));
  }

  /** Draw what is shown of each head. */
  fill() {
    const group = this.group();
    const values = this.shown === "thumbnails" ? null : this.figures.map((row) => row.map((one) => one[this.shown]));
    const top = values ? Math.max(...values.flat().map((value) => value ?? 0)) : 0;
    if (!values) this.thumbnails();
    this.cells.forEach((row, layer) => row.forEach((cell, which) => {
      const head = which < group.heads ? which : "mean";
      cell.style.background = "";
      cell.setAttribute("aria-label", called(layer, head));
      if (!values) return;
      const value = head === "mean" ? mean(values[layer]) : values[layer][which];
      cell.setAttribute("aria-label", `${called(layer, head)}: ${short(value)}`);
      const colour = shade(top ? Math.max(value, 0) / top : 0);
      cell.style.background = colour.background;
      cell.replaceChildren(element("span", { class: "figure", text: short(value) }));
      cell.firstChild.style.color = colour.text;
    }));
  }

  /** Fetch and draw the maps of all heads, each as it comes, by the scale of the matrix. */
  async thumbnails() {
    const turn = ++this.turn;
    const group = this.group();
    const { name, heads } = group;
    const isShown = () => turn === this.turn && this.shown === "thumbnails";
    const cells = this.cells.flatMap((row, layer) => row.map((cell, which) => [cell, layer, which < heads ? which : "mean"]));
    await Promise.all(cells.map(async ([cell, layer, head]) => {
      try {
        const part = await this.source.thumbnail(name, layer, head);
        if (!isShown()) return;
        const canvas = painted(part, scaleOf(group, part.top), false, 0, group.height / part.height);
        cell.replaceChildren(canvas);
      } catch (error) {
        if (!isShown()) return;
        cell.replaceChildren();
        this.fail(error);
      }
    }));
  }

  fail(error) {
    this.wrong.textContent = error.message;
  }

  /** Show a head; switch it off or on too. */
  choose(chosen, switched) {
    this.state.set(chosen);
    if (switched) this.toggle(chosen);
  }

  toggle({ layer, head }) {
    if (head === "mean" || !this.source.switches) return;
    this.source.switches.toggle(this.group().layers[layer], head);
    this.offer();
  }

  /** Tell which heads are off, and offer to switch the one that is shown. */
  offer() {
    const { switches } = this.source;
    if (!switches) return;
    const { layers } = this.group();
    const { layer, head } = this.state.values;
    const off = switches.has(layers[layer], head);
    // the matrix beside it is not shown either
    this.node.classList.toggle("off", off);
    this.switch.textContent = `switch ${off ? "on" : "off"} head ${head}`;
    this.switch.hidden = head === "mean";
    this.restore.hidden = !switches.off.length;
    this.restore.textContent = `switch all on (${switches.off.length})`;
    this.cells?.forEach((row, place) => row.forEach((cell, which) => {
      const isOff = switches.has(layers[place], which);
      cell.classList.toggle("off", isOff);
      cell.title = isOff ? "switched off" : "";
    }));
  }

  mark() {
    this.offer();
    const { layer, head } = this.state.values;
    this.cells?.forEach((row, place) => row.forEach((cell, which) => {
      const chosen = place === layer && (which === row.length - 1 && row.length > 1 ? head === "mean" : head === which || row.length === 1);
      cell.setAttribute("aria-selected", String(chosen));
      cell.tabIndex = chosen ? 0 : -1;
    }));
    const { heads, layers } = this.group();
    const who = head === "mean" ? (heads > 1 ? `mean of ${heads} heads` : "its one head") : `head ${head}`;
    this.title.textContent = layers.length > 1 ? `Layer ${layer}, ${who}` : `${who[0].toUpperCase()}${who.slice(1)}`;
    const figures = this.figures?.[layer];
    if (!figures) return;
    const of = (name) => (head === "mean" ? mean(figures.map((one) => one[name])) : figures[head]?.[name] ?? null);
    const said = FIGURES.slice(1).filter(([name]) => of(name) !== null && of(name) !== undefined).map(([name, text]) => `${text} ${number(of(name))}`);
    this.summary.textContent = said.length ? `${who}: ${said.join(" · ")}, the mean over ${this.told}` : "";
  }

  key(event) {
    const cells = this.cells.flat();
    const place = cells.indexOf(event.target);
    const heads = this.cells[0].length;
    if (place >= 0 && event.key === "x" && this.source.switches) {
      const which = place % heads;
      event.preventDefault();
      this.choose({ layer: Math.floor(place / heads), head: which && which === heads - 1 ? "mean" : which }, true);
      return;
    }
    rove(event, cells, heads);
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
