// A view of attention from any source: what is shown is chosen above, and every part follows.

import { choice, element } from "./elements.js";
import { Grid } from "./grid.js";
import { HeatMap } from "./heat_map.js";
import { Lines } from "./lines.js";
import { Picture } from "./picture.js";
import { State } from "./state.js";

/**
 * Put a view into an element; returns the state that all its parts share. Another component may draw its map, and it may begin with
 * another group, layer and head. With a signal it hears the page no longer: whoever puts another into its place sends that.
 */
export function show(root, source, Map = HeatMap, begin = {}, signal = undefined) {
  const { scene } = source;
  const first = scene.groups[0];
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
  return state;
}

function offer(choices, scene, group, state) {
  const { layer, head } = state.values;
  const groups = choice("attention", scene.groups.map((one) => [one.name, one.title]), group.name, (name) => {
    const next = scene.groups.find((one) => one.name === name);
    state.set({
      group: name, side: null, place: null,
      layer: Math.min(state.values.layer, next.layers.length - 1),
      head: state.values.head === "mean" ? (next.heads > 1 ? "mean" : 0) : Math.min(state.values.head, next.heads - 1),
    });
  });
  const layers = choice("layer", group.layers.map((_, place) => [place, String(place)]), layer, (place) => state.set({ layer: place }));
  const names = [...Array(group.heads).keys()].map((place) => [place, String(place)]);
  const heads = choice("head", group.heads > 1 ? [["mean", "mean"], ...names] : names, head, (place) => state.set({ head: place }));
  const focused = [...choices.children].findIndex((child) => child.contains(document.activeElement));
  choices.replaceChildren(groups, layers, heads);
  if (focused >= 0) choices.children[focused].querySelector("select").focus();
}

/** What a row is about, and what was pooled or rounded. */
function told(group, layer) {
  const sums = group.distribution ? "each row sums to 1" : "rows do not sum to 1";
  const size = `${group.layers.length} × ${group.heads} maps (layers × heads) of ${group.height} × ${group.width}`;
  const note = group.note ? ` ${group.note}` : "";
  // a module that was watched itself has no path
  const path = group.layers[layer] && `; module ${group.layers[layer]}`;
  return `A row is about ${group.about}, a column about a token that is looked at; ${sums}. ${size}${path}.${note}`;
}
