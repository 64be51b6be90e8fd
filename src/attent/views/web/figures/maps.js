// Pages 5, 6, 7 and 11: the attention of the course's translator in a sentence that is typed.
import { painted, scaleOf } from "../colours.js";
import { choice, element } from "../elements.js";
import { normalized } from "../formula/attend.js";
import { dot, timesTransposed } from "../formula/matrix.js";
import { Board, reading } from "./board.js";
import { digits, framed, oncePerFrame, sentenceField } from "./frame.js";
import { MatrixTable } from "./matrix_table.js";

const SENTENCE = "the black dog sings";
const HEADS = [0, 1, 2, 3];
const headChoice = (label, head, listener) => choice(label, HEADS.map((each) => [each, `head ${each}`]), head, listener);

export function projections(place, model) {
  const encoded = (words) => ({ words, ...model.encode(words) });
  let [found, row, head] = [encoded(SENTENCE.split(" ")), 2, 0];
  const draw = () => {
    const { words, x, self } = found;
    row = Math.min(row, words.length - 1);
    const alone = timesTransposed(x, x).list().map((scores) => [...normalized(scores, "softmax", {}, new Float64Array(scores.length))]);
    tables[0].show(alone, words, words, row);
    tables[1].show(self.heads[head], words, words, row);
    line.textContent = `${words[row]} attends to: ${reading(alone[row], words)} without projections; ${reading(self.heads[head][row], words)} with W_Q and W_K.`;
  };
  const redraw = oncePerFrame(draw);
  const tables = ["softmax(ssᵀ)", "with W_Q and W_K"].map((title) => new MatrixTable(title, (chosen) => { row = chosen; redraw(); }));
  const line = framed(place, "Type a sentence, and point at a row: does the word attend to itself? Compare the left table, without projections, with a head of the trained encoder.", [
    sentenceField("sentence", SENTENCE, model.words, (typed) => { found = encoded(typed); redraw(); }, 7),
    headChoice("right", head, (chosen) => { head = chosen; redraw(); }),
  ], ...tables.map(({ node }) => node));
  draw();
}

const cosine = (a, b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));

export function context(place, model) {
  const before = SENTENCE.split(" ");
  const vectors = ({ x, self, memory }, at) => [x, self.output, memory].map((matrix) => matrix.row(at));
  const compared = model.encode(before);
  let [found, row, head] = [model.translate("the black cows sing".split(" ")), 0, 1];
  const bars = ["embedding", "+ attention adds", "= features"].map((name) => ({ name, value: element("td"), bar: element("span", { class: "bar value" }) }));
  const table = element("table", { class: "rows" }, element("tbody", {}, ...bars.map(({ name, value, bar }) =>
    element("tr", {}, element("th", { scope: "row", text: name }), value, element("td", { class: "bars" }, bar)))));
  const title = element("p", { class: "title" });
  const draw = () => {
    const { words, encoded, ids } = found;
    row = Math.min(row, words.length - 1);
    const weights = encoded.self.heads[head][row];
    board.show(words, words, weights, row);
    const same = before.indexOf(words[row]);
    title.textContent = same < 0 ? `${words[row]} is not in “${SENTENCE}”` : `“${words[row]}” here and in “${SENTENCE}”: cosine`;
    const own = vectors(encoded, row);
    const cosines = same < 0 ? null : vectors(compared, same).map((vector, part) => cosine(vector, own[part]));
    bars.forEach(({ value, bar }, part) => {
      value.textContent = cosines ? digits(cosines[part]) : "–";
      bar.style.width = `${cosines ? (100 * Math.max(cosines[part], 0)).toFixed(1) : 0}%`;
    });
    line.textContent = `In head ${head}, “${words[row]}” attends to ${reading(weights, words)}. Translation: ${model.text(ids)}`;
  };
  const redraw = oncePerFrame(draw);
  const board = new Board("this sentence in the encoder: choose a word below", (chosen) => { row = chosen; redraw(); });
  const line = framed(place, `Change the noun, to horse, cow or cats: what changes in the vector of “the”? It is compared with its vector in “${SENTENCE}”.`, [
    sentenceField("sentence", found.words.join(" "), model.words, (typed) => { found = model.translate(typed); redraw(); }, 7),
    headChoice("encoder", head, (chosen) => { head = chosen; redraw(); }),
  ], board.node, element("div", { class: "titled" }, title, table));
  draw();
}

export function heads(place, model) {
  let [found, row, chosen] = [model.translate(SENTENCE.split(" ")), 0, [0, 1]];
  const draw = () => {
    const { words, labels, decoded } = found;
    row = Math.min(row, labels.length - 1);
    const rows = chosen.map((head) => decoded.cross.heads[head][row]);
    boards.forEach((board, side) => board.show(words, labels, rows[side], row));
    const shared = rows[0].map((weight, key) => (weight + rows[1][key]) / 2);
    line.textContent = `To write ${labels[row]}: head ${chosen[0]} ${reading(rows[0], words)}; head ${chosen[1]} ${reading(rows[1], words)}. A single head with both would have to share its weight: ${reading(shared, words)}.`;
  };
  const redraw = oncePerFrame(draw);
  const boards = ["left", "right"].map((side) => new Board(`${side} head: choose a word below`, (next) => { row = next; redraw(); }));
  const line = framed(place, "Choose a French word: what do two heads read to write it? Then choose other heads, or type another sentence.", [
    sentenceField("sentence", SENTENCE, model.words, (typed) => { found = model.translate(typed); redraw(); }, 7),
    ...chosen.map((head, side) => headChoice(["left", "right"][side], head, (next) => { chosen[side] = next; redraw(); })),
  ], ...boards.map(({ node }) => node));
  draw();
}

export function seeing(place, model) {
  let [found, group, head, row] = [model.translate(SENTENCE.split(" ")), 2, 2, 0];
  const read = () => ["<s>", ...found.labels.slice(0, -1)];
  const groups = () => [
    ["encoder", found.encoded.self, found.words, found.words],
    ["decoder", found.decoded.self, read(), found.labels],
    ["cross", found.decoded.cross, found.words, found.labels],
  ];
  const draw = () => {
    const all = groups();
    const [name, { heads: maps }, columns, rows] = all[group];
    row = Math.min(row, rows.length - 1);
    thumbnails.forEach(({ button, of: [which, own] }) => {
      const [, { heads: others }, keys] = all[which];
      const size = { measure: "weights", distribution: true, width: keys.length, height: others[own].length };
      button.replaceChildren(painted({ ...size, values: Float32Array.from(others[own].flat()) }, scaleOf(size)));
      button.setAttribute("aria-pressed", String(which === group && own === head));
    });
    board.show(columns, rows, maps[head][row], row);
    matrix.show(maps[head], rows, columns, row);
    line.textContent = `${name}, head ${head}: ${group ? "to write " : ""}${rows[row]}, the weights are ${reading(maps[head][row], columns)}.`;
  };
  const redraw = oncePerFrame(draw);
  const choose = (next) => { row = next; redraw(); };
  const thumbnails = ["encoder", "decoder", "cross"].flatMap((name, which) => HEADS.map((own) => ({
    of: [which, own],
    button: element("button", { type: "button", class: "thumbnail", "aria-label": `${name}, head ${own}`, on: { click: () => { [group, head] = [which, own]; redraw(); } } }),
  })));
  const [board, matrix] = [new Board("words: choose one below", choose), new MatrixTable("matrix", choose)];
  const lines = ["encoder", "decoder", "cross"].map((name, which) => element("div", { class: "strip" }, element("span", { text: name }), ...thumbnails.slice(4 * which, 4 * which + 4).map(({ button }) => button)));
  const line = framed(place, "Choose one of the twelve small maps, then point at a row, or choose a word below: where does it attend?", [
    sentenceField("sentence", SENTENCE, model.words, (typed) => { found = model.translate(typed); redraw(); }, 7),
  ], element("div", { class: "strips", role: "group", "aria-label": "all heads" }, ...lines), board.node, matrix.node);
  draw();
}
