// Page 8 and the database: curves over a line, with points that are dragged.
import { drawn, element, tick } from "../elements.js";
import { attend, normalized } from "../formula/attend.js";
import { dot, Matrix } from "../formula/matrix.js";
import { rotary, sinusoidal } from "../formula/positions.js";
import { Handle } from "./drag.js";
import { digits } from "../words.js";
import { framed, oncePerFrame, slider } from "./frame.js";

const [WIDTH, HEIGHT, EDGE] = [340, 210, 26];

/** A drawing with axes: `at` places a point (x, y) in pixels, `from` is its inverse. */
function chart([left, right], [low, high], across, up) {
  const at = ([x, y]) => [EDGE + ((x - left) / (right - left)) * (WIDTH - 2 * EDGE), HEIGHT - EDGE - ((y - low) / (high - low)) * (HEIGHT - 2 * EDGE)];
  const from = ([x, y]) => [left + ((x - EDGE) / (WIDTH - 2 * EDGE)) * (right - left), low + ((HEIGHT - EDGE - y) / (HEIGHT - 2 * EDGE)) * (high - low)];
  const label = (x, y, text, anchor) => drawn("text", { class: "axis", x, y, "text-anchor": anchor }, text);
  const node = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "group", "aria-label": `${up} by ${across}` },
    drawn("path", { class: "axes", d: `M${EDGE} ${EDGE / 2}V${HEIGHT - EDGE}H${WIDTH - EDGE / 2}` }),
    label(EDGE, HEIGHT - EDGE + 18, String(left), "middle"), label(WIDTH - EDGE, HEIGHT - EDGE + 18, String(right), "middle"),
    label(WIDTH / 2, HEIGHT - 6, across, "middle"), label(EDGE + 6, 16, up, "start"));
  return { node, at, from, path: (points) => `M${points.map((point) => at(point).map((value) => value.toFixed(1)).join(" ")).join("L")}` };
}

// Width of the encodings, as in the translator, and of a head; the largest distance; the distance that the query under rotary asks for.
const [WIDE, HEAD, FAR, WANTED] = [64, 16, 40, 5];
const EXAMPLES = ["the dog sees the cat", "the cat sees the dog"];
const ones = new Matrix(1, HEAD, new Float32Array(HEAD).fill(1));
const SHARES = [
  (p, d) => dot(sinusoidal(1, WIDE, p).row(0), sinusoidal(1, WIDE, p + d).row(0)) / (WIDE / 2),
  (p, d) => dot(rotary(rotary(ones, WANTED), p).row(0), rotary(ones, p + d).row(0)) / HEAD,
];

export function positions(place, model) {
  let [start, distance] = [0, WANTED];
  const plot = chart([0, FAR], [0, 1], "distance d", "dot product ÷ its largest");
  const curves = ["curve query", "curve key dashed"].map((kind) => drawn("path", { class: kind }));
  const marks = ["query", "key"].map((kind) => drawn("circle", { r: 6, class: kind }));
  plot.node.append(...curves, ...marks);
  const translations = element("p", { class: "said" });
  const translate = (hasPositions) => {
    const texts = EXAMPLES.map((each) => `${each} → ${model.translate(each.split(" "), hasPositions).text}`);
    translations.replaceChildren(texts[0], element("br"), texts[1]);
  };
  const draw = () => {
    curves.forEach((curve, which) => curve.setAttribute("d", plot.path(Array.from({ length: FAR + 1 }, (_, d) => [d, SHARES[which](start, d)]))));
    const shares = SHARES.map((share) => share(start, distance));
    marks.forEach((mark, which) => ["cx", "cy"].forEach((name, axis) => mark.setAttribute(name, plot.at([distance, shares[which]])[axis])));
    line.textContent = `Positions ${start} and ${start + distance}. Solid, sinusoidal encodings: ${digits(shares[0], 3)}. Dashed, under rotary, a query that asks for ` +
      `the key ${WANTED} further: ${digits(shares[1], 3)}. Only d matters, not p.`;
  };
  const redraw = oncePerFrame(draw);
  const line = framed(place, [
    slider("position p", [0, 80, 1], start, (value) => { start = value; redraw(); }, String),
    slider("distance d", [0, FAR, 1], distance, (value) => { distance = value; redraw(); }, String),
    tick("the translator has positions", true, translate),
  ], plot.node, translations);
  translate(true);
  draw();
}

// Made up: average grades and salaries in thousands, as on the page.
const POINTS = [[2.1, 27], [2.3, 30], [2.5, 28], [2.7, 31], [2.9, 30], [3.1, 34], [3.2, 32], [3.4, 37], [3.6, 37], [3.8, 42], [3.9, 44]];

export function regression(place) {
  let bandwidth = 0.2;
  const [xs, ys] = [[2, 4], [20, 50]];
  const plot = chart(xs, ys, "average grade", "salary in thousands");
  const [curve, stem] = [drawn("path", { class: "curve value" }), drawn("path", { class: "curve query dashed" })];
  plot.node.append(curve, stem);
  const meanAt = (queries) => {
    const columns = [queries, ...[0, 1].map((axis) => handles.map((handle) => handle.point[axis]))];
    return attend(...columns.map((column) => Matrix.of(column.map((value) => [value]))), { score: "gaussian", parameters: { sigma: bandwidth } });
  };
  const draw = () => {
    const queries = Array.from({ length: 81 }, (_, step) => xs[0] + (step * (xs[1] - xs[0])) / 80);
    const { context } = meanAt(queries);
    curve.setAttribute("d", plot.path(queries.map((query, row) => [query, context.at(row, 0)])));
    const [query] = asked.point;
    const { weights, context: answer } = meanAt([query]);
    stem.setAttribute("d", plot.path([[query, ys[0]], [query, answer.at(0, 0)]]));
    handles.forEach(({ mark }, key) => { mark.style.fillOpacity = 0.25 + 0.75 * Math.sqrt(weights.at(0, key)); });
    const most = weights.row(0).indexOf(Math.max(...weights.row(0)));
    line.textContent = `m(${digits(query)}) = ${digits(answer.at(0, 0))} thousand; the point at ${digits(handles[most].point[0])} has the largest weight, ${digits(weights.at(0, most))}.`;
  };
  const redraw = oncePerFrame(draw);
  const bounded = (value, [low, high]) => Math.min(Math.max(value, low), high);
  const movable = (role, name, point, isQuery) => new Handle(plot.node, role, {
    name, point, at: plot.at, from: plot.from, step: [0.05, isQuery ? 0 : 1],
    move: ([x, y]) => { redraw(); return [bounded(x, xs), isQuery ? ys[0] : bounded(y, ys)]; },
  });
  const handles = POINTS.map((point, key) => movable("value", `point ${key + 1}`, point, false));
  const asked = movable("query", "query", [3.5, ys[0]], true);
  plot.node.append(...handles.map(({ node }) => node), asked.node);
  const line = framed(place, [
    slider("bandwidth h", [0.03, 1.5, 0.01], bandwidth, (value) => { bandwidth = value; redraw(); }),
  ], plot.node);
  draw();
}
