// Pages 2 and 3: a query among keys, on a plane where all of them are dragged.
import { choice, element } from "../elements.js";
import { attend } from "../formula/attend.js";
import { Matrix } from "../formula/matrix.js";
import { digits } from "../words.js";
import { framed, oncePerFrame } from "./frame.js";
import { Plane } from "./plane.js";
import { Rows } from "./rows.js";

const WORDS = ["the", "black", "dog", "sings"];
const KEYS = [[-0.9, 0.5], [2, 0.2], [0.3, 2], [-0.7, -1.7]];
const SAME = Matrix.of([[1, 0], [0, 1]]);
const TURN = Matrix.of([[0, -1], [1, 0]]);
// Name, equation, and parameters, which training would learn.
const SCORES = [
  ["dot", "q·k", {}],
  ["scaled_dot", "q·k / √2", {}],
  ["cosine", "q·k / (|q| |k|)", {}],
  ["general", "qᵀWk, where W turns by 90°", { weight: TURN }],
  ["additive", "v·tanh(q + k), v = (2, 2)", { query_weight: SAME, key_weight: SAME, v: [2, 2] }],
  ["gaussian", "−|q − k|² / 2", {}],
];

function drawing(place, scores) {
  let [score, equation, parameters] = scores[0];
  const draw = () => {
    const [query, ...keys] = handles.map((handle) => handle.point);
    const matrix = Matrix.of(keys);
    const found = attend(Matrix.of([query]), matrix, matrix, { score, parameters });
    const [weights, mean] = [found.weights.row(0), found.context.row(0)];
    rows.show(found.scores.row(0), weights);
    plane.mean([...mean]);
    const sum = WORDS.map((word, key) => `${digits(weights[key])}·${word}`).join(" + ");
    line.textContent = `average = ${sum} = (${[...mean].map((value) => digits(value)).join(", ")}). Score: ${equation}.`;
  };
  const redraw = oncePerFrame(draw);
  const plane = new Plane("adjective →", "↑ noun", redraw);
  const handles = [...WORDS.map((word, key) => plane.vector("key", word, KEYS[key])), plane.vector("query", "q, noir", [1.6, 0.8])];
  handles.unshift(handles.pop());
  const rows = new Rows(WORDS, ["key", "score", "weight α", ""]);
  const control = choice("score", scores.map(([name]) => [name, name.replace("_", " ")]), score, (chosen) => {
    [score, equation, parameters] = scores.find(([name]) => name === chosen);
    redraw();
  });
  const line = framed(place, scores.length > 1 ? [control] : [], plane.node, element("div", {}, rows.node));
  draw();
}

export function queries(place) {
  drawing(place, SCORES.slice(0, 1));
}

export function scores(place) {
  drawing(place, SCORES);
}
