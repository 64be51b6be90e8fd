// The tiles of one head that a zoomable map has loaded, asks for, and shows in the place of those that are on their way.

export const SIDE = 256;
const KEPT = 96;
const AT_ONCE = 4;
// Milliseconds until a tile that did not come is asked for again: twice as many each time, up to the second number.
const [REST, LONGEST] = [3000, 30_000];

export class Pyramid {
  // load(level, y, x, signal) promises {height, width, values, exact, note}; changed() is called when there is something new to draw.
  constructor(height, width, load, changed) {
    this.height = height;
    this.width = width;
    this.load = load;
    this.changed = changed;
    this.tiles = new Map();
    this.running = new Map();
    this.failed = new Map();
    this.wanted = [];
    this.timer = 0;
    const parts = Math.ceil(Math.max(height, width) / SIDE);
    this.top = parts > 1 ? Math.ceil(Math.log2(parts)) : 0;
  }

  // The tile, if it is there.
  get(level, y, x) {
    const key = `${level}/${y}/${x}`;
    const tile = this.tiles.get(key);
    if (tile) {
      this.tiles.delete(key);
      this.tiles.set(key, tile);
    }
    return tile;
  }

  // A loaded tile of a higher level that covers this one, with its level.
  above(level, y, x) {
    for (let up = level + 1; up <= this.top; up += 1) {
      const tile = this.get(up, y >> (up - level), x >> (up - level));
      if (tile) return { tile, level: up, y: y >> (up - level), x: x >> (up - level) };
    }
    return null;
  }

  // Ask for these tiles [level, y, x], the first first; what was asked for before and is none of them is not waited for.
  want(places) {
    const keys = new Set(places.map((place) => place.join("/")));
    for (const [key, request] of this.running) {
      if (!keys.has(key)) request.abort();
    }
    this.wanted = places.filter((place) => !this.tiles.has(place.join("/")));
    this.next();
  }

  // Whether all that was wanted is there.
  get complete() {
    return this.wanted.every((place) => this.tiles.has(place.join("/")));
  }

  // Why a tile that is wanted did not come; nothing where all came, or are on their way for the first time.
  get error() {
    return this.wanted.map((place) => this.failed.get(place.join("/"))).find(Boolean)?.reason ?? "";
  }

  close() {
    this.want([]);
    clearTimeout(this.timer);
    this.changed = () => {};
  }

  next() {
    clearTimeout(this.timer);
    let soonest = Infinity;
    for (const place of this.wanted) {
      if (this.running.size >= AT_ONCE) return;
      const key = place.join("/");
      if (this.running.has(key) || this.tiles.has(key)) continue;
      const rest = this.rest(key);
      if (rest > 0) soonest = Math.min(soonest, rest);
      else this.ask(key, place);
    }
    if (soonest < Infinity) this.timer = setTimeout(() => this.next(), soonest + 10);
  }

  // Milliseconds until a tile may be asked for again: the server is given time to come back.
  rest(key) {
    return (this.failed.get(key)?.until ?? -Infinity) - performance.now();
  }

  async ask(key, place) {
    const request = new AbortController();
    this.running.set(key, request);
    try {
      const tile = await this.load(...place, request.signal);
      this.keep(key, tile);
      this.failed.delete(key);
    } catch (error) {
      if (!request.signal.aborted) this.fail(key, error);
    }
    this.running.delete(key);
    this.changed();
    this.next();
  }

  // What fails is drawn too, and every drawing asks for what it wants: without a rest the two would go round.
  fail(key, error) {
    const rest = Math.min(2 * (this.failed.get(key)?.rest ?? REST / 2), LONGEST);
    this.failed.set(key, { reason: error.message, rest, until: performance.now() + rest });
  }

  keep(key, tile) {
    this.tiles.delete(key);
    this.tiles.set(key, tile);
    while (this.tiles.size > KEPT) this.tiles.delete(this.tiles.keys().next().value);
  }
}
