// The page of the playground: a model that a worker trains, its links and loss as they change, and the choices that start it anew.
import { Sentence } from "./board.js";
import { Curve } from "./curve.js";
import { element, tick, choice } from "../elements.js";
import { LONGEST, parse } from "./formula.js";
import { HELD_OUT, TRAINING } from "./pairs.js";
import { pythonOf } from "./python.js";
import { addressOf, CHOICES, DEFAULTS, EXAMPLES, LONGEST_TEXT, readSettings } from "./settings.js";
import { MOST, texts, VOCABULARIES } from "./training.js";
import { LAST } from "./worker.js";

// Milliseconds of quiet after which what is typed counts.
const QUIET = 400;
const KNOWN = new Map(texts([...TRAINING, ...HELD_OUT]).map(([source, target]) => [source.join(" "), target]));
const LENGTHS = [[3, 4], [5, 6], [7, 8], [9, 10]];
const button = (text, click, more = {}) => element("button", { type: "button", text, on: { click }, ...more });

class Playground {
  constructor(place, source, isCompact) {
    [this.source, this.isCompact, this.number] = [source, isCompact, 0];
    const { settings, wrong } = isCompact ? readSettings("") : readSettings(location.hash);
    this.settings = settings;
    // first, since where no worker can be had the place keeps what is in it
    this.worker = this.employ();
    this.board = new Sentence();
    this.curve = new Curve(Math.log(VOCABULARIES[1].length), LAST);
    this.status = element("output", { class: "status" });
    this.writes = element("p", { class: "small" });
    this.scores = element("p", { class: "scores", "aria-live": "off" });
    this.lengths = element("p", { class: "small" });
    this.wrong = element("p", { class: "wrong", role: "alert", hidden: true });
    this.train = button("Train", () => this.run(!this.isRunning), { class: "train" });
    const reset = button("Reset", () => this.restart(false));
    const first = element("div", { class: "line" }, this.train, reset, this.status);
    const picture = element("div", { class: "picture" }, this.board.node, this.board.said, this.writes);
    const numbers = element("div", { class: "numbers" }, this.curve.node, element("div", {}, this.scores, this.lengths));
    this.parts = (isCompact ? [first, picture, element("a", { class: "small", href: "playground.html", text: "Change its formula in the playground" })] : [first, this.wrong, this.sentence(), picture, numbers, this.controls(), this.board.matrices]);
    this.place = place;
    this.restart(false);
    if (wrong) this.say(wrong);
    this.listener = () => this.follow();
    if (!isCompact) window.addEventListener("hashchange", this.listener);
  }

  employ() {
    const address = URL.createObjectURL(new Blob([this.source], { type: "text/javascript" }));
    const worker = new Worker(address);
    worker.onmessage = ({ data }) => { if (data.number === this.number) this.receive(data); };
    worker.onerror = (event) => this.say(`The training ended: ${event.message ?? "this browser starts no worker here"}.`);
    return worker;
  }

  /** Begin with other weights or another formula; what ran goes on running. */
  restart(runs = this.isRunning) {
    this.number += 1;
    this.curve.clear();
    this.say("");
    this.scores.textContent = this.lengths.textContent = this.exact = "";
    delete this.scores.dataset.error;
    this.worker.postMessage({ start: { ...this.settings }, number: this.number });
    this.look();
    this.run(runs);
  }

  run(isRunning) {
    this.isRunning = isRunning;
    this.train.textContent = isRunning ? "Pause" : "Train";
    this.worker.postMessage({ run: isRunning });
  }

  /** Show the sentence that is typed, with its translation if that is known. */
  look() {
    const words = this.settings.text.toLowerCase().split(/\s+/).filter(Boolean);
    const unknown = words.find((word) => !VOCABULARIES[0].includes(word));
    if (unknown) this.say(`“${unknown.slice(0, 30)}” is none of the ${VOCABULARIES[0].length} words.`);
    else if (words.length > MOST) this.say(`A sentence has at most ${MOST} words.`);
    // what is no sentence leaves the last one in sight, at first the usual one
    const isSentence = !unknown && words.length > 0 && words.length <= MOST;
    const text = isSentence ? words.join(" ") : this.parts ? DEFAULTS.text : "";
    if (text) this.worker.postMessage({ show: { source: text.split(" "), target: KNOWN.get(text) ?? null } });
  }

  receive({ updates, losses, weights, error, right, failed, ...shown }) {
    // what the place held stays in it until there is something to see
    if (this.parts) {
      this.place.classList.add("playground");
      this.place.replaceChildren(...this.parts);
      this.parts = null;
    }
    if (failed) {
      this.run(false);
      this.say(failed);
    }
    if (weights) {
      this.curve.add(losses);
      if (losses.length && updates % LAST === 0) this.run(false);
      const loss = this.curve.losses.at(-1);
      const end = updates && updates % LAST === 0 && !this.isRunning ? " · finished, Train goes on" : "";
      this.status.textContent = updates ? `update ${updates} · loss ${loss?.toFixed(2) ?? "–"}${end}` : "not trained yet: its weights are noise";
      this.writes.replaceChildren("Alone, the model writes: ", element("i", { lang: "fr", text: shown.writes.join(" ") || "nothing" }));
      this.board.look({ ...shown, weights, isDistribution: this.settings.normalizer !== "sigmoid" });
    }
    if (error !== undefined) this.score(error, right, updates);
  }

  /** Scores on sentences that were not trained on. */
  score(error, right, updates) {
    Object.assign(this.scores.dataset, { error, updates });
    const links = this.settings.fixed ? "no attention, no links" : `${Math.round(100 * error)} % of links wrong (AER)`;
    if (right) this.exact = `${right.filter(Boolean).length} of ${right.length} right · `;
    this.scores.textContent = `Sentences that it has not seen: ${this.exact}${links}`;
    if (!right) return;
    const lengths = texts(HELD_OUT).map(([source]) => source.length);
    this.lengths.textContent = `right by length: ${LENGTHS.map(([least, most]) => {
      const own = right.filter((_, place) => lengths[place] >= least && lengths[place] <= most);
      return `${least}–${most} words ${Math.round((100 * own.filter(Boolean).length) / own.length)} %`;
    }).join(" · ")}`;
  }

  sentence() {
    this.text = element("input", { type: "text", id: "playground-text", maxlength: LONGEST_TEXT, spellcheck: "false", autocomplete: "off", on: { input: () => this.change({ text: this.text.value }, false) } });
    this.text.value = this.settings.text;
    const add = (word) => {
      this.text.value = `${this.text.value.trim()} ${word}`.trim();
      this.change({ text: this.text.value }, false);
    };
    const words = VOCABULARIES[0].map((word) => button(word, () => add(word)));
    return element("div", { class: "sentence" }, element("label", { for: "playground-text", text: "English sentence" }), this.text,
      element("details", { class: "words" }, element("summary", { text: `the ${words.length} words that it knows` }), element("div", { class: "line" }, ...words)));
  }

  controls() {
    const { settings } = this;
    this.formula = element("input", { type: "text", id: "playground-formula", maxlength: LONGEST, spellcheck: "false", autocomplete: "off", "aria-describedby": "playground-error", on: { input: () => this.type() } });
    this.formula.value = settings.formula;
    this.error = element("p", { id: "playground-error", class: "small", role: "status" });
    const examples = EXAMPLES.map((text) => button(text, () => { this.formula.value = text; this.type(); }));
    const seed = element("input", { type: "number", min: 0, max: 999999, value: settings.seed, on: { change: () => this.change({ seed: Math.min(Math.max(Math.round(Number(seed.value)) || 0, 0), 999999) }) } });
    const choices = Object.entries(CHOICES).map(([name, options]) => choice(name, options, settings[name], (value) => this.change({ [name]: value })));
    const switches = [["positions", "positions off: the model does not know the order of the English words", false], ["fixed", "one fixed vector: the mean of all words, instead of attention", true], ["identity", "W_Q = W_K = I in self-attention: each word sees itself", true]];
    const ticks = switches.map(([name, text, turned]) => tick(text, settings[name] === turned, (isOn) => this.change({ [name]: isOn === turned })));
    const copied = [["Copy as Python", () => pythonOf(this.settings)], ["Copy the link", () => location.href.split("#")[0] + addressOf(this.settings)]];
    const copies = copied.map(([text, write]) => button(text, (event) => copy(event.target, write())));
    // what a formula with an error cannot be used for
    this.needing = [this.train, ...copies];
    return element("section", { class: "controls", "aria-label": "experiment" },
      element("label", { for: "playground-formula", class: "name", text: "score of a query q and a key k" }), this.formula, this.error, element("div", { class: "line" }, ...examples),
      element("div", { class: "line" }, ...choices, element("label", { class: "choice" }, element("span", { text: "seed" }), seed)),
      ...ticks, element("div", { class: "line" }, ...copies));
  }

  /** A formula that is being typed counts when it is one. */
  type() {
    try {
      parse(this.formula.value);
    } catch (error) {
      this.formula.setAttribute("aria-invalid", "true");
      this.error.className = "wrong small";
      this.error.textContent = `${error.message}. Training waits for a formula.`;
      this.run(false);
      for (const node of this.needing) node.disabled = true;
      return;
    }
    for (const node of this.needing) node.disabled = false;
    this.formula.removeAttribute("aria-invalid");
    this.error.textContent = this.error.className = "";
    this.change({ formula: this.formula.value });
  }

  change(changes, isAnother = true) {
    Object.assign(this.settings, changes);
    clearTimeout(this.timer);
    this.restarts ||= isAnother;
    this.timer = setTimeout(() => {
      const address = addressOf(this.settings);
      if (address !== location.hash) history.replaceState(history.state, "", address === "#" ? location.pathname + location.search : address);
      if (this.restarts) this.restart();
      else { this.say(""); this.look(); }
      this.restarts = false;
    }, QUIET);
  }

  /** Follow a link to another experiment: the page is built anew, and trains. */
  follow() {
    if (!location.hash.includes("=") || addressOf(this.settings) === location.hash) return;
    window.removeEventListener("hashchange", this.listener);
    clearTimeout(this.timer);
    this.worker.terminate();
    new Playground(this.place, this.source, false).run(true);
    this.place.scrollIntoView();
  }

  say(text) {
    this.wrong.textContent = text;
    this.wrong.hidden = !text;
  }
}

async function copy(pressed, text) {
  const label = pressed.textContent;
  try {
    await navigator.clipboard.writeText(text);
    pressed.textContent = "Copied";
  } catch {
    // a page from disk, or without encryption, may have no clipboard: the text is selected there for the reader to copy
    const box = element("textarea", { rows: 6, "aria-label": label });
    box.value = text;
    pressed.parentElement.querySelector("textarea")?.remove();
    pressed.parentElement.append(box);
    box.select();
    if (document.execCommand("copy")) pressed.textContent = "Copied";
  }
  setTimeout(() => { pressed.textContent = label; }, 1500);
}

/** Fill a place with the playground; `source` is the script of the worker. Without workers, the place keeps what it holds. */
export function start(place, source, isCompact) {
  if (window.Worker) new Playground(place, source, isCompact);
}
