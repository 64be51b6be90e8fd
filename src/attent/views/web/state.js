// What is looked at, which all parts of a view share: group, layer, head, and a row or a column of the map.

export class State {
  /** `values`: group (its name), layer, head (a number or "mean"), side ("row", "column" or null) and place. */
  constructor(values) {
    this.values = { side: null, place: null, ...values };
    this.listeners = new Set();
  }

  /** Change some values and tell those who listen which. */
  set(changes) {
    const changed = Object.keys(changes).filter((name) => this.values[name] !== changes[name]);
    if (!changed.length) return;
    Object.assign(this.values, changes);
    for (const listener of [...this.listeners]) listener(this.values, new Set(changed));
  }

  /** Be told of changes, and once at the start. Returns what ends it. */
  follow(listener) {
    this.listeners.add(listener);
    listener(this.values, new Set(Object.keys(this.values)));
    return () => this.listeners.delete(listener);
  }
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
