// Pages 5, 6, 7 and 11: the attention of the course's translator in a sentence that is typed.
import { painted, scaleOf } from "../colours.js";
import { choice, element } from "../elements.js";
import { normalized } from "../formula/attend.js";
import { dot, timesTransposed } from "../formula/matrix.js";
import { apart } from "../words.js";
import { TitledBoard, reading } from "./board.js";
import { framed, oncePerFrame, sentenceField } from "./frame.js";
import { MatrixTable } from "../matrix_table.js";
import { Rows } from "./rows.js";

const SENTENCE = "the black dog sings";
const GROUPS = ["encoder", "decoder", "cross"];
const HEADS = [0, 1, 2, 3];
const headChoice = (label, head, listener) => choice(label, HEADS.map((each) => [each, `head ${each}`]), head, listener);

export function projections(place, model) {
  let [found, row, head] = [model.translate(SENTENCE.split(" ")), 2, 0];
  const draw = () => {
    const { words, vectors: [embeddings], maps: { encoder } } = found;
    row = Math.min(row, words.length - 1);
    const alone = timesTransposed(embeddings, embeddings).list().map((scores) => [...normalized(scores, "softmax")]);
    tables[0].show(alone, words, words, row);
    tables[1].show(encoder[head], words, words, row);
    line.textContent = `${apart(words)[row]} attends to: ${reading(alone[row], words)} without projections; ${reading(encoder[head][row], words)} with W_Q and W_K.`;
  };
  const redraw = oncePerFrame(draw);
  const tables = ["softmax(ssᵀ)", "with W_Q and W_K"].map((title) => new MatrixTable(title, (chosen) => { row = chosen; redraw(); }));
  const line = framed(place, [
    sentenceField("sentence", SENTENCE, model.words, (typed) => { found = model.translate(typed); redraw(); }),
    headChoice("right", head, (chosen) => { head = chosen; redraw(); }),
  ], ...tables.map(({ node }) => node));
  draw();
}

const cosine = (a, b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));

export function context(place, model) {
  const before = SENTENCE.split(" ");
  const compared = model.translate(before).vectors;
  let [found, row, head] = [model.translate("the black cows sing".split(" ")), 0, 1];
  const rows = new Rows(["embedding", "+ attention adds", "= features"], ["", "", "", ""], { role: "value" });
  const title = element("p", { class: "title" });
  const draw = () => {
    const { words, vectors, maps, text } = found;
    row = Math.min(row, words.length - 1);
    const weights = maps.encoder[head][row];
    board.show(words, words, maps.encoder[head], { row });
    const same = before.indexOf(words[row]);
    title.textContent = same < 0 ? `${words[row]} is not in “${SENTENCE}”` : `“${words[row]}” here and in “${SENTENCE}”: cosine`;
    rows.show(null, compared.map((matrix, part) => cosine(matrix.row(Math.max(same, 0)), vectors[part].row(row))));
    rows.node.hidden = same < 0;
    line.textContent = `In head ${head}, “${apart(words)[row]}” attends to ${reading(weights, words)}. Translation: ${text}`;
  };
  const redraw = oncePerFrame(draw);
  const board = new TitledBoard("this sentence in the encoder: choose a word below", (chosen) => { row = chosen; redraw(); });
  const line = framed(place, [
    sentenceField("sentence", found.words.join(" "), model.words, (typed) => { found = model.translate(typed); redraw(); }),
    headChoice("encoder", head, (chosen) => { head = chosen; redraw(); }),
  ], board.titled, element("div", { class: "titled" }, title, rows.node));
  draw();
}

export function heads(place, model) {
  let [found, row, chosen] = [model.translate(SENTENCE.split(" ")), 0, [0, 1]];
  const draw = () => {
    const { words, labels, maps } = found;
    row = Math.min(row, labels.length - 1);
    const rows = chosen.map((head) => maps.cross[head][row]);
    boards.forEach((board, side) => board.show(words, labels, maps.cross[chosen[side]], { row }));
    const shared = rows[0].map((weight, key) => (weight + rows[1][key]) / 2);
    const read = chosen.map((head, side) => `head ${head} reads ${reading(rows[side], words)}`).join("; ");
    line.textContent = `To write ${apart(labels)[row]}, ${read}. A single head with both would have to share its weight: ${reading(shared, words)}.`;
  };
  const redraw = oncePerFrame(draw);
  const boards = ["left", "right"].map((side) => new TitledBoard(`${side} head: choose a word below`, (next) => { row = next; redraw(); }));
  const line = framed(place, [
    sentenceField("sentence", SENTENCE, model.words, (typed) => { found = model.translate(typed); redraw(); }),
    ...chosen.map((head, side) => headChoice(["left", "right"][side], head, (next) => { chosen[side] = next; redraw(); })),
  ], ...boards.map(({ titled }) => titled));
  draw();
}

export function seeing(place, model) {
  let [found, group, head, row] = [model.translate(SENTENCE.split(" ")), 2, 2, 0];
  const groups = ({ words, labels, maps }) => [
    [maps.encoder, words, words],
    [maps.decoder, ["<s>", ...labels.slice(0, -1)], labels],
    [maps.cross, words, labels],
  ];
  const draw = () => {
    const all = groups(found);
    const [maps, columns, rows] = all[group];
    row = Math.min(row, rows.length - 1);
    thumbnails.forEach(({ button, of: [which, own] }) => {
      const [others, keys] = all[which];
      const size = { measure: "weights", distribution: true, width: keys.length, height: others[own].length };
      button.replaceChildren(painted({ ...size, values: Float32Array.from(others[own].flat()) }, scaleOf(size)));
      button.setAttribute("aria-pressed", String(which === group && own === head));
    });
    board.show(columns, rows, maps[head], { row });
    matrix.show(maps[head], rows, columns, row);
    line.textContent = `${GROUPS[group]}, head ${head}: ${group ? "to write " : ""}${apart(rows)[row]}, the weights are ${reading(maps[head][row], columns)}.`;
  };
  const redraw = oncePerFrame(draw);
  const choose = (next) => { row = next; redraw(); };
  const thumbnails = GROUPS.flatMap((name, which) => HEADS.map((own) => {
    const click = () => { [group, head] = [which, own]; redraw(); };
    return { of: [which, own], button: element("button", { type: "button", class: "thumbnail", "aria-label": `${name}, head ${own}`, on: { click } }) };
  }));
  const strip = (which) => thumbnails.filter(({ of }) => of[0] === which).map(({ button }) => button);
  const strips = GROUPS.map((name, which) => element("div", { class: "strip" }, element("span", { text: name }), ...strip(which)));
  const [board, matrix] = [new TitledBoard("words: choose one below", choose), new MatrixTable("matrix", choose)];
  const line = framed(place, [
    sentenceField("sentence", SENTENCE, model.words, (typed) => { found = model.translate(typed); redraw(); }),
  ], element("div", { class: "strips", role: "group", "aria-label": "all heads" }, ...strips), board.titled, matrix.node);
  draw();
}
