// A view of attention from any source: both texts with links, then the matrix beside its heads, then everything else under "More".

import { remember } from "./address.js";
import { choice, element } from "./elements.js";
import { Grid } from "./grid.js";
import { Lines } from "./lines.js";
import { Picture } from "./picture.js";
import { State } from "./state.js";
import { Zoom } from "./zoom.js";

// What can be shown of each pair, and what it is.
const MEASURES = [["weights", "weights"], ["norms", "norms"], ["gradients", "gradient × weights"]];
const MEANING = {
  scores: "A number is the score itself, no weight; dark is large, with either sign. ",
  norms: "A number is the length of what a token adds to the row's output: its weight times its projected value. ",
  gradients: "A number is a weight times the gradient of the model's output by it: what the output loses, to first order, without it; dark is large, with either sign. ",
};
const MEMORY = "attent measure";

/**
 * Put a view into an element; returns the state that all its parts share. It may begin with another group, layer and head. With a signal it hears the page no longer: whoever puts another into its place sends that. `which` is its
 * number among those of the page, by which the address knows it.
 */
export function show(root, source, begin = {}, signal = undefined, which = 0) {
  const { scene } = source;
  const first = measured(scene, scene.groups[0].base, remembered());
  const state = new State({ group: first.name, layer: first.layers.length - 1, head: first.heads > 1 ? "mean" : 0, ...begin });
  const groups = element("div", { class: "groups", role: "group", "aria-label": "attention" });
  const measures = element("div", { class: "options" });
  const about = element("p", { class: "about" });
  const notes = element("ul", { class: "notes" }, ...scene.notes.map((note) => element("li", { text: note })));
  const [lines, map, grid] = [new Lines(source, state), new Zoom(source, state, signal), new Grid(source, state, signal)];
  const isOpen = Boolean(root.querySelector("details.further[open]"));
  const further = element("details", { class: "further", open: isOpen }, element("summary", { text: "More: numbers, files, statistics" }),
    measures, lines.further, map.further, grid.further, about, notes);
  const picture = scene.picture ? [new Picture(source, state).node] : [];
  const sentence = element("div", { class: "sentence" });
  const pair = element("div", { class: "pair" }, map.node, grid.node);
  root.replaceChildren(...picture, sentence, groups, pair, ...(source.below?.(state) ?? []), further);
  // no token is pointed at any more
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") state.set({ side: null, place: null }); }, { signal });
  state.follow((values, changed) => {
    if (!["group", "layer", "head"].some((name) => changed.has(name))) return;
    const group = scene.groups.find((one) => one.name === values.group);
    if (changed.has("group")) {
      // patches are named by the picture, and a run that writes shows its texts itself
      const isPatches = scene.picture && group.rows === scene.picture.text;
      if (isPatches || source.isTold?.(group)) further.insertBefore(lines.node, measures);
      else sentence.replaceChildren(lines.node);
      lines.node.classList.toggle("pictured", Boolean(scene.picture) && !isPatches);
      offerGroups(groups, scene, group, state);
      offerMeasures(measures, scene, group, state);
      pair.classList.toggle("single", group.layers.length * group.heads === 1);
    }
    about.textContent = told(group, values.layer);
  });
  remember(state, source, which, signal);
  return state;
}

/** A button for each attention, such as that of the encoder; none where there is one alone. */
function offerGroups(box, scene, group, state) {
  const bases = scene.groups.filter((one) => one.name === one.base);
  const isFocused = box.contains(document.activeElement);
  box.hidden = bases.length < 2;
  box.replaceChildren(...bases.map((one) => element("button", {
    type: "button", text: one.title, value: one.name, "aria-pressed": String(one.name === group.base),
    on: {
      click: () => {
        const shown = scene.groups.find((other) => other.name === state.values.group);
        const next = measured(scene, one.name, remembered(shown.measure));
        state.set({
          group: next.name, side: null, place: null, cell: null,
          layer: Math.min(state.values.layer, next.layers.length - 1),
          head: state.values.head === "mean" ? (next.heads > 1 ? "mean" : 0) : Math.min(state.values.head, next.heads - 1),
        });
      },
    },
  })));
  if (isFocused) box.querySelector("[aria-pressed='true']").focus();
}

function offerMeasures(box, scene, group, state) {
  const offered = MEASURES.filter(([name]) => scene.groups.some((one) => one.base === group.base && one.measure === name));
  const isFocused = box.contains(document.activeElement);
  const measures = choice("numbers", offered, group.measure, (name) => {
    keep(name);
    state.set({ group: measured(scene, group.base, name).name });
  });
  box.replaceChildren(...(offered.length > 1 ? [measures] : []));
  if (isFocused) box.querySelector("select")?.focus();
}

/** What a row is about, and what was pooled or rounded. */
function told(group, layer) {
  const sums = group.distribution ? "each row sums to 1" : "rows do not sum to 1";
  const size = `${group.layers.length} × ${group.heads} maps (layers × heads) of ${group.height} × ${group.width}`;
  const note = group.note ? ` ${group.note}` : "";
  // a module that was watched itself has no path
  const path = group.layers[layer] && `; module ${group.layers[layer]}`;
  return `A row is from ${group.about}, a column to a token; ${sums}. ${MEANING[group.measure] ?? ""}${size}${path}.${note}`;
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
