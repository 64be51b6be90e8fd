// The page of a translation server: what is typed is translated as it is typed.

import { Connection } from "./connection.js";
import { element, mark, tick } from "./elements.js";
import { WordLinks } from "./word_links.js";

// Milliseconds without a key after which the text is translated.
const QUIET = 300;
const AUTO = "auto";
const KEY = "attent-api-key";
// Further translations, where they are wished.
const ALTERNATIVES = 2;

class Translator {
  constructor(connection, languages, settings) {
    Object.assign(this, { connection, languages, settings, hasAlternatives: false, timer: 0, request: null, translation: "", detected: null });
    this.source = element("select", { id: "source", "aria-label": "language of the text", on: { change: () => this.choose() } });
    this.target = element("select", { id: "target", "aria-label": "language of the translation", on: { change: () => this.choose() } });
    this.swap = element("button", { type: "button", id: "swap", title: "swap the languages", "aria-label": "swap the languages", text: "⇄", on: { click: () => this.swapped() } });
    this.text = element("textarea", {
      id: "text", dir: "auto", rows: 6, autofocus: true, "aria-label": "text to translate", placeholder: "Type a text",
      on: { input: (event) => event.isComposing || this.later(), compositionend: () => this.later() },
    });
    this.output = element("div", { id: "translation", dir: "auto", role: "region", "aria-label": "translation", tabindex: "0" });
    this.count = element("span", { class: "count" });
    this.copy = element("button", { type: "button", id: "copy", text: "Copy", disabled: true, on: { click: () => this.copied() } });
    this.alternatives = element("ul", { class: "alternatives", "aria-label": "alternatives", dir: "auto", hidden: true });
    this.status = element("p", { class: "status", role: "status" });
    this.again = element("button", { type: "button", text: "Try again", hidden: true, on: { click: () => this.translate() } });
    this.key = element("input", {
      id: "key", type: "password", autocomplete: "off", spellcheck: "false",
      on: { change: () => { sessionStorage.setItem(KEY, this.key.value); this.translate(); } },
    });
    this.key.value = sessionStorage.getItem(KEY) ?? "";
    this.keyLabel = element("label", { class: "choice", hidden: !settings.keyRequired }, element("span", { text: "API key" }), this.key);
    this.links = new WordLinks();
    const wish = tick("alternatives", false, (isWished) => { this.hasAlternatives = isWished; this.translate(); });
    const sources = [[AUTO, "Detect language"], ...languages.map(({ code, name }) => [code, name])];
    fill(this.source, sources, languages.length > 1 ? AUTO : languages[0].code);
    this.fillTargets(settings.language.target.code);
    this.nodes = [
      element("header", { class: "top" }, mark("./"), element("h1", { text: "Translate" })),
      element("div", { class: "languages" }, this.source, this.swap, this.target),
      element("div", { class: "pair" },
        element("section", { class: "card", "aria-label": "text" }, this.text, element("div", { class: "line" }, this.count)),
        element("section", { class: "card", "aria-label": "translation" }, this.output, this.alternatives, element("div", { class: "line" }, wish, this.copy))),
      element("div", { class: "line" }, this.status, this.again, this.keyLabel),
      this.links.node,
      element("p", { class: "about" }, element("a", { href: "spec", text: "The API of this server" }), ", for programs."),
    ];
    this.counted();
    this.checkSwap();
  }

  /** The languages that the text can be translated to. */
  fillTargets(wished) {
    const codes = new Map(this.languages.map(({ code, name }) => [code, name]));
    const served = this.languages.filter(({ code }) => [AUTO, code].includes(this.source.value)).flatMap(({ targets }) => targets);
    const names = new Intl.DisplayNames("en", { type: "language" });
    fill(this.target, [...new Set(served)].map((code) => [code, codes.get(code) ?? named(names, code)]), wished);
  }

  choose() {
    this.detected = null;
    this.fillTargets(this.target.value);
    this.checkSwap();
    this.translate();
  }

  get language() {
    return this.source.value === AUTO ? this.detected : this.source.value;
  }

  checkSwap() {
    const back = this.languages.find(({ code }) => code === this.target.value);
    this.swap.disabled = !this.language || !back?.targets.includes(this.language);
    this.swap.title = this.swap.disabled ? "this server does not translate back" : "swap the languages";
  }

  swapped() {
    const [source, target] = [this.target.value, this.language];
    this.source.value = source;
    this.fillTargets(target);
    this.text.value = this.translation || this.text.value;
    this.choose();
    this.counted();
  }

  counted() {
    const [count, limit] = [Array.from(this.text.value).length, this.settings.charLimit];
    this.count.textContent = limit < 0 ? `${count.toLocaleString("en")}` : `${count.toLocaleString("en")} / ${limit.toLocaleString("en")}`;
    const isOver = limit >= 0 && count > limit;
    this.count.classList.toggle("wrong", isOver);
    return isOver ? `The text is longer than this server takes at once, by ${(count - limit).toLocaleString("en")}.` : null;
  }

  later() {
    this.counted();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.translate(), QUIET);
  }

  async translate() {
    clearTimeout(this.timer);
    this.request?.abort();
    const problem = this.counted();
    const text = this.text.value;
    if (!text.trim() || problem) {
      if (!text.trim()) this.clear();
      this.say(problem ?? "", problem !== null);
      return;
    }
    const request = this.request = new AbortController();
    const [source, target] = [this.source.value, this.target.value];
    const question = { q: text, source, target, alignment: true, stream: true, alternatives: this.hasAlternatives ? ALTERNATIVES : 0 };
    if (this.key.value) question.api_key = this.key.value;
    this.output.setAttribute("aria-busy", "true");
    let written = "";
    try {
      for await (const event of this.connection.events("translate", question, request.signal)) {
        if (request !== this.request) return;
        if (event.kind === "done") this.done(text, event);
        else {
          written += event.piece;
          this.grow(written);
        }
      }
    } catch (error) {
      if (request === this.request && !request.signal.aborted) this.failed(error);
    } finally {
      if (request === this.request) this.output.removeAttribute("aria-busy");
    }
  }

  /** Show the beginning of a translation; what stood there stays while it begins the same. */
  grow(text) {
    this.say("");
    if (!this.translation.startsWith(text)) this.write(text);
  }

  write(text) {
    this.translation = text;
    this.output.lang = this.target.value;
    this.output.textContent = text;
    this.copy.disabled = !text;
  }

  done(text, answer) {
    this.write(answer.translatedText);
    this.detected = answer.detectedLanguage?.language ?? null;
    const name = this.languages.find(({ code }) => code === this.detected)?.name ?? this.detected;
    this.say(this.detected ? `The text seems to be ${name} (${Math.round(answer.detectedLanguage.confidence)} %).` : "");
    const others = answer.alternatives ?? [];
    this.alternatives.replaceChildren(...others.map((other) => element("li", { dir: "auto", lang: this.target.value, text: other })));
    this.alternatives.hidden = !others.length;
    this.links.show([text, answer.translatedText], answer.alignment ?? "", [this.language ?? "", this.target.value]);
    this.text.lang = this.language ?? "";
    this.checkSwap();
  }

  clear() {
    this.request = null;
    this.output.removeAttribute("aria-busy");
    this.write("");
    this.alternatives.hidden = true;
    this.links.show(["", ""], "", ["", ""]);
  }

  failed(error) {
    if (error.status === 403 || /API key/.test(error.message)) this.keyLabel.hidden = false;
    this.say(plain(error), true);
    this.again.hidden = false;
  }

  say(text, isWrong = false) {
    this.status.textContent = text;
    this.status.classList.toggle("wrong", isWrong);
    this.status.setAttribute("role", isWrong ? "alert" : "status");
    this.again.hidden = true;
  }

  async copied() {
    try {
      await navigator.clipboard.writeText(this.translation);
    } catch {
      // without encryption a browser has no clipboard for pages, but copies what is selected
      getSelection().selectAllChildren(this.output);
      document.execCommand("copy");
    }
    this.copy.textContent = "Copied";
    setTimeout(() => { this.copy.textContent = "Copy"; }, 1500);
  }
}

function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([code, name]) => element("option", { value: code, text: name })));
  select.value = options.some(([code]) => code === chosen) ? chosen : options[0]?.[0] ?? "";
}

function named(names, code) {
  try {
    return names.of(code);
  } catch {
    return code;
  }
}

/** An error in words for who reads it, not for who writes a client. */
function plain(error) {
  if (error.status === 429) return `Too much was asked at once. ${error.message}.`;
  if (error.status === 403 && /API key/.test(error.message)) return "This API key is not known here.";
  if (/API key/.test(error.message)) return "This server needs an API key, which its operator gives out.";
  const reason = error.message.replace(/^Invalid request: /, "");
  return `Not translated: ${reason.replace(/^not translated: /, "")}${/[.!?]$/.test(reason) ? "" : "."}`;
}

async function start(root) {
  const connection = new Connection();
  try {
    const [languages, settings] = await Promise.all(["languages", "frontend/settings"].map(async (path) => (await connection.get(path)).json()));
    const translator = new Translator(connection, languages, settings);
    root.replaceChildren(...translator.nodes);
    translator.text.focus();
  } catch (error) {
    root.replaceChildren(element("p", { class: "status wrong", role: "alert", text: `The page cannot begin: ${error.message}.` }));
  }
}

start(document.getElementById("translate"));
