// One run: what it makes of a text, as it makes it, and the weights while it writes each token.

import { linkedTo, ruleOf, scaleOf, share, thickness, tint, topOf, uniformly } from "./colours.js";
import { element } from "./elements.js";
import { Hypothesis } from "./hypothesis.js";
import { Links } from "./links.js";
import { best, isolated, listTokens, without, withoutSpaces } from "./reading.js";
import { keyOf } from "./selection.js";
import { isAnotherMap, latest } from "./state.js";
import { Switches } from "./switches.js";
import { Viewed } from "./viewed.js";
import { areWords, headOf, listed, plain, visible } from "./words.js";

// Where tokens come from one by one, what they are called together, and the group of maps that is shown between both texts.
const STREAMS = {
  translate: { path: "/api/translate", name: "translation", group: "cross" },
  "text-generation": { path: "/api/generate", name: "continuation", group: "self" },
  caption: { path: "/api/caption", name: "caption", group: "cross" },
};
// Milliseconds between two tokens of which the weights are shown while they are written.
const OFTEN = 80;
// Tokens of a text that are shown.
const MOST = 400;

const EMPTY = {
  translate: "Type a text to translate.", "text-generation": "Type how a text begins.",
  "fill-mask": "Type a text, with [MASK] or _____ for each blank.", classify: "Type a text to classify.",
};

export class Run {
  /** `controls` are elements between the answer and its maps. */
  constructor(server, which, about, isOne, controls = []) {
    this.server = server;
    this.which = which;
    this.about = about;
    this.asked = null;
    // the number of the scene of what is written; null until it is whole
    this.scene = null;
    this.stream = STREAMS[about.task];
    this.writes = Boolean(this.stream);
    this.status = element("p", { class: "status", role: "status" });
    this.stop = element("button", { type: "button", text: "stop", hidden: true, on: { click: () => { this.request?.abort(); this.stop.hidden = true; this.say("Stopped."); } } });
    this.said = element("h2", { class: "said" });
    this.read = element("ol", { class: "pieces read", "aria-label": "the text" });
    this.readout = element("output", { class: "readout", "aria-live": "polite" });
    // the token of the answer whose weights are shown, and the one that is selected
    [this.place, this.chosen] = [0, null];
    // whether the same is asked again, by another formula or with other heads, and the token that was selected before
    [this.isAgain, this.kept] = [false, null];
    this.latest = latest((error) => {
      this.shade(null);
      this.links.draw([]);
      this.said.replaceChildren();
      this.readout.textContent = error.message;
    });
    this.written = new Hypothesis(this.stream?.name, (prefix, more) => this.ask({ ...this.asked, prefix, more }), (place, how) => this.point(place, how));
    // patches are named by their picture alone
    this.board = element("div", { class: "board" }, ...(about.reads === "pictures" ? [] : [this.read]), this.written.list);
    this.links = new Links(this.board);
    this.board.append(this.links.node);
    this.found = element("div", { class: "guesses" });
    this.root = element("div", { class: "view" });
    // which weights have lines, where any can have one
    this.rule = element("span");
    const hint = element("p", { class: "about", text: `Select any part of the ${this.stream?.name} to replace it: the rest is rewritten. ` }, this.rule);
    this.answer = element("div", { class: "answer" }, ...(this.writes ? [this.said, this.board, this.readout, hint, this.written.menu] : [this.found]));
    this.node = element("section", { class: "run", "aria-label": about.name },
      ...(isOne ? [] : [element("h2", {}, element("bdi", { text: about.name }))]),
      element("div", { class: "line" }, this.status, ...(this.writes ? [this.stop] : [])), this.answer, ...controls, this.root);
    this.switches = new Switches(() => { if (this.asked) this.ask(this.asked); });
    this.viewed = new Viewed(server, this.root, which, this.switches, (group) => this.writes && group.base === this.stream.group);
  }

  /** Ask for another text, or for the same with another beginning; what was asked before is not waited for. */
  async ask(asked) {
    this.isAgain = asked === this.asked;
    if (!this.isAgain) this.kept = null;
    else if (this.chosen !== null) this.kept = { place: this.chosen, token: this.written.steps[this.chosen].said.token, cell: this.viewed.state?.values.cell };
    this.asked = asked;
    this.scene = null;
    this.request?.abort();
    const { signal } = (this.request = new AbortController());
    if (!this.about.examples && !asked.text.trim()) return this.clear();
    this.say("updating …");
    // until the answer is there, what is shown is of the question before
    this.former(this.answer, this.root);
    try {
      const scene = this.writes ? await this.write(asked, signal) : await this.tell(asked, signal);
      // a model without attention has none
      if (!signal.aborted) await (scene === null ? this.former() : this.see(scene));
    } catch (error) {
      if (signal.aborted) return;
      this.clear();
      this.say(error.message, true);
    } finally {
      // a question that came after it may be stopped still
      if (this.request.signal === signal) this.stop.hidden = true;
    }
  }

  /** Let parts be pale, since they are of the question before. */
  former(...parts) {
    for (const part of [this.answer, this.root]) part.classList.toggle("former", parts.includes(part));
  }

  /** Show the maps of what is asked, and of a whole answer the token that was selected before, the one that the server names or the most peaked, unless another is selected. */
  async see(scene) {
    const { request } = this;
    await this.viewed.open(scene, this.isAgain);
    if (request !== this.request || !this.viewed.source) return;
    this.former();
    if (!this.writes) return;
    if (scene === this.scene && this.chosen === null && this.written.steps.length) {
      const tops = this.written.steps.map(({ weights }) => (weights?.length > 1 ? topOf(weights) : 0));
      const kept = this.written.steps[this.kept?.place]?.said.token === this.kept?.token ? this.kept : null;
      if (kept?.cell) this.viewed.state.set({ cell: kept.cell });
      this.chosen = this.place = kept?.place ?? this.server.first?.(this.written.steps) ?? tops.indexOf(Math.max(...tops));
    }
    this.viewed.state.follow(({ group, side, place }, changed) => {
      const shown = this.viewed.source?.scene.groups.find((one) => one.name === group);
      const chosen = side === "row" && (changed.has("place") || changed.has("cell")) && !this.isPointing ? this.placeOf(shown, place) : null;
      if (chosen !== null) this.chosen = this.place = chosen;
      if (isAnotherMap(changed) && side === null) this.point(null, null);
      if (isAnotherMap(changed) || chosen !== null) this.shadeBy(this.place);
    });
  }

  /** Show nothing of a text that is there no more, and say what to type. */
  clear() {
    this.shadeNever();
    this.chosen = null;
    this.former();
    for (const part of [this.read, this.found, this.said, this.readout]) part.replaceChildren();
    this.links.draw([]);
    this.written.begin();
    this.stop.hidden = true;
    this.viewed.clear();
    this.say(EMPTY[this.about.task]);
  }

  /** Translate or continue a text, token by token. */
  async write({ text, beam, prefix = [], more = "" }, signal) {
    const { path, name, group } = STREAMS[this.about.task];
    const chosen = this.viewed.state?.values;
    const where = chosen?.group.split(".")[0] === group ? { group: chosen.group, layer: chosen.layer, head: chosen.head } : { group, layer: 999, head: "mean" };
    let end = null;
    for await (const event of this.server.events(path, { run: this.which, text, beam, prefix, more, where, off: this.switches.off }, signal)) {
      if (signal.aborted) return null;
      if (event.kind === "start") {
        this.areWords = this.about.reads === "pictures" || areWords(event.source);
        this.source = plain(event.source);
        this.unknown = event.unknown;
        this.isUnknown = event.source.map((label) => event.unknown.includes(label));
        this.stop.hidden = false;
        this.former(this.root);
        this.written.begin();
        this.shadeNever();
        this.chosen = null;
        this.shade(null);
        for (const part of [this.said, this.readout]) part.replaceChildren();
      } else if (event.kind === "token") {
        this.written.add(this.areWords ? withoutSpaces(event) : event);
        this.say("writing …");
        this.shadeSoon();
      } else if (event.kind === "scene") this.see(event.scene);
      else end = event;
    }
    if (!end) throw new Error("the server ended the answer early");
    this.stop.hidden = true;
    const notice = this.unknown.length ? [element("span", { class: "notice" }, "not known to this model, so the rest is a guess: ", ...isolated(plain(this.unknown)))] : [];
    this.say([...notice, ...isolated([end.text || `The ${name} is empty.`]), without(this.switches.off)]);
    this.scene = end.scene;
    return end.scene;
  }

  /** Guesses of blanks, or classes. */
  async tell({ text, row }, signal) {
    const pictures = this.about.examples > 0;
    const path = this.about.task === "fill-mask" ? "/api/fill" : "/api/classify";
    const answer = await this.server.post(path, { run: this.which, off: this.switches.off, ...(pictures ? { row } : { text }) }, signal);
    const found = await answer.json();
    if (signal.aborted) return null;
    this.former(this.root);
    if (this.about.task === "fill-mask") {
      this.found.replaceChildren(...found.blanks.map((blank, place) => best(`blank ${place + 1}`, blank.guesses.map(({ word, probability }) => [word, probability]))));
      this.say([...(found.unknown.length ? ["Not known to this model: ", ...isolated(found.unknown)] : []), without(this.switches.off)]);
    } else {
      this.found.replaceChildren(best("classes", found.best.map(({ label, probability }) => [label, probability])));
      this.say(without(this.switches.off));
    }
    return found.scene;
  }

  /** Show the weights of the last token that is written, a few times a second: each time, the page is laid out anew. */
  shadeSoon() {
    this.timer ||= setTimeout(() => this.shadeBy(this.written.steps.length - 1), OFTEN);
  }

  shadeNever() {
    clearTimeout(this.timer);
    this.timer = 0;
  }

  /** Show the weights while a token was written: of the map that is shown, or where it has none, as it was written. */
  shadeBy(place) {
    this.shadeNever();
    this.place = place;
    const step = this.written.steps[place];
    if (!step) return;
    const { source, state } = this.viewed;
    const group = source?.number === this.scene && source.scene.groups.find((one) => one.name === state.values.group);
    const row = group ? this.rowOf(group, place) : null;
    const isShown = group && group.base === this.stream.group && row !== null;
    const off = this.off();
    const weights = isShown ? source.row(group.name, state.values.layer, state.values.head, row).then(({ values }) => values) : Promise.resolve(step.weights);
    this.latest(weights, (found) => {
      // another text may have come meanwhile
      if (this.written.steps[place] === step) this.show(place, off ? null : found, isShown ? scaleOf(group, found ? topOf(found) : 1) : null, off || (isShown ? headOf(state.values.head, group.heads) : ""));
    });
  }

  /** That the head that is shown between both texts is switched off; nothing if it is on. */
  off() {
    const { source, state } = this.viewed;
    const group = source?.scene.groups.find(({ name, base }) => name === state.values.group && base === this.stream.group);
    return group ? this.switches.told(group.layers[state.values.layer], state.values.head) : "";
  }

  /** The weights of a token that was written, by a scale, and of which head they are; of none, only what is said of the head. */
  show(place, weights, known, head) {
    const step = this.written.steps[place];
    const width = weights?.length ?? 1;
    const scale = known ?? scaleOf({ measure: "weights", distribution: true, height: 1, width });
    const row = known && width > this.source.length ? this.source.length + place : place;
    this.shade(weights, scale, row);
    this.written.select(place);
    const own = this.written.list.children[place];
    // of the text alone, and not of one that is cut
    const others = weights && this.source.length <= MOST ? linkedTo(weights, scale, "row", row).filter((other) => other < this.source.length) : [];
    const cell = known && this.viewed.state.values.cell;
    const key = weights && (cell?.[0] === row || !uniformly(weights, scale, row)) ? keyOf(row, weights, cell) : -1;
    [...this.read.children].forEach((item, at) => item.classList.toggle("strongest", at === key));
    this.rule.textContent = weights && this.source.length <= MOST && this.about.reads !== "pictures" ? ruleOf(scale) : "";
    this.links.draw(others.map((other) => [this.read.children[other], own, thickness(weights, scale, other)]));
    this.said.replaceChildren("while writing ", element("bdi", { text: visible(step.said.piece) }));
    const labels = [...this.source, ...this.written.steps.map(({ said }) => said.piece)];
    this.readout.textContent = weights ? uniformly(weights, scale, row) || `to ${listed(weights, labels)}${head}` : head;
  }

  /** The row of a group that is about a token that was written: behind those of the tokens read, where both are one text; null if it has none. */
  rowOf(group, place) {
    const row = group?.rows === "tokens" ? this.source.length + place : place;
    return group && ["target", "tokens"].includes(group.rows) && row < group.height ? row : null;
  }

  /** The token that was written of which a row of a group is; null if there is none. */
  placeOf(group, row) {
    const place = group?.rows === "tokens" ? row - this.source.length : row;
    return group?.base === this.stream.group && this.viewed.source.number === this.scene && place >= 0 && place < this.written.steps.length ? place : null;
  }

  /** Both texts, each token by its share of a step's weights. */
  shade(weights, scale, row) {
    const paint = (item, value) => {
      tint(item, weights && scale ? share(value, scale, row) : 0);
      item.dataset.weight = weights ? value : "";
    };
    if (this.shaded !== this.source || !this.read.children.length) {
      this.shaded = this.source;
      listTokens(this.read, this.source, this.isUnknown, MOST);
    }
    [...this.read.children].slice(0, MOST).forEach((item, place) => paint(item, weights?.[place] ?? 0));
    [...this.written.list.children].forEach((item, place) => paint(item, weights?.[this.source.length + place] ?? 0));
  }

  /** Show the weights of a token that is pointed at ("over"), of one that is selected, or again those of the selected one (null). */
  point(place, how) {
    if (how === "over" && this.written.isOpen) return;
    if (how === "choose") this.chosen = place;
    const shown = place ?? this.chosen;
    if (shown === null || !this.written.steps[shown]) return;
    this.shadeBy(shown);
    const { source, state } = this.viewed;
    // what is selected stays while others are passed over
    if (!source || source.number !== this.scene || state.values.places.length) return;
    const row = this.rowOf(source.scene.groups.find((one) => one.name === state.values.group), shown);
    if (row === null) return;
    this.isPointing = true;
    // one that is passed over leaves the cell that is selected
    state.set({ side: "row", place: row, ...(how === "choose" ? { cell: null } : {}) });
    this.isPointing = false;
  }

  /** `said` is a text, or several and elements that hold them. */
  say(said, wrong = false) {
    this.status.replaceChildren(...[said].flat());
    this.status.classList.toggle("wrong", wrong);
  }
}
