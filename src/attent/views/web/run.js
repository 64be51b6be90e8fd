// One run: what it makes of a text, as it makes it, and where it looked.

import { shade, share, topOf } from "./colours.js";
import { element, ordered } from "./elements.js";
import { Hypothesis } from "./hypothesis.js";
import { isAnotherMap, latest } from "./state.js";
import { Switches } from "./switches.js";
import { Viewed } from "./viewed.js";
import { direction, number, visible } from "./words.js";

// Where tokens come from one by one, what they are called together, and the group of maps whose last row shades what is read.
const STREAMS = {
  translate: { path: "/api/translate", name: "translation", group: "cross" },
  "text-generation": { path: "/api/generate", name: "continuation", group: "self" },
};

const EMPTY = {
  translate: "Type a text to translate.", "text-generation": "Type how a text begins.",
  "fill-mask": "Type a text, with [MASK] or _____ for each blank.", classify: "Type a text to classify.",
};

export class Run {
  constructor(server, which, about) {
    this.server = server;
    this.which = which;
    this.about = about;
    this.asked = null;
    // the number of the scene of what is written; null until it is whole
    this.scene = null;
    this.status = element("p", { class: "status", role: "status" });
    this.stop = element("button", { type: "button", text: "stop", hidden: true, on: { click: () => { this.request?.abort(); this.stop.hidden = true; this.say("Stopped."); } } });
    this.read = element("ol", { class: "pieces read", "aria-label": "what is read, shaded by where a token that was written looks" });
    // whose looks shade what is read, and how tokens of the answer are told apart from those of one before
    this.shadedBy = element("p", { class: "hint shaded", "aria-live": "polite" });
    this.note = element("p", { class: "hint note", role: "status" });
    // the place of that token
    this.place = 0;
    this.latest = latest(() => {});
    this.written = new Hypothesis(STREAMS[about.task]?.name, (prefix, more) => this.ask({ ...this.asked, prefix, more }), (place) => this.point(place));
    this.found = element("div", { class: "guesses" });
    this.root = element("div");
    this.writes = about.task in STREAMS;
    this.answer = element("div", {}, ...(this.writes ? [this.read, this.shadedBy, this.written.node] : [this.found]));
    const stop = this.writes ? [this.stop] : [];
    this.node = element("section", { class: "run", "aria-label": about.name },
      element("section", { class: "card" }, element("h2", {}, element("bdi", { text: about.name })), this.status, ...stop, this.note, this.answer), this.root);
    this.switches = new Switches(() => { if (this.asked) this.ask(this.asked); });
    this.viewed = new Viewed(server, this.root, which, this.switches);
  }

  /** Ask for another text, or for the same with another beginning; what was asked before is not waited for. */
  async ask(asked) {
    this.asked = asked;
    this.scene = null;
    this.request?.abort();
    const { signal } = (this.request = new AbortController());
    if (!this.about.examples && !asked.text.trim()) return this.clear();
    this.say("…");
    this.note.textContent = "";
    // until the answer is there, what is shown is of the question before
    this.former(this.answer, this.root);
    try {
      const scene = this.writes ? await this.write(asked, signal) : await this.tell(asked, signal);
      if (!signal.aborted) await this.see(scene);
    } catch (error) {
      if (signal.aborted) return;
      this.say(error.message, true);
      if (this.viewed.source) this.note.textContent = "What is pale is of the question before.";
    } finally {
      // a question that came after it may be stopped still
      if (this.request.signal === signal) this.stop.hidden = true;
    }
  }

  /** Let parts be pale, since they are of the question before. */
  former(...parts) {
    for (const part of [this.answer, this.root]) part.classList.toggle("former", parts.includes(part));
  }

  /** Show the maps of what is asked. */
  async see(scene) {
    const { request } = this;
    await this.viewed.open(scene);
    if (request !== this.request || !this.viewed.source) return;
    this.former();
    const focused = [...this.written.list.children].findIndex((item) => item.contains(document.activeElement));
    if (focused >= 0) this.place = focused;
    this.viewed.state.follow((values, changed) => { if (isAnotherMap(changed)) this.shadeBy(this.place); });
  }

  /** Show nothing of a text that is there no more, and say what to type. */
  clear() {
    this.former();
    for (const part of [this.read, this.found, this.shadedBy, this.note]) part.replaceChildren();
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
        this.source = event.source;
        this.unknown = event.unknown;
        this.stop.hidden = false;
        this.former(this.root);
        this.shade(null);
        this.shadedBy.replaceChildren();
        this.written.begin();
      } else if (event.kind === "token") {
        this.written.add(event);
        this.say("writing …");
        this.shadeBy(this.written.steps.length - 1);
      } else if (event.kind === "scene") this.see(event.scene);
      else end = event;
    }
    if (!end) throw new Error("the server ended the answer early");
    this.stop.hidden = true;
    const unknown = this.unknown.length ? [" (not known to this model: ", ...isolated(this.unknown), ")"] : [];
    this.say([...isolated([end.text || `The ${name} is empty.`]), ...unknown, this.without()]);
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
      this.say([...(found.unknown.length ? ["Not known to this model: ", ...isolated(found.unknown)] : []), this.without()]);
    } else {
      this.found.replaceChildren(best("classes", found.best.map(({ label, probability }) => [label, probability])));
      this.say(this.without());
    }
    return found.scene;
  }

  /** Shade what is read by where a token that was written looks: in the map that is shown, or where it has none, as it was written. */
  shadeBy(place) {
    this.place = place;
    const step = this.written.steps[place];
    if (!step) return;
    const { source, state } = this.viewed;
    const group = source?.number === this.scene && source.scene.groups.find((one) => one.name === state.values.group);
    const row = this.rowOf(group, place);
    const isShown = group && group.base === STREAMS[this.about.task].group && row !== null;
    const weights = isShown ? source.row(group.name, state.values.layer, state.values.head, row).then(({ values }) => values.slice(0, this.source.length)) : Promise.resolve(step.weights);
    this.latest(weights, (found) => {
      // another text may have come meanwhile
      if (this.written.steps[place] !== step) return;
      this.shade(found);
      this.shadedBy.replaceChildren(...(found ? ["Shaded by where ", element("bdi", { text: visible(step.said.piece) }), " looks."] : []));
    });
  }

  /** The row of a group that is about a token that was written: behind those of the tokens read, where both are one text; null if it has none. */
  rowOf(group, place) {
    const row = group?.rows === "tokens" ? this.source.length + place : place;
    return group && ["target", "tokens"].includes(group.rows) && row < group.height ? row : null;
  }

  /** The tokens that are read, each by its share of a step's weights. */
  shade(weights) {
    const most = 400;
    const top = weights ? topOf(weights) : 0;
    const pieces = this.source.slice(0, most).map((label, place) => {
      const piece = element("li", {}, element("bdi", { text: visible(label) }));
      if (top) {
        const colour = shade(share(weights[place], top));
        piece.style.background = colour.background;
        piece.style.color = colour.text;
        piece.title = number(weights[place]);
      }
      return piece;
    });
    this.read.replaceChildren(...pieces);
    ordered(this.read, this.source.slice(0, most), direction(this.source));
    const more = this.source.length - most;
    if (more <= 0) return;
    const rest = element("li", { dir: "ltr", text: `… and ${more.toLocaleString("en")} more` });
    rest.style.order = String(most);
    this.read.append(rest);
  }

  /** Show where a token that was written looked. */
  point(place) {
    this.shadeBy(place);
    const { source, state } = this.viewed;
    // what is selected stays while others are passed over
    if (!source || source.number !== this.scene || state.values.places.length) return;
    const row = this.rowOf(source.scene.groups.find((one) => one.name === state.values.group), place);
    if (row !== null) state.set({ side: "row", place: row });
  }

  /** How many heads are switched off, if any are. */
  without() {
    const { length } = this.switches.off;
    return length ? ` (without ${length} ${length > 1 ? "heads" : "head"})` : "";
  }

  /** `said` is a text, or several and elements that hold them. */
  say(said, wrong = false) {
    this.status.replaceChildren(...[said].flat());
    this.status.classList.toggle("wrong", wrong);
  }
}

/** Texts with commas between them, each of which may run the other way. */
function isolated(texts) {
  return texts.flatMap((text, place) => [...(place ? [", "] : []), element("bdi", { text })]);
}

function best(title, pairs) {
  const items = pairs.map(([name, chance]) => element("li", {}, element("bdi", { text: visible(name) }), element("span", { text: `${(100 * chance).toFixed(2)} %` })));
  return element("div", {}, element("h3", { text: title }), element("ol", {}, ...items));
}
