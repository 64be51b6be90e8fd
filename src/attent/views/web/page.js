// A page that has all its numbers inside.

import { readAddress } from "./address.js";
import { element, mark } from "./elements.js";
import { EmbeddedSource } from "./embedded_source.js";
import { show } from "./view.js";

export function start(root) {
  const source = new EmbeddedSource();
  const view = element("div");
  root.replaceChildren(element("header", { class: "top" }, mark(), element("h1", {}, element("bdi", { text: source.scene.title || "Attention" }))), view);
  show(view, source, readAddress(source));
}
