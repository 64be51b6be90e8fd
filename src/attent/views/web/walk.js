// The page of a walk: one row of matrices that reads like the equation, and the sum of the cell in focus.
import { onScheme, scaleOf, shade, share as shareOf, token, uniformly } from "./colours.js";
import { element } from "./elements.js";
import { digits as number } from "./words.js";

const MAIN = document.querySelector("main");
// a longer sum keeps so many of its terms
const TERMS = 8;
const ROLES = { Q: "query", K: "key", V: "value", weights: "weight", softmax: "weight" };
const NAMES = { products: "Q·Kᵀ", scores: "score", scaled: "scale", capped: "cap", biased: "position", masked: "mask", V: "·V" };
const steps = Object.fromEntries(WALK.steps.map((step) => [step.name, step]));
const { rows: queries, columns: keys } = steps.weights;
const order = Object.keys(steps), first = order.indexOf("V") + 1, last = order.indexOf("output");
const row = [...order.slice(first, last).filter((name) => axisOf(steps[name], -2) === "query" && axisOf(steps[name], -1) === "key"), "V", "output"];
const state = { head: WALK.head, query: Math.min(1, queries.length - 1), key: 0, cell: null, kept: false };

const word = (text, role = "") => element("b", { dir: "auto", class: role }, text);
const all = (selector, within = MAIN) => [...within.querySelectorAll(selector)];
const one = (selector) => MAIN.querySelector(selector);
const nameOf = ({ name, equation }) => name === "weights" ? /= (\w+)/.exec(equation)[1] : equation.endsWith("= Q·Kᵀ") ? "Q·Kᵀ" : NAMES[name] || name;
/** The matrix of a step, of the chosen head if every head has its own. */
const valuesOf = (step) => step.heads[Math.min(state.head, step.heads.length - 1)];
/** A heading of a row or column; where the word is on the left edge of the row of steps, it is for screen readers alone. */
const heading = (label, scope, role, isEdge = false) =>
  element("th", { scope, dir: "auto", title: label, class: isEdge ? "edge" : role }, isEdge ? element("span", { class: "unseen" }, label) : label);
/** The number of keys that a query may look at. */
const allowed = (query) => steps.masked ? valuesOf(steps.masked)[query].filter((value) => value > -Infinity).length : keys.length;
const scale = { ...scaleOf({ measure: "weights", distribution: true, width: keys.length, height: queries.length }), allowed };

/** A text in which Q, K, V and weights have the colors of their roles. */
function tinted(text) {
  const parts = text.split(/(\b(?:W_)?[QKV]\b|\bweights\b|\bsoftmax\b)/);
  return parts.map((part, place) => (place % 2 ? element("span", { class: ROLES[part.replace("W_", "")] }, part) : part));
}

/** What the rows (−2) or columns (−1) of a step are: "query", "key", or "" for features and the like. */
function axisOf(step, place) {
  const letter = step.axes.slice(1, -1).split(", ").at(place), count = (place === -1 ? step.columns : step.rows).length;
  return letter === "Tk" ? "key" : ["Tq", "T"].includes(letter) && count === queries.length ? "query" : "";
}

/** Color a cell by a share of 1; its digits are black or white, whichever has more contrast. */
function color(cell, share) {
  const { background, text } = shade(share);
  Object.assign(cell.style, { background, color: text });
}

/** A step as a table; in the row of steps, the values have the weights of the chosen query beside them. */
function tableOf(step, isInRow) {
  const axes = [axisOf(step, -2), axisOf(step, -1)], isEdge = isInRow && axes[0] === "query", hasShares = isInRow && step.name === "V";
  const corner = element("td", { class: isEdge ? "edge" : "corner" }), share = hasShares ? [heading("α", "col", "weight")] : [];
  const body = element("tbody"), top = element("tr", {}, corner, ...share, ...step.columns.map((label) => heading(label, "col", axes[1])));
  valuesOf(step).forEach((numbers, at) => {
    const cells = numbers.map((value, column) => {
      const text = step.cells.length ? `${step.cells[at][column]} ${number(value)}` : number(value);
      const cell = element("td", { tabindex: at || column ? -1 : 0, "data-column": column }, text);
      if (step.name === "weights" || step.name === "probabilities") color(cell, step.name === "weights" ? shareOf(value, scale, at) : value);
      return cell;
    });
    body.append(element("tr", {}, heading(step.rows[at], "row", axes[0], isEdge), ...(hasShares ? [element("td", { class: "share" })] : []), ...cells));
  });
  const caption = element("caption", {}, element("span", { class: "unseen" }, `${step.equation}. ${step.meaning}`));
  return element("table", { role: "grid", "data-step": step.name }, caption, element("thead", {}, top), body);
}

/** A sum of products in the colors of their roles, such as `cat 0.50·1.20 + mat 0.50·0.30`. */
function productOf(left, right, labels, roles) {
  const sizes = left.map((factor, place) => Math.abs(factor * right[place])), least = [...sizes].sort((a, b) => b - a)[TERMS - 1] || 0;
  const places = [...left.keys()].filter((place) => sizes[place] >= least), rest = left.length - places.length;
  const terms = places.flatMap((place, index) => [index ? " + " : "", labels ? `${labels[place]} ` : "", element("span", { class: roles[0] }, number(left[place])), "·",
    element("span", { class: roles[1] }, right[place] < 0 ? `(${number(right[place])})` : number(right[place]))]);
  return [...terms, rest ? ` + ${rest} smaller` : ""];
}

/** What a number is made of; nothing if the equation alone does not tell. */
function madeOf(step, at, column) {
  const [, left, right, turned] = /^\S+ = (\w+)·(\w+)(ᵀ?)(?:, cut into \d+ heads)?$/.exec(step.equation) || [];
  if (steps[left] && steps[right]) {
    const matrix = valuesOf(steps[right]), cut = steps[right].axes.startsWith("(rows") && step.heads.length > 1 ? state.head * step.columns.length : 0;
    const others = turned ? matrix[column] : matrix.map((numbers) => numbers[cut + column]);
    return productOf(valuesOf(steps[left])[at], others, axisOf(steps[left], -1) === "key" && keys, [left, right].map((name) => ROLES[name.replace("W_", "")] || ""));
  }
  if (step.name === "masked") return [valuesOf(step)[at][column] === -Infinity ? "hidden by the mask" : "visible"];
  const expression = step.equation.split(" = ").at(-1), before = steps[/^softmax\((\w+)\)$/.exec(expression)?.[1]];
  if (before?.columns.length === step.columns.length) {
    const scores = valuesOf(before)[at], sum = scores.reduce((total, score) => total + Math.exp(score), 0);
    return [`exp ${number(scores[column])} / Σ exp = ${number(Math.exp(scores[column]))} / ${number(sum)}`];
  }
  const changed = expression.replace(/\b(\w+)\b(?:\[i, j\])?(?!·)/g, (text, name) => {
    const other = name !== step.name && steps[name];
    return other && other.rows.length === step.rows.length && other.columns.length === step.columns.length ? number(valuesOf(other)[at][column]) : text;
  });
  return changed === expression ? [] : [changed];
}

/** Say where the weights of the chosen query go. */
function lead(weights) {
  const uniform = uniformly(weights, scale, state.query), most = weights.indexOf(Math.max(...weights));
  return ["From ", word(queries[state.query], "query"),
    ...(uniform ? [`, the weights are ${uniform}.`] : [", the largest weight goes to ", word(keys[most], "key"), `: ${number(weights[most])}.`])];
}

/** Write the sum of the cell in focus, and light the rows and columns of its query and key everywhere. */
function show() {
  const { step, at, column } = state.cell, made = madeOf(step, at, column), weights = valuesOf(steps.weights)[state.query], value = number(valuesOf(step)[at][column], 6);
  one("#sum").replaceChildren(`${step.name}[`, word(step.rows[at], axisOf(step, -2)), ", ", word(step.columns[column], axisOf(step, -1)), "] = ",
    ...(made.length ? [...made, " = ", value] : [value, `. ${step.meaning}`]), state.kept ? element("small", {}, " (kept; choose it again to let it go)") : "");
  for (const table of all("table")) {
    const its = steps[table.dataset.step], isHere = its === step, [rows, columns] = [axisOf(its, -2), axisOf(its, -1)];
    all("tbody tr", table).forEach((line, index) => line.classList.toggle("lit", rows ? index === state[rows] : isHere && index === at));
    all("thead th:not(.weight)", table).forEach((each, index) => each.classList.toggle("lit", columns ? index === state[columns] : isHere && index === column));
    all("[data-column]", table).forEach((cell) => {
      const isNow = isHere && cell.parentNode.sectionRowIndex === at && +cell.dataset.column === column;
      cell.classList.toggle("now", isNow);
      if (isHere) cell.tabIndex = isNow ? 0 : -1;
    });
  }
  all(".share").forEach((cell, index) => {
    cell.textContent = number(weights[index]);
    color(cell, shareOf(weights[index], scale, state.query));
  });
  all(".words button").forEach((button, index) => button.setAttribute("aria-pressed", index === state.query));
  one("#lead").replaceChildren(...lead(weights));
}

/** Choose a cell, or a word on the left edge, to whose row the cell in focus moves. */
function choose(target, isToKeep = false) {
  state.kept = isToKeep && !(state.kept && target.matches(".now"));
  let { step, column } = state.cell || {}, at = all(".words button").indexOf(target);
  if (at < 0) [step, at, column] = [steps[target.closest("table").dataset.step], target.parentNode.sectionRowIndex, +target.dataset.column];
  else if (axisOf(step, -2) !== "query") [step, column] = [steps.output, 0];
  Object.assign(state, { cell: { step, at, column }, key: -1 });
  for (const [place, index] of [[-2, at], [-1, column]]) if (axisOf(step, place)) state[axisOf(step, place)] = index;
  show();
}

/** Draw every matrix again, of another head or in other colors. */
function redraw() {
  for (const table of all("table")) table.replaceWith(tableOf(steps[table.dataset.step], table.closest(".row") !== null));
  all(".heads button").forEach((button, head) => button.setAttribute("aria-pressed", head === state.head));
  one(".scale").style.background = `linear-gradient(90deg, ${token("ramp").split(/\s+/)})`;
  show();
}

/** Name the step at the left edge of the row, where not all of them fit. */
function nameStep() {
  const edge = one(".words").getBoundingClientRect().right, far = all(".station").map((each) => Math.abs(each.getBoundingClientRect().left - edge));
  all(".steps a").forEach((link, index) => link.setAttribute("aria-current", index === far.indexOf(Math.min(...far)) ? "step" : "false"));
  one(".steps").hidden = one(".row").scrollWidth <= one(".row").clientWidth;
}

function details(summary, names) {
  const figures = names.map((name) => element("figure", {}, element("p", {}, ...tinted(steps[name].equation)),
    element("p", { class: "small" }, `${steps[name].meaning} ${steps[name].axes} = (${steps[name].shape.join(", ")})`), tableOf(steps[name], false)));
  return names.length ? [element("details", {}, element("summary", {}, summary), element("div", {}, ...figures))] : [];
}

function draw() {
  const [kind, ...text] = WALK.title.split(": "), [about, ...notes] = WALK.parts.split("\n");
  const parameters = order.filter((name) => steps[name].axes.startsWith("(rows")), heads = steps.weights.heads.map((_, head) => element("button", {}, `head ${head}`));
  const marks = ["q query ■", "k key ◆", "v value ●"].map((mark) => element("span", { class: mark.split(" ")[1] }, mark));
  const [low, high] = scale.multiples ? ["1 × uniform", "8 × uniform and more"] : scale.ends;
  const legend = element("span", { class: "weight" }, `α weight, ${low}`, element("span", { class: "scale" }), high);
  const stations = row.map((name) => element("section", { class: "station", id: `step-${name}`, "aria-label": nameOf(steps[name]) },
    element("h2", {}, ...tinted(nameOf(steps[name]))), element("p", { class: "small" }, ...tinted(steps[name].equation)), tableOf(steps[name], true)));
  const words = element("div", {}, ...queries.map((query) => element("button", { dir: "auto", title: query }, query)));
  MAIN.append(element("h1", { dir: "auto" }, text.join(": ")), element("p", { id: "lead" }), ...notes.map((note) => element("p", { class: "small" }, note)),
    element("p", { class: "legend small" }, ...marks, legend), element("div", { class: "heads" }, ...(heads.length > 1 ? heads : [])),
    element("ol", { class: "steps" }, ...row.map((name) => element("li", {}, element("a", { href: `#step-${name}` }, ...tinted(nameOf(steps[name])))))),
    element("div", { class: "row" }, element("div", { class: "words", role: "group", "aria-label": "queries" }, words), ...stations), element("output", { id: "sum" }),
    ...details("Where do Q, K, V come from?", [...order.slice(0, first - 3), ...parameters, "Q", "K", "V"]),
    ...details("How are scores computed?", order.slice(first, last).filter((name) => !row.includes(name))),
    ...details("What follows the output?", order.slice(last + 1).filter((name) => !parameters.includes(name))),
    element("details", {}, element("summary", {}, "What kind of numbers are these?"), element("p", { class: "small" }, `${kind}. ${about}`)));
  const longest = Math.max(...keys.map((key) => key.length));
  MAIN.classList.toggle("tall", longest > 4);
  MAIN.style.setProperty("--words", `${one(".words").offsetWidth + 8}px`);
  MAIN.style.setProperty("--head", longest > 4 ? `${Math.min(16 + 9 * longest, 112)}px` : "32px");
}

/** The cell or word beside another by an arrow key; to the side of a matrix, that of the next step. */
function beside(target, key) {
  const by = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 }[key], isSide = key === "ArrowLeft" || key === "ArrowRight";
  const within = isSide ? `tr:nth-child(${target.parentNode.sectionRowIndex + 1}) > [data-column]` : target.matches("td") ? `[data-column="${target.dataset.column}"]` : "button";
  const cells = all(within, (isSide && target.closest(".row")) || target.closest("tbody, .words"));
  return by && cells[cells.indexOf(target) + by];
}

draw();
const chosen = valuesOf(steps.weights)[state.query];
choose(all("tbody tr")[state.query].querySelectorAll("[data-column]")[chosen.indexOf(Math.max(...chosen))]);
redraw();
nameStep();
onScheme(redraw);
window.addEventListener("resize", nameStep);
one(".row").addEventListener("scroll", nameStep);
const CHOICES = "[data-column], .words button";
for (const type of ["pointerover", "focusin"]) MAIN.addEventListener(type, ({ target, pointerType }) => {
  if (target.matches(CHOICES) && !state.kept && pointerType !== "touch") choose(target);
});
MAIN.addEventListener("click", ({ target }) => {
  if (target.matches(CHOICES)) choose(target, target.matches("td"));
  if (!target.matches(".heads button")) return;
  state.head = all(".heads button").indexOf(target);
  redraw();
});
MAIN.addEventListener("keydown", (event) => {
  if (event.target.matches("td") && event.key === "Enter") choose(event.target, true);
  const next = event.target.matches(CHOICES) && beside(event.target, event.key);
  if (!next) return;
  event.preventDefault();
  next.focus();
});
