// A page that has all its numbers inside.

import { EmbeddedSource } from "./embedded_source.js";
import { show } from "./view.js";

export function start(root) {
  show(root, new EmbeddedSource());
}
