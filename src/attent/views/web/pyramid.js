// The tiles of one head that a zoomable map has loaded, asks for, and shows in the place of those that are on their way.

export const SIDE = 256;
const KEPT = 96;
const AT_ONCE = 4;
const AGAIN = 600; // milliseconds until a tile that is not exact yet is asked for again

export class Pyramid {
  // load(level, y, x, signal) promises {height, width, values, exact, note}; changed() is called when there is something new to draw.
  constructor(height, width, load, changed) {
    this.height = height;
    this.width = width;
    this.load = load;
    this.changed = changed;
    this.tiles = new Map();
    this.running = new Map();
    this.wanted = [];
    this.timer = 0;
    this.error = "";
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
    this.wanted = places.filter((place) => !this.tiles.get(place.join("/"))?.exact);
    this.next();
  }

  // Whether all that was wanted is there, exact or not.
  get complete() {
    return this.wanted.every((place) => this.tiles.has(place.join("/")));
  }

  close() {
    this.want([]);
    clearTimeout(this.timer);
    this.changed = () => {};
  }

  next() {
    clearTimeout(this.timer);
    const now = performance.now();
    let soonest = Infinity;
    for (const place of this.wanted) {
      if (this.running.size >= AT_ONCE) return;
      const key = place.join("/");
      const tile = this.tiles.get(key);
      if (this.running.has(key) || tile?.exact) continue;
      if (tile && now - tile.time < AGAIN) soonest = Math.min(soonest, AGAIN - (now - tile.time));
      else this.ask(key, place);
    }
    if (soonest < Infinity) this.timer = setTimeout(() => this.next(), soonest + 10);
  }

  async ask(key, place) {
    const request = new AbortController();
    this.running.set(key, request);
    try {
      const tile = await this.load(...place, request.signal);
      this.keep(key, { ...tile, time: performance.now() });
      this.error = "";
    } catch (error) {
      if (!request.signal.aborted) {
        this.error = error.message;
        this.wanted = [];
      }
    }
    this.running.delete(key);
    this.changed();
    this.next();
  }

  keep(key, tile) {
    this.tiles.delete(key);
    this.tiles.set(key, tile);
    while (this.tiles.size > KEPT) this.tiles.delete(this.tiles.keys().next().value);
  }
}
