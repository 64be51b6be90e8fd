// The frame of a live figure: what to do, at most three controls, the drawing, and a sentence with the numbers.
import { element } from "../elements.js";
import { digits } from "../words.js";
import { TASKS } from "./tasks.js";

// Words that are offered in place of one that is unknown.
const OFFERED = 12;

/** A function that draws in the next frame, once, however often it is called before. */
export function oncePerFrame(draw) {
  let request = 0;
  return () => {
    request ||= requestAnimationFrame(() => {
      request = 0;
      draw();
    });
  };
}

/** Add a figure to its place, and return the line that is written below the drawing and read by screen readers. */
export function framed(place, controls, ...drawing) {
  const line = element("output", { class: "sum" });
  const head = controls.length ? [element("div", { class: "controls" }, ...controls)] : [];
  place.append(element("section", { class: "live", "aria-label": "live figure" },
    element("p", { class: "task", text: TASKS[place.id.replace("figure-", "")] }), ...head, element("div", { class: "drawing" }, ...drawing), line));
  return line;
}

/** A slider from `low` to `high`; `say` is what is written beside it. */
export function slider(label, [low, high, step], value, listener, say = digits) {
  const shown = element("span", { class: "shown" });
  const input = element("input", { type: "range", min: low, max: high, step });
  const write = () => {
    shown.textContent = say(Number(input.value));
    input.setAttribute("aria-valuetext", shown.textContent);
  };
  input.addEventListener("input", () => {
    write();
    listener(Number(input.value));
  });
  input.value = value;
  write();
  return element("label", { class: "choice" }, element("span", { text: label }), input, shown);
}

/** A field for a sentence of words that a model knows; `listener` gets them once all are known, at most `most`. */
export function sentenceField(label, sentence, words, listener, most = 7) {
  const note = element("span", { class: "note", role: "status" });
  const field = element("input", { type: "text", value: sentence, maxlength: 90, spellcheck: "false", autocomplete: "off" });
  const read = () => {
    const typed = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const unknown = typed.filter((word) => !words.has(word));
    // those with the same first letter come first
    const isNear = (word) => word[0] === unknown[0]?.[0];
    const known = [...words].sort((one, other) => isNear(other) - isNear(one)).slice(0, OFFERED).join(", ");
    const wrong = `The run does not know “${unknown[0]}”, so the figure still shows the sentence before. Its ${words.size} words are ${known}, …`;
    note.textContent = unknown.length ? wrong : typed.length > most ? `Up to ${most} words.` : "";
    if (typed.length && !note.textContent) listener(typed);
  };
  field.addEventListener("input", read);
  return element("label", { class: "choice typed" }, element("span", { text: label }), field, note);
}
