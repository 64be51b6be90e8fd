// The loss by updates as a curve, with that of the experiment before as a ghost.
import { drawn } from "../elements.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [320, 160, 28, 24];

export class Curve {
  constructor(highest, last) {
    [this.highest, this.last] = [highest, last];
    this.ghost = drawn("polyline", { class: "ghost" });
    this.line = drawn("polyline", { class: "loss" });
    const mark = (x, y, text, anchor) => drawn("text", { x, y, "text-anchor": anchor, text });
    this.ends = [mark(WIDTH - 4, HEIGHT - 6, "", "end"), mark(LEFT - 6, 14, highest.toFixed(1), "end"), mark(LEFT - 6, HEIGHT - BOTTOM, "0", "end"), mark(LEFT, HEIGHT - 6, "updates", "start")];
    this.node = drawn("svg", { class: "curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "loss by updates" },
      drawn("path", { class: "axes", d: `M${LEFT} 4V${HEIGHT - BOTTOM}H${WIDTH - 4}` }), ...this.ends, this.ghost, this.line);
    this.clear();
  }

  /** Begin a new curve; the former one stays as a ghost if it is long enough to be compared. */
  clear() {
    if (this.losses?.length > 20) this.former = this.losses;
    this.losses = [];
    this.draw();
  }

  add(losses) {
    for (const loss of losses) this.losses.push(this.losses.length ? 0.9 * this.losses.at(-1) + 0.1 * loss : loss);
    if (losses.length) this.draw();
  }

  draw() {
    const last = Math.max(this.last, this.losses.length, this.former?.length ?? 0);
    const points = (losses) => losses.map((loss, place) => {
      const [x, y] = [(place + 1) / last, Math.min(loss / this.highest, 1)];
      return `${(LEFT + x * (WIDTH - 4 - LEFT)).toFixed(1)},${(HEIGHT - BOTTOM - y * (HEIGHT - BOTTOM - 4)).toFixed(1)}`;
    }).join(" ");
    this.line.setAttribute("points", points(this.losses));
    this.ghost.setAttribute("points", points(this.former ?? []));
    this.ends[0].textContent = String(last);
    if (this.losses.length) this.node.setAttribute("aria-label", `loss by updates: ${this.losses.at(-1).toFixed(2)} nats per word after ${this.losses.length}`);
  }
}
