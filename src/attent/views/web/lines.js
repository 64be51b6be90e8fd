// Tokens with lines: what looks on the left, what is looked at on the right. Of long texts the tokens run on, shaded.

import { share, shade, topOf } from "./colours.js";
import { choice, drawn, element, moreBelow, moved, ordered, tick } from "./elements.js";
import { saving } from "./save.js";
import { combined, MOST, selected, written } from "./selection.js";
import { isAnotherMap, latest, NONE } from "./state.js";
import { sketchTokens, tokenTable } from "./tokens_file.js";
import { fenced, largest, number, visible } from "./words.js";

// Pixels of a token's line.
const STEP = 24;
// Longer texts run on, and no more than so many tokens stand on the page at a time.
const COLUMN = 80;
const WINDOW = 1000;
// All lines are drawn of maps with so few weights; fainter lines are not.
const ALL = 6400;
const FAINT = 0.02;
// What the keys mean in a text that runs from right to left.
const MIRRORED = { ArrowLeft: "ArrowRight", ArrowRight: "ArrowLeft" };

export class Lines {
  constructor(source, state) {
    this.source = source;
    this.state = state;
    this.running = null;
    this.starts = { row: 0, column: 0 };
    // whether what is being chosen is chosen here
    this.choosing = false;
    this.once = latest((error) => this.fail(error));
    // while one token is looked at, its own row or column says what is wrong
    this.onceAll = latest((error) => { if (this.state.values.side === null) this.fail(error); });
    this.lists = { row: list("row"), column: list("column") };
    this.drawing = drawn("svg", { class: "lines", "aria-hidden": "true", width: 160 });
    this.readout = element("output", { class: "readout", "aria-live": "polite" });
    this.options = element("div", { class: "options" });
    this.board = element("div", { class: "board" }, this.lists.row.box, this.drawing, this.lists.column.box);
    this.more = moreBelow(this.board, this.lists.row.tokens, this.lists.column.tokens);
    this.node = element("section", { class: "card tokens", "aria-label": "tokens" }, element("h2", { text: "Tokens" }),
      this.options, this.readout, this.board, this.more.sign,
      element("p", { class: "about", text: "A click or Space selects a token, Ctrl (or a finger) adds one, Shift all up to one; Escape selects none." }),
      saving("tokens", source, state, () => sketchTokens(this), () => tokenTable(this)));
    for (const side of ["row", "column"]) this.listen(side);
    state.follow((values, changed) => {
      if (isAnotherMap(changed)) this.open(changed.has("group"));
      this.combine.querySelector("select").value = values.combine;
      if (values.side !== null && !this.choosing && (changed.has("side") || changed.has("place"))) this.find(values.side, values.place);
      this.look();
    });
  }

  /** The tokens of a group, and all lines of a head. */
  open(fresh) {
    const group = this.group();
    if (fresh) {
      this.starts = { row: 0, column: 0 };
      this.running = Math.max(group.height, group.width) > COLUMN;
      this.anchor = null;
      this.combine = choice("several tokens:", [["sum", "their sum"], ["mean", "their mean"]], this.state.values.combine, (combine) => this.state.set({ combine }));
      this.options.replaceChildren(tick("running text", this.running, (ticked) => { this.running = ticked; this.write(); this.look(); }), this.combine);
      this.write();
    }
    this.every = null;
    if (group.height * group.width > ALL) return;
    const { layer, head } = this.state.values;
    const rows = Array.from({ length: group.height }, (_, query) => this.source.row(group.name, layer, head, query));
    this.onceAll(Promise.all(rows), (found) => { this.every = found; this.look(); });
  }

  write() {
    const group = this.group();
    this.board.classList.toggle("running", this.running);
    for (const [side, text] of [["row", group.rows], ["column", group.columns]]) this.fill(side, this.source.scene.texts[text], group);
    for (const { say } of [this.more, this.lists.row.more, this.lists.column.more]) say();
  }

  fill(side, text, group) {
    const { heading, before, tokens, behind } = this.lists[side];
    const start = this.starts[side];
    const shown = text.labels.slice(start, start + WINDOW);
    heading.textContent = side === "row" ? "what looks" : "what is looked at";
    tokens.setAttribute("aria-label", `${side === "row" ? "what looks" : "what is looked at"}: ${group[`${side}s`]}`);
    tokens.replaceChildren(...shown.map((label, place) => element("li", {
      role: "option", "data-place": start + place, tabindex: place === 0 ? 0 : -1, "aria-selected": "false",
    }, element("bdi", { text: visible(label) }), element("span", { class: "weight" }))));
    ordered(tokens, shown, text.direction);
    before.hidden = start === 0;
    behind.hidden = start + WINDOW >= text.labels.length;
  }

  listen(side) {
    const { tokens, before, behind } = this.lists[side];
    const place = (event) => {
      const token = event.target.closest?.("li");
      return token ? Number(token.dataset.place) : null;
    };
    const choose = (event) => {
      // what is selected stays while others are passed over
      if (place(event) === null || this.state.values.places.length) return;
      this.choosing = true;
      this.state.set({ side, place: place(event) });
      this.choosing = false;
    };
    tokens.addEventListener("pointerover", (event) => { if (went(event)) choose(event); });
    // nor is the text between two tokens marked
    tokens.addEventListener("mousedown", (event) => { if (event.shiftKey) event.preventDefault(); });
    tokens.addEventListener("click", (event) => {
      if (place(event) === null) return;
      // a finger has no keys to hold
      const adds = event.ctrlKey || event.metaKey || event.pointerType === "touch";
      this.select(side, place(event), event.shiftKey ? "range" : adds ? "toggle" : "alone");
    });
    tokens.addEventListener("focusin", choose);
    tokens.addEventListener("keydown", (event) => {
      const count = tokens.children.length;
      const from = place(event);
      if (from !== null && (event.key === " " || event.key === "Enter")) {
        event.preventDefault();
        this.select(side, from, "toggle");
        return;
      }
      const key = this.running && tokens.dir === "rtl" ? MIRRORED[event.key] ?? event.key : event.key;
      const next = moved(key, place(event) - this.starts[side], count);
      if (next === undefined) return;
      event.preventDefault();
      tokens.children[next].focus();
      if (event.shiftKey) this.select(side, next + this.starts[side], "range", from);
    });
    const turn = (by) => { this.starts[side] += by; this.write(); this.look(); };
    before.addEventListener("click", () => turn(-WINDOW));
    behind.addEventListener("click", () => turn(WINDOW));
  }

  /** Select a token, alone or with others: see `selected`. A range begins where one was chosen last, or else at `from`. */
  select(side, place, how, from = place) {
    const { values } = this.state;
    const mine = values.side === side ? values.places : NONE;
    if (how !== "range" || this.anchor?.side !== side || !mine.length) this.anchor = { side, place: how === "range" ? from : place };
    const places = selected(mine, this.anchor.place, place, how);
    this.choosing = true;
    this.state.set({ side, place, places });
    this.choosing = false;
  }

  group() {
    return this.source.scene.groups.find((one) => one.name === this.state.values.group);
  }

  /** Bring a token that was chosen elsewhere into sight: the list moves, and the page stays where it is. */
  find(side, place) {
    const start = Math.floor(place / WINDOW) * WINDOW;
    if (this.starts[side] !== start) {
      this.starts[side] = start;
      this.write();
    }
    const { tokens } = this.lists[side];
    const box = this.running ? tokens : this.board;
    const [seen, here] = [box, tokens.children[place - start]].map((node) => node.getBoundingClientRect());
    // with a line to spare, since a heading may lie over the first
    if (here.top < seen.top + here.height || here.bottom > seen.bottom - here.height) {
      box.scrollTop += (here.top + here.bottom - seen.top - seen.bottom) / 2;
    }
  }

  /** Look at a row or a column, or at all. */
  look() {
    const { group, layer, head, side, place, places } = this.state.values;
    if (side === null) {
      this.once(Promise.resolve(null), () => { this.mark(null); this.say(); this.drawAll(); });
      return;
    }
    const found = places.length ? combined(this.source, this.state.values) : this.source[side](group, layer, head, place);
    this.once(Promise.resolve(found), (line) => { this.mark(line); this.say(line); this.drawOne(line); });
  }

  /** Say what is wrong, with nothing left of what was looked at before. */
  fail(error) {
    this.mark(null);
    this.draw([]);
    this.readout.textContent = error.message;
  }

  /** Shade what is looked at, or what looks. */
  mark(line) {
    const { side, place, places } = this.state.values;
    const many = new Set(places);
    this.line = line;
    const top = line ? topOf(line.values) : 0;
    for (const each of ["row", "column"]) {
      const other = line && side !== each;
      for (const token of this.lists[each].tokens.children) {
        const here = Number(token.dataset.place);
        const value = other ? line.values[here] : NaN;
        const chosen = Boolean(line) && side === each && (many.size ? many.has(here) : here === place);
        token.setAttribute("aria-selected", String(chosen));
        token.classList.toggle("picked", chosen && many.size > 0);
        if (line && side === each && here === place) token.tabIndex = 0;
        else if (side === each && line) token.tabIndex = -1;
        const part = share(value, Math.max(top, 1e-9), this.running);
        const colour = other && part > 0.01 ? shade(part) : null;
        token.style.background = colour ? colour.background : "";
        token.style.color = colour ? colour.text : "";
        token.lastChild.textContent = other && part >= FAINT ? number(value, line.exact) : "";
      }
      this.reachable(each);
    }
  }

  /** Whatever is marked, a list can be reached with the Tab key. */
  reachable(side) {
    const tokens = [...this.lists[side].tokens.children];
    if (tokens.length && !tokens.some((token) => token.tabIndex === 0)) tokens[0].tabIndex = 0;
  }

  say(line) {
    const group = this.group();
    if (!line) {
      this.readout.textContent = "Point at a token, or move to it with Tab and the arrow keys.";
      return;
    }
    const { side, place, places, combine } = this.state.values;
    const [mine, theirs] = side === "row" ? [group.rows, group.columns] : [group.columns, group.rows];
    const labels = this.source.scene.texts[theirs].labels;
    const most = largest(line.values, 5).map((other) => `${fenced(labels[other])} ${number(line.values[other], line.exact)}`);
    const subject = `${fenced(this.source.scene.texts[mine].labels[place])} (${side} ${place})`;
    const back = group.causal ? " back" : "";
    const verb = side === "row" ? `looks${back} at` : `is looked${back} at by`;
    const known = line.values.some(Number.isNaN) ? ", of those that are known" : "";
    const note = line.note ? ` (${line.note})` : "";
    const several = `${places.length} tokens (${side}s ${written(places, " to ", ", ")}${places.length === MOST ? ", no more at a time" : ""})`;
    const verbs = side === "row" ? `look${back} at` : `are looked${back} at by`;
    const who = places.length > 1 ? `${several} ${verbs}, the ${combine}` : `${subject} ${verb}`;
    this.readout.textContent = `${who}: ${most.join(" · ") || "nothing"}${known}${note}`;
  }

  drawAll() {
    const lines = [];
    this.every?.forEach((line, query) => line.values.forEach((value, key) => lines.push([query, key, value])));
    this.draw(lines);
  }

  drawOne(line) {
    const { side, place, places } = this.state.values;
    const from = (one, { values }) => Array.from(values, (value, other) => (side === "row" ? [one, other, value] : [other, one, value]));
    this.draw(line.lines ? places.flatMap((one, which) => from(one, line.lines[which])) : from(place, line));
  }

  draw(lines) {
    const group = this.group();
    const height = Math.max(...[group.height, group.width].map((count) => Math.min(count, WINDOW))) * STEP;
    this.drawing.setAttribute("height", height);
    this.drawing.setAttribute("viewBox", `0 0 100 ${height}`);
    this.drawing.setAttribute("preserveAspectRatio", "none");
    if (this.running) return this.drawing.replaceChildren();
    const top = lines.reduce((most, [, , value]) => Math.max(most, Math.abs(value) || 0), 0);
    const seen = lines.filter(([, , value]) => share(value, top) >= FAINT);
    this.drawing.replaceChildren(...seen.map(([query, key, value]) => drawn("line", {
      x1: 0, x2: 100, y1: (query - this.starts.row + 0.5) * STEP, y2: (key - this.starts.column + 0.5) * STEP,
      "stroke-opacity": share(value, top).toFixed(3), "vector-effect": "non-scaling-stroke",
    })));
  }
}

// Where the pointer was last: what is scrolled beneath one that rests is not pointed at.
let rested = [NaN, NaN];
document.addEventListener("pointermove", (event) => { rested = [event.screenX, event.screenY]; }, { capture: true, passive: true });

function went(event) {
  return event.screenX !== rested[0] || event.screenY !== rested[1];
}

function list(side) {
  const heading = element("h3");
  const before = element("button", { type: "button", text: `the ${WINDOW} before`, hidden: true });
  const behind = element("button", { type: "button", text: `the next ${WINDOW}`, hidden: true });
  const tokens = element("ul", { role: "listbox", "aria-multiselectable": "true", class: `list ${side}s` });
  const more = moreBelow(tokens, tokens);
  return { box: element("div", { class: `side ${side}` }, heading, before, tokens, more.sign, behind), heading, before, tokens, behind, more };
}
