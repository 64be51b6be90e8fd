// The view of a scene of a server, or of an engine in the page; a new scene is seen as the one before was.

import { isAddressed, readAddress } from "./address.js";
import { element } from "./elements.js";
import { show } from "./view.js";

// Weights of a head of which the mean is not shown unasked.
const LARGE = 2 ** 24;

export class Viewed {
  /** `which` is its number among the views of the page; of a run that can be asked again, `switches` are its heads. */
  constructor(server, root, which = 0, switches = null, isTold = undefined) {
    this.server = server;
    this.root = root;
    this.which = which;
    this.switches = switches;
    // whether the page shows both texts of a group elsewhere
    this.isTold = isTold;
    this.state = null;
    // what the view that is shown draws from
    this.source = null;
    this.turn = 0;
    this.ending = new AbortController();
  }

  /** Show a scene by its number, unless another is asked for before it is there; what is selected stays if the same text is asked again. */
  async open(number, isAgain = false) {
    const turn = ++this.turn;
    let source;
    try {
      source = await this.server.open(number);
    } catch (error) {
      if (turn !== this.turn) return;
      this.close();
      this.root.replaceChildren(element("p", { class: "status wrong", role: "alert", text: error.message }));
      return;
    }
    if (turn !== this.turn) return;
    const held = isAgain ? this.held(source.scene) : {};
    this.close();
    this.ending = new AbortController();
    Object.assign(source, { switches: this.switches, isTold: this.isTold });
    // who switches heads by the keyboard goes on where it was
    const focused = ["button.switch", ".head"].map((kind) => [kind, [...this.root.querySelectorAll(kind)].indexOf(document.activeElement)]).find(([, place]) => place >= 0);
    const { groups } = source.scene;
    // once: what is chosen later goes on by itself, and a group that the address names may come with the next scene
    const asked = this.hasRead ? {} : readAddress(source, this.which);
    this.hasRead ||= Object.keys(asked).length > 0 || !isAddressed(this.which);
    this.state = show(this.root, source, { ...begin(groups, this.state?.values), ...held, ...asked }, this.ending.signal, this.which);
    this.source = source;
    this.root.dataset.title = source.scene.title;
    if (focused) this.root.querySelectorAll(focused[0])[focused[1]]?.focus({ preventScroll: true });
  }

  /** What is selected in the view that is shown, if a scene has it: the same places with the same tokens, of texts that are not shown elsewhere. */
  held(scene) {
    if (!this.source) return {};
    const { group, side, place, places, cell } = this.state.values;
    const [before, now] = [this.source.scene, scene].map(({ groups, texts }) => {
      const found = groups.find(({ name }) => name === group);
      return found && { group: found, labels: texts[found[side === "column" ? "columns" : "rows"]].labels };
    });
    const isThere = side !== null && now && !this.isTold?.(now.group) && [place, ...places].every((one) => one < now.labels.length && now.labels[one] === before.labels[one]);
    return isThere ? { side, place, places, cell } : {};
  }

  /** Show nothing; what was chosen is kept for the next. */
  clear() {
    this.turn += 1;
    this.close();
    this.root.replaceChildren();
  }

  /** Let the view that is shown hear and ask for nothing any more. */
  close() {
    this.ending.abort();
    this.source = null;
  }
}

/** What is seen first: what was seen before, if it is there; of large maps one head, since the mean takes as long as all of them. */
function begin(groups, before) {
  const [base] = before?.group.split(".") ?? [];
  const group = groups.find((one) => one.name === before?.group) ?? groups.find((one) => one.name === base) ?? groups[0];
  const how = before ? { combine: before.combine } : {};
  if (group.base !== base) return group.height * group.width > LARGE ? { head: 0, ...how } : how;
  const head = before.head === "mean" || before.head < group.heads ? before.head : 0;
  return { group: group.name, layer: Math.min(before.layer, group.layers.length - 1), head, ...how };
}
