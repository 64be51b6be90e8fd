// Both texts with links: the keys' text above, that of the queries below. Long texts are shaded, without links.

import { linkedTo, ruleOf, scaleOf, share, thickness, tint, topOf, uniformly } from "./colours.js";
import { choice, element, moreBelow, moved, ordered } from "./elements.js";
import { Links } from "./links.js";
import { label, saving } from "./save.js";
import { combined, MOST, selected, written } from "./selection.js";
import { isAnotherMap, latest, NONE } from "./state.js";
import { headOf, listed, strongest, visible } from "./words.js";

// Longer texts scroll, without links; no more than so many tokens stand on the page at a time.
const LONG = 80;
const WINDOW = 1000;
// Rows of a map among which the most peaked is looked for.
const PEAKS = 64;
// What the keys mean in a text that runs from right to left.
const MIRRORED = { ArrowLeft: "ArrowRight", ArrowRight: "ArrowLeft" };

export class Lines {
  constructor(source, state) {
    this.source = source;
    this.state = state;
    this.starts = { row: 0, column: 0 };
    // whether what is being chosen is chosen here
    this.choosing = false;
    this.once = latest((error) => this.fail(error));
    this.oncePeak = latest((error) => this.fail(error));
    this.lists = { column: list("column"), row: list("row") };
    this.said = element("h2", { class: "said" });
    this.readout = element("output", { class: "readout", "aria-live": "polite" });
    this.rule = element("p", { class: "about" });
    this.board = element("div", { class: "board" }, this.lists.column.box, this.lists.row.box);
    this.links = new Links(this.board);
    this.board.append(this.links.node);
    this.node = element("section", { class: "tokens", "aria-label": "both texts" }, this.said, this.board, this.readout, this.rule);
    this.combine = choice("several words:", [["sum", "their sum"], ["mean", "their mean"]], state.values.combine, (combine) => state.set({ combine }));
    this.further = element("div", {}, element("h3", { text: "Words" }), this.combine,
      element("p", { class: "about", text: "A click or Space selects a word, Ctrl (or a finger) adds one, Shift all up to one; Escape selects none." }),
      saving("texts", source, state, () => this.table()));
    for (const side of ["row", "column"]) this.listen(side);
    state.follow((values, changed) => {
      if (isAnotherMap(changed)) this.open(changed.has("group"));
      this.combine.querySelector("select").value = values.combine;
      if (values.side !== null && !this.choosing && (changed.has("side") || changed.has("place"))) this.find(values.side, values.place);
      this.look();
    });
  }

  /** The tokens of a group, and the most peaked row unless another is selected. */
  open(fresh) {
    const group = this.group();
    if (fresh) {
      this.starts = { row: 0, column: 0 };
      this.anchor = null;
      this.write();
    }
    const { layer, head, side } = this.state.values;
    if (side !== null || this.source.isTold?.(group)) return;
    // of a picture, the vector in front of its patches
    const { picture } = this.source.scene;
    if (picture?.before && picture.text === group.rows) return this.state.set({ side: "row", place: 0 });
    const count = Math.min(group.height, PEAKS);
    const rows = Array.from({ length: count }, (_, which) => Math.floor((which * group.height) / count));
    this.oncePeak(Promise.all(rows.map((row) => this.source.row(group.name, layer, head, row))), (lines) => {
      if (this.state.values.side !== null || this.group() !== group) return;
      const scale = scaleOf(group);
      // a row of a single key is no choice
      const tops = lines.map(({ values }, which) => (scale.allowed(rows[which]) > 1 ? topOf(values) : 0));
      this.state.set({ side: "row", place: rows[tops.indexOf(Math.max(...tops))] });
    });
  }

  write() {
    const group = this.group();
    this.isLong = Math.max(group.height, group.width) > LONG;
    this.board.classList.toggle("long", this.isLong);
    for (const [side, text] of [["row", group.rows], ["column", group.columns]]) this.fill(side, this.source.scene.texts[text], group);
    for (const { say } of [this.lists.row.more, this.lists.column.more]) say();
  }

  fill(side, text, group) {
    const { box, before, tokens, behind } = this.lists[side];
    const start = this.starts[side];
    box.dir = text.direction;
    const shown = text.labels.slice(start, start + WINDOW);
    tokens.setAttribute("aria-label", `${side === "row" ? "from" : "to"}: ${group[`${side}s`]}`);
    tokens.replaceChildren(...shown.map((label, place) => element("li", {
      role: "option", "data-place": start + place, tabindex: place === 0 ? 0 : -1, "aria-selected": "false",
    }, element("bdi", { text: visible(label) }))));
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
      const key = tokens.dir === "rtl" ? MIRRORED[event.key] ?? event.key : event.key;
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
    this.state.set({ side, place, places, cell: null });
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
    const [seen, here] = [tokens, tokens.children[place - start]].map((node) => node.getBoundingClientRect());
    // with a line to spare, since a heading may lie over the first
    if (here.top < seen.top + here.height || here.bottom > seen.bottom - here.height) {
      tokens.scrollTop += (here.top + here.bottom - seen.top - seen.bottom) / 2;
    }
  }

  /** Look at a row or a column, or at nothing. */
  look() {
    const { group, layer, head, side, place, places } = this.state.values;
    const found = side === null ? null : places.length ? combined(this.source, this.state.values) : this.source[side](group, layer, head, place);
    this.node.classList.add("former");
    this.once(Promise.resolve(found), (line) => { this.node.classList.remove("former"); this.mark(line); this.say(line); });
  }

  /** That the head that is looked at is switched off; nothing if it is on. */
  off() {
    const { layer, head } = this.state.values;
    return this.source.switches?.told(this.group().layers[layer], head) ?? "";
  }

  /** Say what is wrong, with nothing left of what was looked at before. */
  fail(error) {
    this.node.classList.remove("former");
    this.mark(null);
    this.said.textContent = "";
    this.readout.textContent = error.message;
  }

  /** Select what is looked at, shade the other text by its weights, and link both. */
  mark(line) {
    const { side, place, places } = this.state.values;
    const many = new Set(places);
    this.line = line;
    const isOff = Boolean(this.off());
    const scale = scaleOf(this.group(), line ? topOf(line.values) : 1);
    for (const each of ["row", "column"]) {
      const other = line && side !== each && !isOff;
      for (const item of this.lists[each].tokens.children) {
        const here = Number(item.dataset.place);
        const chosen = Boolean(line) && side === each && (many.size ? many.has(here) : here === place);
        item.setAttribute("aria-selected", String(chosen));
        if (line && side === each) item.tabIndex = here === place ? 0 : -1;
        tint(item, other ? share(line.values[here], scale, side === "row" ? place : here) : 0);
      }
      this.reachable(each);
    }
    // of a long text, the strongest weight is brought into sight
    if (line && this.isLong) this.find(side === "row" ? "column" : "row", Math.max(strongest(line.values), 0));
    this.rule.textContent = line && !this.isLong && !isOff ? ruleOf(scale) : "";
    this.links.draw(line && !this.isLong && !isOff ? (line.lines ?? [line]).flatMap((one, which) => this.linksOf(one, places[which] ?? place, scale)) : []);
  }

  /** Links of the row or column of one token. */
  linksOf({ values }, place, scale) {
    const { side } = this.state.values;
    const [mine, theirs] = side === "row" ? ["row", "column"] : ["column", "row"];
    const item = (which, at) => this.lists[which].tokens.children[at - this.starts[which]];
    return linkedTo(values, scale, side, place).map((other) => {
      const ends = { [mine]: item(mine, place), [theirs]: item(theirs, other) };
      return [ends.column, ends.row, thickness(values, scale, other)];
    });
  }

  /** Whatever is marked, a list can be reached with the Tab key. */
  reachable(side) {
    const tokens = [...this.lists[side].tokens.children];
    if (tokens.length && !tokens.some((item) => item.tabIndex === 0)) tokens[0].tabIndex = 0;
  }

  say(line) {
    const group = this.group();
    if (!line) {
      this.said.textContent = this.state.values.side === null ? "No word is selected" : "";
      this.readout.textContent = "Point at a word, or move to it with Tab and the arrow keys.";
      return;
    }
    const { head, side, place, places, combine } = this.state.values;
    const [mine, theirs] = side === "row" ? [group.rows, group.columns] : [group.columns, group.rows];
    const labels = this.source.scene.texts[theirs].labels;
    const name = visible(this.source.scene.texts[mine].labels[place]);
    const isWriting = side === "row" && group.about.startsWith("the token being written");
    const several = `${places.length} words (${written(places, " to ", ", ")}${places.length === MOST ? ", no more at a time" : ""})`;
    this.said.replaceChildren(isWriting ? "while writing " : side === "row" ? "from " : "to ",
      places.length > 1 ? `${several}, their ${combine}` : element("bdi", { text: name }));
    const uniform = side === "row" && places.length < 2 ? uniformly(line.values, scaleOf(group), place) : "";
    const known = line.values.some(Number.isNaN) ? ", of those that are known" : "";
    const note = line.note ? ` (${line.note})` : "";
    this.readout.textContent = this.off() || uniform || `${side === "row" ? "to" : "from"} ${listed(line.values, labels)}${known}${note}${line.note && head === "mean" ? "" : headOf(head, group.heads)}`;
  }

  /** The weights of what is selected, as rows of fields. */
  table() {
    const group = this.group();
    const [rows, columns] = [group.rows, group.columns].map((name) => this.source.scene.texts[name].labels);
    const { side, place, places, combine } = this.state.values;
    if (side === null || !this.line) throw new Error("no word is selected");
    const [theirs, labels] = side === "row" ? ["column", columns] : ["row", rows];
    const chosen = `${side} ${written(places.length ? places : [place])}`;
    const header = [theirs, `${theirs}_token`, places.length > 1 ? `${combine} of ${side}s ${written(places)}` : `weight of ${chosen}`];
    return [header, ...Array.from(this.line.values, (value, other) => [other, label(labels[other]), value])];
  }
}

// Where the pointer was last: what is scrolled beneath one that rests is not pointed at.
let rested = [NaN, NaN];
document.addEventListener("pointermove", (event) => { rested = [event.screenX, event.screenY]; }, { capture: true, passive: true });

function went(event) {
  return event.screenX !== rested[0] || event.screenY !== rested[1];
}

function list(side) {
  const before = element("button", { type: "button", text: `the ${WINDOW} before`, hidden: true });
  const behind = element("button", { type: "button", text: `the next ${WINDOW}`, hidden: true });
  const tokens = element("ul", { role: "listbox", "aria-multiselectable": "true", class: `list ${side}s` });
  const more = moreBelow(tokens, tokens);
  const name = element("h3", { text: side === "row" ? "from" : "to" });
  return { box: element("div", { class: `side ${side}` }, name, before, tokens, more.sign, behind), before, tokens, behind, more };
}
