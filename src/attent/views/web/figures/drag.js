// What is moved by hand: marks of a drawing that follow the pointer or the arrow keys.
import { drawn } from "../elements.js";

// radius of the area that takes hold of a mark, in pixels of the drawing
const HOLD = 20;
const SHAPES = { query: "M-10-10h20v20h-20z", key: "M0-11l11 11-11 11-11-11z", value: "M-9 0a9 9 0 1 0 18 0a9 9 0 1 0-18 0z" };

/** The mark of a role: q square, k diamond, v circle. */
export function markOf(role) {
  return drawn("path", { class: role, d: SHAPES[role] });
}

/**
 * A mark that is moved. `at` places a point of `board` in pixels, `from` finds the point of a pixel; `move(point)` is called with the new
 * point and returns the one that it takes; `grab` is called before. `step` is that of an arrow key, one for each axis, 0 where it does not move.
 */
export class Handle {
  constructor(board, role, { name, point, at, from, move, grab = () => {}, step }) {
    Object.assign(this, { name, at, mark: markOf(role) });
    this.node = drawn("g", { class: "handle", tabindex: 0, role: "application", "aria-roledescription": "movable by arrow keys" },
      drawn("circle", { r: HOLD, class: "hold" }), this.mark);
    const go = (to) => this.place(move(to));
    // the page does not scroll under a finger; touch-action has no effect on parts of a drawing
    this.node.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false });
    this.node.addEventListener("pointerdown", (event) => {
      grab();
      this.node.setPointerCapture(event.pointerId);
      event.preventDefault();
      this.node.focus();
    });
    this.node.addEventListener("pointermove", (event) => {
      if (!this.node.hasPointerCapture(event.pointerId)) return;
      const box = board.getBoundingClientRect();
      const scale = board.viewBox.baseVal.width / box.width;
      go(from([(event.clientX - box.left) * scale, (event.clientY - box.top) * scale]));
    });
    this.node.addEventListener("focus", grab);
    this.node.addEventListener("keydown", (event) => {
      const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
      const way = ways[event.key];
      if (!way) return;
      event.preventDefault();
      go(this.point.map((value, axis) => value + step[axis] * way[axis]));
    });
    this.place(point);
  }

  place(point) {
    this.point = point;
    const [x, y] = this.at(point);
    this.node.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
    this.node.setAttribute("aria-label", `${this.name} (${point.map((value) => Number(value.toFixed(2))).join(", ")})`);
  }
}
