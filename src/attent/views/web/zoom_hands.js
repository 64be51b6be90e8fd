// How a zoomable map is moved: wheel, pointers (one drags, two pinch) and keys.

// Pixels that a pointer moves before a click is a drag.
const DRAG = 4;
const WHEEL = 0.0018;

export function listen(zoom) {
  const { canvas } = zoom;
  const pointers = new Map();
  let moved = 0;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("wheel", (event) => {
    // over a matrix that is seen as large as it can be, the page scrolls
    if (!zoom.scale.isLarge) return;
    event.preventDefault();
    const pixels = event.deltaY * (event.deltaMode ? 20 : 1);
    zoom.zoom(Math.exp(-pixels * WHEEL), at(event));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, at(event));
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const here = at(event);
    const before = pointers.get(event.pointerId);
    if (!before) {
      const cell = zoom.at(...here);
      if (cell) zoom.go(cell);
      return;
    }
    moved += Math.abs(here[0] - before[0]) + Math.abs(here[1] - before[1]);
    if (pointers.size === 2) {
      const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      const middle = [(here[0] + other[0]) / 2, (here[1] + other[1]) / 2];
      zoom.zoom(far(here, other) / Math.max(far(before, other), 1), middle);
    }
    if (moved > DRAG) zoom.move((before[0] - here[0]) / pointers.size, (before[1] - here[1]) / pointers.size);
    pointers.set(event.pointerId, here);
  });
  const leave = (event) => {
    const held = pointers.delete(event.pointerId);
    const cell = zoom.at(...at(event));
    if (held && event.type === "pointerup" && moved <= DRAG && cell) zoom.choose(cell);
  };
  canvas.addEventListener("pointerup", leave);
  canvas.addEventListener("pointercancel", leave);
  canvas.addEventListener("keydown", (event) => key(zoom, event));
}

function key(zoom, event) {
  const { scale, pyramid } = zoom;
  const arrows = {
    ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -Infinity], End: [0, Infinity], PageUp: [-10, 0], PageDown: [10, 0],
  };
  const acts = { "+": () => zoom.zoom(2, middle(zoom)), "=": () => zoom.zoom(2, middle(zoom)), "-": () => zoom.zoom(0.5, middle(zoom)), 0: () => zoom.fit(), Enter: () => zoom.choose(zoom.cell) };
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in arrows) {
    const [down, right] = arrows[event.key];
    if (event.shiftKey) zoom.move((right * (scale.wide - scale.left)) / 4, (down * (scale.high - scale.above)) / 4);
    else {
      const step = 2 ** scale.level(pyramid.top);
      const within = (place, count) => Math.min(Math.max(place, 0), count - 1);
      zoom.go([within(zoom.cell[0] + down * step, pyramid.height), within(zoom.cell[1] + right * step, pyramid.width)], true);
    }
  } else if (event.key in acts) acts[event.key]();
  else return;
  event.preventDefault();
}

/** The cell that is spoken of, if it is seen. */
function middle(zoom) {
  const [x, y] = zoom.scale.point(zoom.cell[0] + 0.5, zoom.cell[1] + 0.5);
  return x >= zoom.scale.left && y >= zoom.scale.above && x <= zoom.scale.wide && y <= zoom.scale.high ? [x, y] : undefined;
}

function far(one, other) {
  return Math.hypot(one[0] - other[0], one[1] - other[1]);
}
