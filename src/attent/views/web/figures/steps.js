// Pages 1 and 10 and the page of classification: what is read step by step.
import { shade } from "../colours.js";
import { choice, element, rove } from "../elements.js";
import { normalized } from "../formula/attend.js";
import { apart, digits } from "../words.js";
import { TitledBoard, reading } from "./board.js";
import { framed, oncePerFrame, sentenceField, slider } from "./frame.js";
import { MatrixTable } from "../matrix_table.js";

/** Move a slider by script as a hand would. */
function set(input, value) {
  input.value = value;
  input.dispatchEvent(new Event("input"));
}

export function recurrent(place, { sentences }) {
  let [which, step] = [1, 2];
  const draw = () => {
    const { source, right, attention, fixed, weights } = sentences[which];
    input.max = attention.length - 1;
    step = Math.min(step, attention.length - 1);
    const words = source.split(" ");
    board.show(words, attention, weights, { row: step });
    vector.replaceChildren(...words.map((text) => element("span", { class: "word", text })), element("span", { class: "word one", text: "c: 64 numbers" }));
    written.replaceChildren(...fixed.slice(0, step + 1).map((text, at) => element(text === right[at] ? "span" : "del", { class: "word", text })));
    const own = fixed[step] === undefined ? "has ended" : `writes ${fixed[step]}${fixed[step] === right[step] ? "" : `, where ${right[step] ?? "nothing"} is right`}`;
    line.textContent = `Step ${step + 1}: with attention, the network writes ${apart(attention)[step]} and reads ${reading(weights[step], words)}. With one fixed vector, it ${own}.`;
  };
  const redraw = oncePerFrame(draw);
  const board = new TitledBoard("attention: a new average at each step", (next) => set(input, next));
  const [vector, written] = [element("div", { class: "line bottleneck" }), element("div", { class: "line" })];
  const control = slider("step", [0, 3, 1], step, (value) => { step = value; redraw(); }, (value) => String(value + 1));
  const input = control.querySelector("input");
  const line = framed(place, [
    choice("sentence", sentences.map(({ source }, each) => [each, source]), which, (chosen) => { which = chosen; set(input, 0); }),
    control,
  ], board.titled, element("div", { class: "titled" }, element("p", { class: "title", text: "one fixed vector: wrong words are struck out" }), vector, written));
  draw();
}

const ENCODER = ["encoder: embeddings and positions", "encoder: self-attention", "encoder: its output, the memory"];
const DECODER = ["decoder: masked self-attention", "decoder: cross-attention", "decoder: probabilities of the next word"];
// features of a vector that are shown, and most probable words
const [FEATURES, BEST] = [6, 4];

/** The most probable words of logits with their probabilities. */
function likeliest(logits, model) {
  const probabilities = normalized(logits, "softmax");
  const best = [...probabilities.keys()].sort((one, other) => probabilities[other] - probabilities[one]).slice(0, BEST);
  return [best.map((id) => probabilities[id]), best.map((id) => model.label(id))];
}

export function transformer(place, model) {
  let [found, moment, row] = [model.translate("the black dog sings".split(" ")), 0, 0];
  const count = () => ENCODER.length + DECODER.length * found.labels.length;
  const features = Array.from({ length: FEATURES }, (_, each) => `${each}`);
  const first = (matrix) => matrix.list().map((numbers) => numbers.slice(0, FEATURES));
  const encoderPart = (part) => {
    const { words, maps, vectors: [embeddings, , memory] } = found;
    row = Math.min(row, words.length - 1);
    if (part === 1) return [maps.encoder[0], words, words, row, `${apart(words)[row]} attends to ${reading(maps.encoder[0][row], words)} (head 0).`];
    const said = part ? "what the decoder will read" : "each word's embedding plus its position";
    return [first(part ? memory : embeddings), words, features, row, `${words.length} vectors of 64 numbers, ${said}; the first ${FEATURES} of each.`];
  };
  const decoderPart = (step, part) => {
    const { words, maps, logits, labels } = found;
    const [read, writing] = [["<s>", ...labels].slice(0, step + 1), labels.slice(0, step + 1)];
    const given = `Given ${read.join(" ")}: `;
    if (part === 2) {
      const [shares, best] = likeliest(logits[step], model);
      return [[shares], ["next"], best, 0, `${given}${reading(shares, best)}. The most probable word is written: ${writing.join(" ")}`];
    }
    const weights = maps[part ? "cross" : "decoder"][0].slice(0, step + 1).map((own) => (part ? own : own.slice(0, step + 1)));
    const keys = part ? words : read;
    return [weights, writing, keys, step, `${given}to write ${apart(labels)[step]}, the decoder attends to ${reading(weights[step], keys)}${part ? " of the memory" : ""} (head 0).`];
  };
  const draw = () => {
    const late = moment - ENCODER.length;
    const part = late < 0 ? moment : ENCODER.length + (late % DECODER.length);
    const [values, rows, columns, lit, text] = late < 0 ? encoderPart(part) : decoderPart(Math.floor(late / DECODER.length), late % DECODER.length);
    const areWeights = columns !== features;
    matrix.show(values, rows, columns, lit, areWeights ? 1 : Math.max(...values.flat().map(Math.abs)));
    stages.forEach((stage, each) => (each === part ? stage.setAttribute("aria-current", "step") : stage.removeAttribute("aria-current")));
    line.textContent = text;
  };
  const redraw = oncePerFrame(draw);
  const matrix = new MatrixTable("numbers of this step", (chosen) => { row = chosen; redraw(); });
  const stages = [...ENCODER, ...DECODER].map((text) => element("li", { text }));
  const control = slider("step", [0, count() - 1, 1], moment, (value) => { moment = value; redraw(); }, (value) => `${value + 1} of ${count()}`);
  const input = control.querySelector("input");
  const go = (value) => { input.max = count() - 1; set(input, value); };
  const line = framed(place, [
    sentenceField("sentence", "the black dog sings", model.words, (typed) => { found = model.translate(typed); go(0); }),
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
      [...cell.children].forEach((dot, pixel) => (dot.style.opacity = inside[pixel] / 16));
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
    line.textContent = `Patch ${patch + 1} is token ${patch + 1} of the sequence, after the class token. ` +
      `In layer ${layer}, the class token gives it ${digits(weights[patch + 1])} of its attention (mean of 4 heads; uniform is 1/17 = 0.06). Predicted: ${label}.`;
  };
  const redraw = oncePerFrame(draw);
  const choose = (next) => { patch = next; redraw(); };
  const cells = Array.from({ length: ACROSS ** 2 }, (_, each) => element("button", { type: "button", class: "patch", on: {
    click: () => choose(each), pointerover: () => choose(each),
    focus: () => choose(each), keydown: (event) => rove(event, cells, ACROSS),
  } }, ...[0, 1, 2, 3].map(() => element("i"))));
  const row = Array.from({ length: ACROSS ** 2 + 1 }, () => element("span", { class: "token" }));
  const line = framed(place, [
    choice("digit", pictures.map(({ label }, each) => [each, String(label)]), which, (chosen) => { which = chosen; redraw(); }),
    slider("layer", [0, 2, 1], layer, (value) => { layer = value; redraw(); }, String),
  ], element("div", { class: "patches", role: "group", "aria-label": "patches of the digit" }, ...cells),
  element("div", { class: "tokens", role: "img", "aria-label": "the sequence: the class token, then the patches; darker tokens get more of its attention" }, ...row));
  draw();
}
