// The page of `attent export RUN --to html`: the run's model is inside, and computes what is typed or drawn.

import { open } from "../engine/engine.js";
import { element, mark, rove } from "../elements.js";
import { Run } from "../run.js";
import { unpacked } from "../unpacked.js";
import { bare, visible } from "../words.js";
import { Answers } from "./answers.js";
import { controls } from "./controls.js";
import { Pictures } from "./pictures.js";

// What the model does with what it reads, and what a field says while it is empty.
const TASKS = {
  translate: ["Type a text: the model in this page translates it as you type.", "Type a text to translate"],
  "text-generation": ["Type how a text begins: the model in this page continues it.", "Type how a text begins"],
  "fill-mask": ["Type a text with _____ for each blank: the model in this page fills them.", "Type a text with _____ for each blank"],
  classify: ["Type a text: the model in this page classifies it as you type.", "Type a text to classify"],
  caption: ["Draw, or choose a picture: the model in this page describes it.", ""],
};
// Words of a vocabulary that are listed.
const WORDS = 500;
const DRAWN = "Draw, or choose a picture: the model in this page classifies it.";

export async function start(root) {
  const description = JSON.parse(document.getElementById("description").textContent);
  const { title, task, reads } = description;
  const [does, placeholder] = TASKS[task];
  const name = element("h1", {}, element("bdi", { text: title }));
  const about = element("p", { class: "status", text: task === "classify" && reads === "pictures" ? DRAWN : does });
  const status = element("p", { class: "status", role: "status", text: "The model is being unpacked …" });
  root.replaceChildren(element("header", { class: "top" }, mark(), name), about, status);
  try {
    // the head is drawn before the model is read
    await new Promise((resolve) => { requestAnimationFrame(() => setTimeout(resolve)); });
    const [weights, bytes] = await Promise.all([unpacked("weights"), reads === "pictures" ? unpacked("examples") : null]);
    const engine = await open({ description, weights });
    const answers = new Answers(engine);
    const given = { text: "", row: 0, beam: 1 };
    const again = () => { if (run.asked) run.ask(run.asked); };
    const row = engine.groups.length ? [controls(engine, answers.options, again)] : [];
    const run = new Run(answers, 0, { name: title, task, reads, examples: reads === "pictures" ? 1 : 0 }, true, row);
    const ask = () => run.ask({ ...given });
    const pictures = reads === "pictures" ? new Pictures(description, bytes, (picture) => { answers.picture = picture; ask(); }) : null;
    const input = pictures?.node ?? texts(description, engine.source, placeholder, (text) => { given.text = text; ask(); });
    if (task === "text-generation") input.append(longest(answers, ask));
    if (!engine.groups.length) about.append(" It has no attention.");
    status.replaceWith(input, run.node);
    root.classList.toggle("pictures", Boolean(pictures));
    pictures?.start();
  } catch (error) {
    status.textContent = error.message;
    status.classList.add("wrong");
  }
}

/** The field in which a text is typed, a button for the next of the run's examples, and the words of a small vocabulary. */
function texts({ examples = [] }, vocabulary, placeholder, change) {
  const field = element("textarea", { id: "text", dir: "auto", spellcheck: "false", "aria-label": "text", placeholder, on: { input: () => change(field.value) } });
  let next = 0;
  const show = () => {
    field.value = examples[next % examples.length];
    next += 1;
    change(field.value);
  };
  const another = element("button", { type: "button", text: "another example", on: { click: show } });
  if (examples.length) queueMicrotask(show);
  const add = (word) => {
    field.value = field.value.trim() ? field.value.trimEnd() + word : bare(word);
    change(field.value);
  };
  return element("div", { class: "ask" }, field, ...(examples.length > 1 ? [another] : []), ...known(vocabulary, add));
}

/** The words of a small vocabulary, each of which is added to the text by a click. */
function known({ isOfWords, entries }, add) {
  const words = isOfWords ? entries.filter((entry) => /[\p{L}\p{N}]/u.test(entry)).sort((one, other) => bare(one).localeCompare(bare(other))) : [];
  if (!words.length || words.length > WORDS) return [];
  const buttons = words.map((word, place) => element("button", { type: "button", tabindex: place ? -1 : 0, on: { click: () => add(word) } }, element("bdi", { text: visible(bare(word)) })));
  const list = element("div", { class: "options", role: "group", "aria-label": "words; select one to add it to the text", on: { keydown: (event) => rove(event, buttons) } }, ...buttons);
  return [element("details", { class: "known" }, element("summary", { text: `This model knows ${words.length} words` }), list)];
}

/** How many tokens are written at most. */
function longest(answers, change) {
  answers.length = 24;
  const field = element("input", { type: "number", min: 1, max: 512, value: answers.length, on: { input: () => {
    answers.length = Math.min(Math.max(Math.round(Number(field.value)) || 1, 1), 512);
    change();
  } } });
  return element("label", { class: "choice" }, element("span", { text: "words at most" }), field);
}
