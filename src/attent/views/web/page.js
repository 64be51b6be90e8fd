// A page that has all its numbers inside.

import { readAddress } from "./address.js";
import { EmbeddedSource } from "./embedded_source.js";
import { HeatMap } from "./heat_map.js";
import { show } from "./view.js";

export function start(root) {
  const source = new EmbeddedSource();
  show(root, source, HeatMap, readAddress(source));
}
