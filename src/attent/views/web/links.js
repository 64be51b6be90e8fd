// Links between two texts on a board: curves whose thickness is the weight.

import { drawn } from "./elements.js";

const THICK = 9;

export class Links {
  constructor(board) {
    this.board = board;
    this.node = drawn("svg", { class: "links", "aria-hidden": "true" });
    this.last = [];
    new ResizeObserver(() => this.draw(this.last)).observe(board);
  }

  /** Draw links [upper element, lower element, weight from 0 to 1]. */
  draw(links) {
    this.last = links;
    const ground = this.board.getBoundingClientRect();
    this.node.replaceChildren(...links.filter(([upper, lower]) => upper?.isConnected && lower?.isConnected).map(([upper, lower, weight]) => {
      const [above, below] = [upper.getBoundingClientRect(), lower.getBoundingClientRect()];
      const [x1, y1] = [above.left + above.width / 2 - ground.left, above.bottom - ground.top];
      const [x2, y2] = [below.left + below.width / 2 - ground.left, below.top - ground.top];
      const bend = Math.max((y2 - y1) / 2, 12);
      return drawn("path", {
        d: `M${x1.toFixed(1)} ${y1.toFixed(1)}C${x1.toFixed(1)} ${(y1 + bend).toFixed(1)} ${x2.toFixed(1)} ${(y2 - bend).toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`,
        "stroke-width": Math.max(THICK * Math.min(weight, 1), 1.5).toFixed(2),
      });
    }));
  }
}
