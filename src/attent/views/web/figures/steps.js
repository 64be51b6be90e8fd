// Pages 1 and 10 and the page of classification: what is read step by step.
import { shade } from "../colours.js";
import { choice, element, moved } from "../elements.js";
import { Board, reading } from "./board.js";
import { digits, framed, oncePerFrame, sentenceField, slider } from "./frame.js";
import { MatrixTable } from "./matrix_table.js";

export function recurrent(place, { sentences }) {
  let [which, step] = [1, 2];
  const draw = () => {
    const { source, right, attention, fixed, weights } = sentences[which];
    input.max = attention.length - 1;
    step = Math.min(step, attention.length - 1);
    const words = source.split(" ");
    board.show(words, attention, weights[step], step);
    vector.replaceChildren(...words.map((text) => element("span", { class: "word", text })), element("span", { class: "word one", text: "c: 64 numbers" }));
    written.replaceChildren(...fixed.slice(0, step + 1).map((text, at) => element(text === right[at] ? "span" : "del", { class: "word", text })));
    const own = fixed[step] === undefined ? "has ended" : `writes ${fixed[step]}${fixed[step] === right[step] ? "" : `, where ${right[step] ?? "nothing"} is right`}`;
    line.textContent = `Step ${step + 1}: with attention, the network writes ${attention[step]} and reads ${reading(weights[step], words)}. With one fixed vector, it ${own}.`;
  };
  const redraw = oncePerFrame(draw);
  const board = new Board("attention: a new average at each step", (next) => { input.value = next; input.dispatchEvent(new Event("input")); });
  const [vector, written] = [element("div", { class: "line bottleneck" }), element("div", { class: "line" })];
  const control = slider("step", [0, 3, 1], step, (value) => { step = value; redraw(); }, (value) => String(value + 1));
  const input = control.querySelector("input");
  const line = framed(place, "Move the step along the translation: which words does the network read, and where does one fixed vector go wrong?", [
    choice("sentence", sentences.map(({ source }, each) => [each, source]), which, (chosen) => { [which, step] = [chosen, 0]; input.value = 0; redraw(); input.dispatchEvent(new Event("input")); }),
    control,
  ], board.node, element("div", { class: "titled" }, element("p", { class: "title", text: "one fixed vector: wrong words are struck out" }), vector, written));
  draw();
}

const PARTS = ["encoder: embeddings and positions", "encoder: self-attention", "encoder: memory", "decoder: masked self-attention", "decoder: cross-attention", "decoder: probabilities"];
const SHOWN = 6;

export function transformer(place, model) {
  let [found, moment, row] = [model.translate("the black dog sings".split(" ")), 4, 0];
  const count = () => PARTS.length * found.labels.length;
  const feature = (matrix) => matrix.list().map((numbers) => numbers.slice(0, SHOWN));
  const probabilities = (logits) => {
    const powers = [...logits].map((logit) => Math.exp(logit - Math.max(...logits)));
    const sum = powers.reduce((total, power) => total + power, 0);
    const best = [...powers.keys()].sort((one, other) => powers[other] - powers[one]).slice(0, 4);
    return { labels: best.map((id) => model.label(id)), shares: best.map((id) => powers[id] / sum) };
  };
  const draw = () => {
    const { words, encoded, decoded, labels } = found;
    const [step, part] = [Math.floor(moment / PARTS.length), moment % PARTS.length];
    const read = ["<s>", ...labels.slice(0, -1)].slice(0, step + 1);
    const features = Array.from({ length: SHOWN }, (_, each) => `${each}`);
    const best = probabilities(decoded.logits.row(step));
    const own = (side) => decoded[side].heads[0].slice(0, step + 1).map((weights) => (side === "self" ? weights.slice(0, step + 1) : weights));
    const writing = labels.slice(0, step + 1);
    const [values, rows, columns] = [
      () => [feature(encoded.x), words, features], () => [encoded.self.heads[0], words, words], () => [feature(encoded.memory), words, features],
      () => [own("self"), writing, read], () => [own("cross"), writing, words], () => [[best.shares], [labels[step]], best.labels],
    ][part]();
    const lit = part > 2 ? rows.length - 1 : Math.min(row, rows.length - 1);
    matrix.show(values, rows, columns, lit);
    stages.forEach((stage, each) => (each === part ? stage.setAttribute("aria-current", "step") : stage.removeAttribute("aria-current")));
    const said = { 0: `${words.length} vectors of 64 numbers, the first ${SHOWN} of each`, 2: `what the decoder reads: ${words.length} vectors of 64 numbers, the first ${SHOWN} of each` };
    line.textContent = `Given ${read.join(" ")}, writing ${labels[step]}. ${PARTS[part]}: ${said[part] ?? `${rows[lit]}: ${reading(values[lit], columns)}`}${part % 5 && !said[part] ? " (head 0)" : ""}. Written: ${writing.join(" ")}`;
  };
  const redraw = oncePerFrame(draw);
  const matrix = new MatrixTable("numbers of this moment", (chosen) => { row = chosen; redraw(); });
  const stages = PARTS.map((text) => element("li", { text }));
  const control = slider("moment", [0, count() - 1, 1], moment, (value) => { moment = value; redraw(); }, (value) => `${value + 1} of ${count()}`);
  const input = control.querySelector("input");
  const go = (value) => { input.max = count() - 1; input.value = value; input.dispatchEvent(new Event("input")); };
  const line = framed(place, "Press next: through the layers once for each word, from <s> ([START]) until the model writes </s> ([STOP]).", [
    sentenceField("sentence", "the black dog sings", model.words, (typed) => { found = model.translate(typed); go(0); }, 7),
    element("button", { type: "button", text: "next", on: { click: () => go((moment + 1) % count()) } }),
    control,
  ], element("ol", { class: "stages" }, ...stages), matrix.node);
  draw();
}

const [SIDE, PATCH] = [8, 2];
const ACROSS = SIDE / PATCH;

export function patches(place, { digits: pictures }) {
  let [which, layer, patch] = [0, 2, 5];
  const draw = () => {
    const { pixels, label, layers } = pictures[which];
    const weights = layers[layer];
    cells.forEach((cell, each) => {
      const inside = [0, 1, 2, 3].map((pixel) => pixels[PATCH * Math.floor(each / ACROSS) + (pixel >> 1)][PATCH * (each % ACROSS) + (pixel & 1)]);
      [...cell.children].forEach((dot, pixel) => dot.style.setProperty("--ink-share", inside[pixel] / 16));
      cell.setAttribute("aria-label", `patch ${each + 1}: weight ${digits(weights[each + 1])}`);
      cell.setAttribute("aria-pressed", String(each === patch));
      cell.tabIndex = each === patch ? 0 : -1;
    });
    row.forEach((token, each) => {
      const { background, text } = shade(Math.min(4 * weights[each], 1));
      Object.assign(token.style, { background, color: text });
      token.textContent = each ? String(each) : "class";
      token.classList.toggle("lit", each === patch + 1);
    });
    line.textContent = `Patch ${patch + 1} of the picture is token ${patch + 1} of the sequence, after the class token. From the class token it gets ${digits(weights[patch + 1])} in layer ${layer} (mean of 4 heads), where 1/17 = 0.06 would be uniform. The model says ${label}.`;
  };
  const redraw = oncePerFrame(draw);
  const choose = (next) => { patch = next; redraw(); };
  const cells = Array.from({ length: ACROSS ** 2 }, (_, each) => element("button", { type: "button", class: "patch", on: {
    click: () => choose(each), pointerover: () => choose(each),
    keydown: (event) => {
      const next = moved(event.key, each, ACROSS ** 2, ACROSS);
      if (next === undefined) return;
      event.preventDefault();
      cells[next].focus();
      choose(next);
    },
  } }, ...[0, 1, 2, 3].map(() => element("i"))));
  const row = Array.from({ length: ACROSS ** 2 + 1 }, () => element("span", { class: "token" }));
  const line = framed(place, "Point at a patch of the digit, or move with the arrow keys: where is it in the sequence, and how much of it reaches the class token?", [
    choice("digit", pictures.map(({ label }, each) => [each, String(label)]), which, (chosen) => { which = chosen; redraw(); }),
    slider("layer", [0, 2, 1], layer, (value) => { layer = value; redraw(); }, String),
  ], element("div", { class: "patches", role: "group", "aria-label": "patches of the digit" }, ...cells),
  element("div", { class: "tokens", role: "img", "aria-label": "the sequence: the class token, then the patches; darker tokens get more of its attention" }, ...row));
  draw();
}
