// A view of attention from any source: what is shown is chosen above, and every part follows.

import { remember } from "./address.js";
import { choice, element } from "./elements.js";
import { Grid } from "./grid.js";
import { HeatMap } from "./heat_map.js";
import { Lines } from "./lines.js";
import { Picture } from "./picture.js";
import { State } from "./state.js";

// What can be shown of each pair, and what it is.
const MEASURES = [["weights", "weights"], ["norms", "norms"], ["gradients", "gradient × weights"]];
const MEANING = {
  norms: "A number is the length of what a token adds to the row's output: its weight times its projected value. ",
  gradients: "A number is a weight times the gradient of the model's output by it: what the output loses, to first order, without it; dark is large, with either sign. ",
};
const MEMORY = "attent measure";

/**
 * Put a view into an element; returns the state that all its parts share. Another component may draw its map, and it may begin with
 * another group, layer and head. With a signal it hears the page no longer: whoever puts another into its place sends that. `which` is its
 * number among those of the page, by which the address knows it.
 */
export function show(root, source, Map = HeatMap, begin = {}, signal = undefined, which = 0) {
  const { scene } = source;
  const first = measured(scene, scene.groups[0].base, remembered());
  const state = new State({ group: first.name, layer: first.layers.length - 1, head: first.heads > 1 ? "mean" : 0, ...begin });
  const choices = element("div", { class: "choices" });
  const about = element("p", { class: "about" });
  const notes = element("ul", { class: "notes" }, ...scene.notes.map((note) => element("li", { text: note })));
  const header = element("header", {}, element("h1", {}, element("bdi", { text: scene.title || "Attention" })), choices, about, notes);
  const [lines, map, grid] = [new Lines(source, state).node, new Map(source, state, signal).node, new Grid(source, state, signal).node];
  const right = scene.picture ? [new Picture(source, state).node, map] : [map];
  root.replaceChildren(header, element("div", { class: "cards" }, element("div", {}, lines, grid), element("div", {}, ...right)));
  // no token is pointed at any more
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") state.set({ side: null, place: null }); }, { signal });
  state.follow((values, changed) => {
    if (!["group", "layer", "head"].some((name) => changed.has(name))) return;
    const group = scene.groups.find((one) => one.name === values.group);
    offer(choices, scene, group, state);
    about.textContent = told(group, values.layer);
  });
  remember(state, source, which, signal);
  return state;
}

function offer(choices, scene, group, state) {
  const { layer, head } = state.values;
  const bases = scene.groups.filter((one) => one.name === one.base);
  const groups = choice("attention", bases.map((one) => [one.name, one.title]), group.base, (name) => {
    const next = measured(scene, name, remembered(group.measure));
    state.set({
      group: next.name, side: null, place: null,
      layer: Math.min(state.values.layer, next.layers.length - 1),
      head: state.values.head === "mean" ? (next.heads > 1 ? "mean" : 0) : Math.min(state.values.head, next.heads - 1),
    });
  });
  const layers = choice("layer", group.layers.map((_, place) => [place, String(place)]), layer, (place) => state.set({ layer: place }));
  const names = [...Array(group.heads).keys()].map((place) => [place, String(place)]);
  const heads = choice("head", group.heads > 1 ? [["mean", "mean"], ...names] : names, head, (place) => state.set({ head: place }));
  const offered = MEASURES.filter(([name]) => scene.groups.some((one) => one.base === group.base && one.measure === name));
  const measures = choice("numbers", offered, group.measure, (name) => {
    keep(name);
    state.set({ group: measured(scene, group.base, name).name });
  });
  const focused = [...choices.children].findIndex((child) => child.contains(document.activeElement));
  choices.replaceChildren(groups, layers, heads, ...(offered.length > 1 ? [measures] : []));
  if (focused >= 0) choices.children[focused].querySelector("select").focus();
}

/** What a row is about, and what was pooled or rounded. */
function told(group, layer) {
  const sums = group.distribution ? "each row sums to 1" : "rows do not sum to 1";
  const size = `${group.layers.length} × ${group.heads} maps (layers × heads) of ${group.height} × ${group.width}`;
  const note = group.note ? ` ${group.note}` : "";
  // a module that was watched itself has no path
  const path = group.layers[layer] && `; module ${group.layers[layer]}`;
  return `A row is about ${group.about}, a column about a token that is looked at; ${sums}. ${MEANING[group.measure] ?? ""}${size}${path}.${note}`;
}

/** The group of an attention by a measure; its weights if that is not known. */
function measured(scene, base, measure) {
  const groups = scene.groups.filter((one) => one.base === base);
  return groups.find((one) => one.measure === measure) ?? groups[0];
}

/** The measure that was chosen on this page before; a page that may keep nothing begins with what is shown. */
function remembered(shown = "weights") {
  try {
    return sessionStorage.getItem(MEMORY) ?? shown;
  } catch {
    return shown;
  }
}

function keep(measure) {
  try {
    sessionStorage.setItem(MEMORY, measure);
  } catch {
    // a frame of a notebook has no storage
  }
}
