// The tokens of a text that is read, in words: as a list, as whole words, beside their alternatives.

import { element, ordered } from "./elements.js";
import { bare, direction, visible } from "./words.js";

/** Fill a list with the first tokens of a text, marking unknown ones, and with how many more there are. */
export function listTokens(list, source, isUnknown, most) {
  const shown = source.slice(0, most);
  const unknown = { class: "unknown", title: "not known to this model" };
  list.replaceChildren(...shown.map((label, place) => element("li", isUnknown[place] ? unknown : {}, element("bdi", { text: visible(label) }))));
  ordered(list, shown, direction(source));
  const more = source.length - most;
  const rest = element("li", { class: "rest", dir: "ltr", text: `… and ${more.toLocaleString("en")} more` });
  rest.style.order = String(most);
  if (more > 0) list.append(rest);
}

/** A step whose pieces are whole words, without the space before each. */
export function withoutSpaces(step) {
  const without = (candidate) => ({ ...candidate, piece: bare(candidate.piece) });
  return { ...step, said: without(step.said), best: step.best.map(without) };
}

/** Texts with commas between them, each of which may run the other way. */
export function isolated(texts) {
  return texts.flatMap((text, place) => [...(place ? [", "] : []), element("bdi", { text })]);
}

/** A title above tokens and their chances. */
export function best(title, pairs) {
  const items = pairs.map(([name, chance]) => element("li", {}, element("bdi", { text: visible(name) }), element("span", { text: `${(100 * chance).toFixed(2)} %` })));
  return element("div", {}, element("h3", { text: title }), element("ol", {}, ...items));
}

/** How many heads are switched off, if any are. */
export function without({ length }) {
  return length ? ` (without ${length} ${length > 1 ? "heads" : "head"})` : "";
}
