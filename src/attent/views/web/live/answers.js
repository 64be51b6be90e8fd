// What the server of `attent explore` answers, computed in the page by its engine: the same questions and events, so the same page asks them.

import { LiveSource } from "./live_source.js";

// Milliseconds after which a computation lets the browser draw and hear; scenes that are kept; letters of a title.
const [SLICE, KEPT, TITLE] = [12, 3, 200];
// Milliseconds after which a frame is not waited for.
const HIDDEN = 100;
const EOS = 3;

export class Answers {
  constructor(engine) {
    this.engine = engine;
    // what the reader changed: temperature, normalizer and mask, and the most tokens that are written
    this.options = {};
    this.length = undefined;
    // of a run that reads pictures, the one that it reads: {height, width, channels, values}, 0 to 255
    this.picture = null;
    this.scenes = new Map();
    this.number = 0;
  }

  /** The source of a scene by its number. */
  async open(number) {
    // what was written is drawn before its maps are
    await frame();
    const source = this.scenes.get(number);
    if (!source) throw new Error("The maps of a text before are kept no more.");
    return source;
  }

  /** The guesses for the blanks of a text, or the classes of a text or picture. */
  async post(path, { text, off }, signal) {
    await turn();
    if (signal.aborted) throw new Error("stopped");
    const options = { ...this.options, off };
    const { state, labels, ...found } = path === "/api/fill" ? this.engine.fill(text, options) : this.engine.classify(this.picture ?? text, options);
    const answer = { unknown: [], ...found, scene: this.keep(state, text, { tokens: labels }) };
    return { json: async () => answer };
  }

  /** The events of a translation, a continuation or a caption. */
  async *events(path, { text, prefix, more, where, off }, signal) {
    const { engine } = this;
    const isOne = path === "/api/generate";
    const force = [...prefix, ...(more ? engine.ids(more) : [])];
    const steps = engine.write(this.picture ?? text, { ...this.options, off, force, length: this.length });
    const said = [];
    let [source, prompt, state, waiting] = [[], [], null, null];
    for await (const step of sliced(steps, signal)) {
      if (step.kind === "start") {
        [source, prompt] = [step.labels, step.ids];
        yield { kind: "start", source, unknown: step.unknown };
      }
      state = step.state ?? state;
      if (step.kind !== "token") continue;
      said.push(step);
      // in one text, the row of a token is computed with the next one
      if (!isOne) yield tokenOf(step, this.row(state, where));
      else if (waiting) yield tokenOf(waiting, this.row(state, where, source.length));
      waiting = step;
    }
    if (signal.aborted) return;
    const tokens = said.map(({ token }) => token).filter((token) => token !== EOS);
    if (isOne && waiting) {
      const isRead = waiting.token !== EOS && engine.canRead(state);
      if (isRead) engine.step(state, waiting.token);
      yield tokenOf(waiting, isRead ? this.row(state, where, source.length) : null);
    }
    const labels = said.map((step) => step.text);
    const texts = isOne ? { tokens: [...source, ...labels] } : { source, target: labels, given: ["<s>", ...labels.slice(0, -1)] };
    const whole = isOne ? text + engine.continuation(prompt, tokens) : engine.decode(tokens);
    yield { kind: "end", scene: this.keep(state, text, texts), text: whole, tokens };
  }

  /** The token of a translation that is selected at first: its strongest weight, times the distance from the diagonal, is the largest. Null if none has a distance. */
  first(steps) {
    if (this.engine.task !== "translate") return null;
    const spans = steps.map(({ said, weights }, place) => {
      const top = Math.max(...(weights ?? [0]));
      return said.token === EOS || !weights ? 0 : top * Math.abs(weights.indexOf(top) - place);
    });
    const longest = Math.max(...spans);
    return longest > 0 ? spans.indexOf(longest) : null;
  }

  /** The weights of the last query, by the head that is shown; those on the text alone, if it has so many tokens. */
  row(state, { group, layer, head }, length = undefined) {
    const about = this.engine.groups.find(({ name }) => name === group);
    if (!about) return null;
    const weights = this.engine.row(state, group, Math.min(layer, about.layers.length - 1), head === "mean" ? null : head);
    return weights && Array.from(weights.subarray(0, length));
  }

  /** Keep a scene of what was computed, and return its number; null of a model without attention. */
  keep(state, title, texts) {
    if (!this.engine.groups.length) return null;
    const normalizer = this.options.normalizer ?? this.engine.normalizer;
    this.number += 1;
    this.scenes.set(this.number, new LiveSource(this.engine, state, this.number, { title: (title ?? "").slice(0, TITLE), texts, normalizer, picture: this.pictured() }));
    this.scenes.delete(this.number - KEPT);
    return this.number;
  }

  /** The picture that is read, as a scene has it. */
  pictured() {
    if (!this.picture) return null;
    const { height, width, channels, values } = this.picture;
    const { grid, before } = this.engine.description.picture;
    const rgb = Uint8Array.from({ length: 3 * height * width }, (_, place) => values[channels === 3 ? place : Math.floor(place / 3)]);
    return { about: { grid, before, height, width, text: this.engine.task === "caption" ? "source" : "tokens" }, rgb };
  }
}

/** The steps of a computation, between which the browser gets its turn, until a signal. */
async function* sliced(steps, signal) {
  await turn();
  let began = performance.now();
  for (const step of steps) {
    if (signal.aborted) return;
    yield step;
    if (performance.now() - began < SLICE) continue;
    await turn();
    began = performance.now();
  }
}

/** The next turn of the browser, which timers would delay. */
function turn() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = resolve;
    port2.postMessage(null);
  });
}

/** The turn after the next frame; a page that is hidden has none. */
function frame() {
  return new Promise((resolve) => {
    setTimeout(resolve, HIDDEN);
    requestAnimationFrame(() => turn().then(resolve));
  });
}

function tokenOf({ token, text, probability, candidates, forced }, weights) {
  const piece = (one) => ({ token: one.token, piece: one.text, probability: one.probability });
  return { kind: "token", said: piece({ token, text, probability }), best: candidates.map(piece), forced, weights };
}
