// What an experiment is, and how it is written behind # in the address: whoever opens the link gets the same one.
import { FormulaError, parse } from "./formula.js";

/** The choices with their names on the page; the first is the default. */
export const CHOICES = {
  normalizer: [["softmax", "softmax"], ["sparsemax", "sparsemax"], ["entmax15", "entmax, α = 1.5"], ["sigmoid", "sigmoid"], ["top_k", "top 2"], ["hard", "hard: only the largest"]],
  mask: [["none", "none"], ["causal", "causal: no later places"], ["window", "window: at most 2 places away"]],
};
export const EXAMPLES = ["q·k / sqrt(d)", "q·W k", "v·tanh(W1 q + W2 k)", "-|q-k|^2", "8·q·k / (|q|·|k|)", "0"];
// Each switch by its name in the address, with the value that turns it.
const SWITCHES = { positions: ["off", false], fixed: ["on", true], identity: ["on", true] };
/** The most characters of a text. */
export const LONGEST_TEXT = 200;
const LONGEST_ADDRESS = 2000;
export const DEFAULTS = { formula: EXAMPLES[0], normalizer: "softmax", mask: "none", positions: true, fixed: false, identity: false, seed: 0, text: "the black dog sings" };

/** The settings that an address holds, and a line about what is wrong with it; what is wrong, or absent, is as in DEFAULTS. */
export function readSettings(hash) {
  const settings = { ...DEFAULTS };
  if (hash.length > LONGEST_ADDRESS) return { settings, wrong: "The address is too long, and was not read." };
  const parts = new URLSearchParams(hash.slice(1));
  const wrong = [];
  for (const [name, value] of parts) {
    if (name === "score") {
      try {
        parse(value);
        settings.formula = value;
      } catch (error) {
        if (!(error instanceof FormulaError)) throw error;
        wrong.push("score");
      }
    } else if (Object.hasOwn(CHOICES, name)) {
      if (CHOICES[name].some(([known]) => known === value)) settings[name] = value;
      else wrong.push(name);
    } else if (Object.hasOwn(SWITCHES, name)) {
      if (value === SWITCHES[name][0]) [, settings[name]] = SWITCHES[name];
      else wrong.push(name);
    } else if (name === "seed") {
      if (/^\d{1,6}$/.test(value)) settings.seed = Number(value);
      else wrong.push(name);
    } else if (name === "text") settings.text = value.slice(0, LONGEST_TEXT);
  }
  return { settings, wrong: wrong.length ? `The address has no valid ${wrong.slice(0, 5).join(", ")}; the usual one is used.` : "" };
}

/** The part of an address behind #, with what differs from DEFAULTS. */
export function addressOf(settings) {
  const parts = new URLSearchParams();
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    if (settings[name] === usual) continue;
    parts.set(name === "formula" ? "score" : name, SWITCHES[name]?.[0] ?? settings[name]);
  }
  return `#${parts}`;
}

