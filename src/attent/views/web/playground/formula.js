// The formula of a score as a tree, by recursive descent. Nothing of it is ever run as a program.
//
//   sum = term {("+" | "-") term}     term = factor {("·" | "*" | "/") factor}     factor = "-" factor | matrix factor | atom ["^" factor]
//   atom = number | name | function "(" sum ")" | "√" atom | "(" sum ")" | "|" sum "|"
//
// Each node has a type, "number", "vector" or "matrix", and `of`: what it depends on, "" for constants, "one" for what is learned, "q", "k" or
// "pair" for what differs between queries, keys or both. · and * are the same: the dot product of two vectors, or a product with a number.

export const LONGEST = 200;
const DEEPEST = 24;
const NAMES = { q: ["vector", "q"], k: ["vector", "k"], v: ["vector", "one"], W: ["matrix", "one"], W1: ["matrix", "one"], W2: ["matrix", "one"], d: ["number", ""] };
const KNOWN = "q, k, v, W, W1, W2, d, sqrt, exp, tanh and abs";
export const FUNCTIONS = ["sqrt", "exp", "tanh", "abs"];
const TOKEN = /\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|([A-Za-z_]\w*)|(.))/suy;

/** What is wrong with a formula, in one line; `position` counts characters from 1. */
export class FormulaError extends Error {
  constructor(message, position) {
    super(`${message} (character ${position})`);
    this.position = position;
  }
}

/** The tree of a formula, whose value is the score, a number. */
export function parse(text) {
  if (text.length > LONGEST) throw new FormulaError(`a formula has at most ${LONGEST} characters, this one ${text.length}`, LONGEST + 1);
  const parser = new Parser(tokens(text));
  const tree = parser.sum(0);
  const { text: rest, position } = parser.next;
  if (rest) throw new FormulaError(`expected an operator or the end, got “${rest}”`, position);
  if (tree.type !== "number") throw new FormulaError(`the score must be a number, but this is a ${tree.type}; a·b makes one of two vectors, |a| of one`, 1);
  return tree;
}

function tokens(text) {
  const found = [];
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(text); match; match = TOKEN.exec(text)) {
    const [, number, name, sign] = match;
    if (sign && /\s/u.test(sign)) break;
    const written = number ?? (name === "D" ? "d" : name) ?? ({ "−": "-", "⋅": "·", "∗": "*", "×": "*", ".": "·", "‖": "|" }[sign] ?? sign);
    found.push({ text: written, kind: number ? "number" : name ? "name" : "sign", position: TOKEN.lastIndex - (number ?? name ?? sign).length + 1 });
  }
  return [...found, { text: "", kind: "end", position: text.length + 1 }];
}

class Parser {
  constructor(list) {
    this.list = list;
    this.at = 0;
  }

  get next() {
    return this.list[this.at];
  }

  /** The next token if it is one of these signs, which is then read. */
  take(...signs) {
    return this.next.kind === "sign" && signs.includes(this.next.text) ? this.list[this.at++] : null;
  }

  expect(sign) {
    if (!this.take(sign)) throw new FormulaError(`expected “${sign}”, got ${this.next.text ? `“${this.next.text}”` : "the end"}`, this.next.position);
  }

  sum(depth) {
    let left = this.term(depth);
    for (let sign = this.take("+", "-"); sign; sign = this.take("+", "-")) {
      const right = this.term(depth);
      if (left.type !== right.type) throw new FormulaError(`a ${left.type} and a ${right.type} cannot be ${sign.text === "+" ? "added" : "subtracted"}`, sign.position);
      left = { kind: sign.text, type: left.type, of: both(left.of, right.of), parts: [left, right] };
    }
    return left;
  }

  term(depth) {
    let left = this.factor(depth);
    for (let sign = this.take("·", "*", "/"); sign; sign = this.take("·", "*", "/")) {
      const right = this.factor(depth);
      const types = [left.type, right.type];
      if (types.includes("matrix")) throw new FormulaError("a matrix stands before a vector, as in W k", sign.position);
      if (sign.text === "/" && right.type === "vector") throw new FormulaError("a vector cannot be divided by", sign.position);
      const isDot = sign.text !== "/" && left.type === "vector" && right.type === "vector";
      left = { kind: isDot ? "dot" : sign.text === "/" ? "/" : "*", type: isDot || !types.includes("vector") ? "number" : "vector", of: both(left.of, right.of), parts: [left, right] };
    }
    return left;
  }

  factor(depth) {
    const { position } = this.next;
    if (depth > DEEPEST) throw new FormulaError(`a formula is nested at most ${DEEPEST} deep`, position);
    if (this.take("-")) {
      const part = this.factor(depth + 1);
      if (part.type === "matrix") throw new FormulaError("a matrix stands before a vector, as in W k", position);
      return { kind: "negative", type: part.type, of: part.of, parts: [part] };
    }
    const atom = this.atom(depth + 1);
    if (atom.type === "matrix") {
      const part = this.next.kind === "name" || ["(", "|"].includes(this.next.text) ? this.factor(depth + 1) : null;
      if (part?.type !== "vector") throw new FormulaError(`expected a vector after ${atom.name}, as in ${atom.name} k`, position + atom.name.length);
      return { kind: "matrix", type: "vector", of: both("one", part.of), parts: [atom, part] };
    }
    const sign = this.take("^");
    if (!sign) return atom;
    const exponent = this.factor(depth + 1);
    if (atom.type !== "number") throw new FormulaError("only a number has powers, such as |x|^2", sign.position);
    if (exponent.type !== "number" || exponent.of) throw new FormulaError("the exponent must be a constant", sign.position);
    return { kind: "^", type: "number", of: atom.of, parts: [atom, exponent] };
  }

  atom(depth) {
    const { text, kind, position } = this.list[this.at++];
    if (kind === "number") {
      const value = Number(text);
      if (!(value <= 1e6)) throw new FormulaError("a number is at most 1000000", position);
      return { kind: "number", type: "number", of: "", value };
    }
    if (kind === "name" && FUNCTIONS.includes(text)) {
      this.expect("(");
      const part = this.sum(depth);
      this.expect(")");
      return { kind: text, type: part.type, of: part.of, parts: [part] };
    }
    if (kind === "name" && Object.hasOwn(NAMES, text)) return { kind: "name", name: text, type: NAMES[text][0], of: NAMES[text][1] };
    if (kind === "name") throw new FormulaError(`“${text}” is not known; known are ${KNOWN}`, position);
    if (text === "√") {
      const part = this.atom(depth);
      return { kind: "sqrt", type: part.type, of: part.of, parts: [part] };
    }
    if (text === "(" || text === "|") {
      const part = this.sum(depth);
      this.expect(text === "(" ? ")" : "|");
      return text === "(" ? part : { kind: part.type === "number" ? "abs" : "norm", type: "number", of: part.of, parts: [part] };
    }
    this.at -= 1;
    throw new FormulaError(`expected a number, a name or “(”, got ${text ? `“${text}”` : "the end"}`, position);
  }
}

function both(one, other) {
  if (one === other || !other || (other === "one" && one)) return one;
  return !one || one === "one" ? other : "pair";
}

/** The names of a tree that are learned, in the order of NAMES. */
export function learned(tree) {
  const names = new Set();
  const visit = (node) => {
    if (node.name) names.add(node.name);
    node.parts?.forEach(visit);
  };
  visit(tree);
  return ["v", "W", "W1", "W2"].filter((name) => names.has(name));
}
