// What of the formula is changed for every attention of the model: the scores' temperature, the normalizer, and which words may be read.

import { choice, element } from "../elements.js";

// The temperature is 2 to the slider's power of a quarter.
const [STEPS, EACH] = [12, 4];
const NAMES = { none: "everything", causal: "nothing later", window: "its neighbors" };
const NORMALIZERS = { top_k: "softmax of the 2 largest", hard: "largest alone", identity: "scores themselves" };

/** A row of controls that writes into `options` and calls `change` after each change. */
export function controls(engine, options, change) {
  const output = element("output", { text: "1" });
  const slider = element("input", {
    type: "range", min: -STEPS, max: STEPS, step: 1, value: 0, "aria-label": "temperature of the scores",
    on: { input: () => { options.temperature = 2 ** (slider.value / EACH); changed(); } },
  });
  const normalizer = choice("weights are the", engine.normalizers.map((name) => [name, NORMALIZERS[name] ?? name]), engine.normalizer, (name) => { options.normalizer = name; changed(); });
  const mask = choice("in self-attention, each reads", engine.masks.map((name) => [name, NAMES[name] ?? name]), "none", (name) => { options.mask = name === "none" ? null : name; changed(); });
  const reset = element("button", { type: "button", text: "as trained", hidden: true, on: { click: () => {
    for (const name of Object.keys(options)) delete options[name];
    slider.value = 0;
    for (const [label, chosen] of [[normalizer, engine.normalizers.indexOf(engine.normalizer)], [mask, 0]]) label.querySelector("select").selectedIndex = chosen;
    slider.focus();
    changed();
  } } });
  const changed = () => {
    const isChanged = (options.temperature ?? 1) !== 1 || (options.normalizer ?? engine.normalizer) !== engine.normalizer || Boolean(options.mask);
    const temperature = (options.temperature ?? 1).toFixed(2).replace(/\.?0+$/, "");
    output.textContent = temperature;
    slider.setAttribute("aria-valuetext", temperature);
    reset.hidden = !isChanged;
    node.classList.toggle("changed", isChanged);
    change();
  };
  const temperature = element("label", { class: "choice" }, element("span", { text: "of scores divided by the temperature" }), slider, output);
  const node = element("div", { class: "formula", role: "group", "aria-label": "the formula of every attention" }, element("h3", { text: "Change the formula of every attention" }), normalizer, temperature, ...(engine.groups.some(({ itself }) => itself) ? [mask] : []), reset);
  return node;
}
