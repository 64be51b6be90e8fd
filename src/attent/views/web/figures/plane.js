// A plane with the arrows of a query and its keys, which are dragged. A pale arrow shows where one was.
import { drawn } from "../elements.js";
import { Handle, markOf } from "./drag.js";

// pixels of the drawing and of a unit of the vectors, the largest coordinate, and the step of an arrow key
const [SIDE, UNIT, LIMIT, STEP] = [360, 68, 2.5, 0.1];
const at = ([x, y]) => [SIDE / 2 + UNIT * x, SIDE / 2 - UNIT * y];
const from = ([x, y]) => [(x - SIDE / 2) / UNIT, (SIDE / 2 - y) / UNIT];
const bounded = (value) => Math.min(Math.max(value, -LIMIT), LIMIT);

export class Plane {
  /** `redraw` is called when a vector has moved; `across` and `up` name the axes. */
  constructor(across, up, redraw) {
    this.redraw = redraw;
    this.average = markOf("value");
    this.node = drawn("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, class: "plane", role: "group", "aria-label": "query and keys as arrows" },
      drawn("text", { class: "axis", x: SIDE - 4, y: SIDE / 2 + 18, "text-anchor": "end" }, across),
      drawn("text", { class: "axis", x: SIDE / 2 + 6, y: 14 }, up));
  }

  /** A vector of a role that is dragged; returns its handle, whose `point` is the vector. */
  vector(role, name, point) {
    const line = () => drawn("line", { class: role, x1: SIDE / 2, y1: SIDE / 2 });
    const [ghost, arrow, label] = [line(), line(), drawn("text", { class: "name" }, name)];
    ghost.classList.add("ghost");
    const end = (of, [x, y]) => Object.entries({ x2: x, y2: y }).forEach(([attribute, value]) => of.setAttribute(attribute, value.toFixed(1)));
    const show = (to) => {
      const [x, y] = at(to);
      end(arrow, [x, y]);
      label.setAttribute("text-anchor", x > SIDE - 90 ? "end" : "start");
      label.setAttribute("x", x + (x > SIDE - 90 ? -14 : 14));
      label.setAttribute("y", Math.max(y + (y > SIDE - 40 ? -12 : -8), 30));
    };
    const handle = new Handle(this.node, role, {
      name: `${role} ${name}`, point, at, from, step: [STEP, STEP],
      grab: () => end(ghost, at(handle.point)),
      move: (to) => {
        const point = to.map(bounded);
        show(point);
        this.redraw();
        return point;
      },
    });
    end(ghost, at(point));
    show(point);
    this.node.append(ghost, arrow, handle.node, label);
    return handle;
  }

  /** Show the average of the values as a circle. */
  mean(point) {
    if (!this.average.isConnected) this.node.append(this.average);
    this.average.setAttribute("transform", `translate(${at(point).map((value) => value.toFixed(1)).join(" ")})`);
  }
}
