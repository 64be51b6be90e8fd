// Weights seen at another temperature, or only the largest of each row: what is shown is changed, and never the model.

import { TEMPERATURES } from "./address.js";
import { element } from "./elements.js";

export function adjustment(scene, state) {
  const [least, most] = TEMPERATURES;
  const temperature = field("temperature of what is shown", { min: least, max: most, step: 0.05 }, (value) => state.set({ temperature: value }), 1);
  const top = field("largest of each row (0: all)", { min: 0, step: 1 }, (value) => state.set({ top: Math.round(value) }), 0);
  const said = element("p", { class: "about", role: "status" });
  const node = element("div", { class: "adjustment" }, element("div", { class: "choices" }, temperature.node, top.node), said);
  state.follow(({ group, temperature: now, top: largest }) => {
    const { distribution, width } = scene.groups.find((one) => one.name === group);
    node.hidden = !distribution;
    // what sums to something else has no temperature
    if (!distribution && (now !== 1 || largest)) return state.set({ temperature: 1, top: 0 });
    top.box.max = width;
    [temperature.box.value, top.box.value] = [now, largest];
    const parts = [];
    if (now !== 1) parts.push(`each weight is raised to 1/${now}, and each row divided by its sum`);
    if (largest) parts.push(`of each row the ${largest === 1 ? "largest weight is" : `${largest} largest weights are`} kept, the others shown as 0`);
    said.textContent = parts.length ? `Shown otherwise than the model computed it: ${parts.join("; then ")}. The model and what it writes are not changed, and neither are the figures of heads.` : "";
  });
  return node;
}

function field(text, bounds, changed, usual) {
  const box = element("input", {
    type: "number", ...bounds, on: {
      change: () => {
        const value = box.value === "" ? usual : Number(box.value);
        const within = Math.min(Math.max(value, Number(box.min)), Number(box.max || Infinity));
        box.value = within;
        changed(within);
      },
    },
  });
  return { box, node: element("label", { class: "choice" }, element("span", { text }), box) };
}
