// What is looked at, which all parts of a view share: group, layer, head, and a row or a column of the map.

/** No token is selected. */
export const NONE = Object.freeze([]);

// What another map is looked at by.
const MAP = ["group", "layer", "head"];

export class State {
  /**
   * `values`: group (its name), layer, head (a number or "mean"), side ("row", "column" or null) and place; places, the tokens of that side
   * that are selected, combine ("sum" or "mean") of these, and cell, the row and column that were chosen in the matrix.
   */
  constructor(values) {
    this.values = { side: null, place: null, places: NONE, combine: "sum", cell: null, ...values };
    this.listeners = new Set();
  }

  /** Change some values and tell those who listen which; whatever else is looked at, no token is selected any more. */
  set(changes) {
    const whole = ("side" in changes || "place" in changes) && !("places" in changes) ? { ...changes, places: NONE } : changes;
    const changed = Object.keys(whole).filter((name) => this.values[name] !== whole[name]);
    if (!changed.length) return;
    Object.assign(this.values, whole);
    for (const listener of [...this.listeners]) listener(this.values, new Set(changed));
  }

  /** Be told of changes, and once at the start. Returns what ends it. */
  follow(listener) {
    this.listeners.add(listener);
    listener(this.values, new Set(Object.keys(this.values)));
    return () => this.listeners.delete(listener);
  }
}

/** Whether with what changed another map is looked at. */
export function isAnotherMap(changed) {
  return MAP.some((name) => changed.has(name));
}

/** What runs a task such that only the last call of several that overlap goes on, or tells `wrong` the error that it ended with. */
export function latest(wrong) {
  let turn = 0;
  return async (promise, then) => {
    const mine = ++turn;
    let found;
    try {
      found = await promise;
    } catch (error) {
      if (mine === turn) wrong(error);
      return;
    }
    if (mine === turn) then(found);
  };
}
