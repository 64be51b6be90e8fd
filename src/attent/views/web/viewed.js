// The view of a scene that the server has; a new scene is seen as the one before was.

import { element } from "./elements.js";
import { ServerSource } from "./server_source.js";
import { show } from "./view.js";
import { Zoom } from "./zoom.js";

export class Viewed {
  constructor(server, root) {
    this.server = server;
    this.root = root;
    this.state = null;
    this.maps = [];
  }

  /** Show a scene by its number; returns its source. */
  async open(number) {
    let source;
    try {
      source = await ServerSource.open(this.server, number);
    } catch (error) {
      this.root.replaceChildren(element("p", { class: "status wrong", role: "alert", text: error.message }));
      return null;
    }
    this.close();
    const before = this.state?.values;
    const maps = this.maps;
    // the map of any size, in the place of the one that is drawn whole
    const map = class extends Zoom {
      constructor(...given) {
        super(...given);
        maps.push(this);
      }
    };
    this.state = show(this.root, source, map);
    const group = before && source.scene.groups.find((one) => one.name === before.group);
    if (group) {
      const head = before.head === "mean" || before.head < group.heads ? before.head : 0;
      this.state.set({ group: group.name, layer: Math.min(before.layer, group.layers.length - 1), head });
    }
    return source;
  }

  close() {
    for (const map of this.maps.splice(0)) map.close();
  }
}
