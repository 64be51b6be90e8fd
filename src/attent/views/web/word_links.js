// A text and its translation, word by word: the counterparts of a word that is pointed at are marked.

import { element, rove } from "./elements.js";
import { fenced } from "./words.js";

// What parts words in Python, where they were counted.
const SPACE = /([\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+)/;
const HINT = "Point at a word, or move with the arrow keys: its counterparts in the other text are marked.";

export class WordLinks {
  constructor() {
    this.sides = ["the text", "its translation"].map((name, side) => element("p", {
      class: "words", dir: "auto", role: "listbox", "aria-label": `words of ${name}`, "aria-multiselectable": "true",
      on: {
        pointerover: (event) => this.point(event.target),
        pointerleave: () => this.point(document.activeElement),
        focusin: (event) => this.point(event.target),
        focusout: () => this.mark(null),
        click: (event) => event.target.closest(".word")?.focus(),
        keydown: (event) => this.move(side, event),
      },
    }));
    this.readout = element("output", { class: "readout", text: HINT });
    this.node = element("section", { class: "card links", "aria-label": "words and their counterparts", hidden: true },
      element("h2", { text: "Words" }), this.readout, element("div", { class: "pair" }, ...this.sides));
    this.links = [];
    this.words = [[], []];
  }

  /** Show two texts and `links`, such as "0-0 1-2"; hidden where there are none. */
  show(texts, links, languages) {
    this.links = links.split(" ").filter(Boolean).map((link) => link.split("-").map(Number));
    this.words = texts.map((text, side) => {
      const words = [];
      this.sides[side].lang = languages[side];
      this.sides[side].replaceChildren(...text.split(SPACE).filter(Boolean).map((part) => {
        if (SPACE.test(part)) return part;
        words.push(element("span", {
          class: "word", role: "option", "aria-selected": "false", tabindex: words.length ? "-1" : "0", "data-side": side, "data-index": words.length, text: part,
        }));
        return words.at(-1);
      }));
      return words;
    });
    this.mark(null);
    this.node.hidden = !this.links.length;
  }

  point(target) {
    const word = target?.closest?.(".word");
    this.mark(word && this.node.contains(word) ? [Number(word.dataset.side), Number(word.dataset.index)] : null);
  }

  /** Mark a word, by side and index, and its counterparts; none for null. */
  mark(place) {
    const [side, index] = place ?? [];
    const counterparts = place ? this.links.filter((link) => link[side] === index).map((link) => link[1 - side]) : [];
    this.words.forEach((words, which) => words.forEach((word, number) => {
      const isMarked = place !== null && which !== side && counterparts.includes(number);
      word.classList.toggle("pointed", which === side && number === index);
      word.setAttribute("aria-selected", String(isMarked));
    }));
    if (!place) this.readout.textContent = HINT;
    else {
      const names = [...new Set(counterparts)].sort((first, second) => first - second).map((number) => fenced(this.words[1 - side][number].textContent));
      this.readout.textContent = `${fenced(this.words[side][index].textContent)} ↔ ${names.join(", ") || "no counterpart"}`;
    }
  }

  move(side, event) {
    const isRightToLeft = getComputedStyle(this.sides[side]).direction === "rtl";
    const key = isRightToLeft ? { ArrowLeft: "ArrowRight", ArrowRight: "ArrowLeft" }[event.key] ?? event.key : event.key;
    rove(event, this.words[side], 1, key);
  }
}
