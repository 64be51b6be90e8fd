// The live figure of docs/learn/queries-keys-values.md: a query that is dragged among keys; scores, weights and the average follow.
(() => {
  const place = document.getElementById("figure-queries");
  if (!place) return;
  const WORDS = ["the", "black", "dog", "sings"];
  const KEYS = [[-0.9, 0.5], [2, 0.2], [0.3, 2], [-0.7, -1.7]];
  // pixels of the drawing, and of a unit of the vectors
  const [SIDE, UNIT, LIMIT, STEP] = [360, 68, 2.5, 0.1];
  let query = [1.6, 0.8];

  const made = (tag, attributes = {}, ...children) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const html = (tag, attributes = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), attributes);
    node.append(...children);
    return node;
  };
  const at = ([x, y]) => [SIDE / 2 + UNIT * x, SIDE / 2 - UNIT * y];
  const arrow = (kind, to) => {
    const [x, y] = at(to);
    return made("line", { class: kind, x1: SIDE / 2, y1: SIDE / 2, x2: x, y2: y });
  };
  const digits = (value) => value.toFixed(2).replace("-", "−");

  const ghost = arrow("query ghost", query);
  const own = arrow("query", query);
  const average = made("circle", { class: "average", r: 9 });
  const handle = made("rect", { class: "handle", width: 20, height: 20, tabindex: 0, role: "application", "aria-roledescription": "query that arrow keys move" });
  const name = made("text", { class: "query-name" }, "q, noir");
  const keys = WORDS.flatMap((word, which) => {
    const [x, y] = at(KEYS[which]);
    const mark = made("path", { class: "key-mark", d: `M${x} ${y - 7}l7 7l-7 7l-7-7z` });
    return [arrow("key", KEYS[which]), mark, made("text", { class: "key-name", x: x + (x > SIDE - 80 ? -10 : 10), y: y - 10, "text-anchor": x > SIDE - 80 ? "end" : "start" }, word)];
  });
  const plane = made("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, class: "plane" },
    made("text", { class: "axis", x: SIDE - 4, y: SIDE / 2 + 18, "text-anchor": "end" }, "adjective →"),
    made("text", { class: "axis", x: SIDE / 2 + 6, y: 14 }, "↑ noun"),
    ...keys, ghost, own, average, handle, name);
  const rows = WORDS.map((word) => {
    const [score, weight, bar] = [html("td"), html("td"), html("span", { className: "bar" })];
    return { score, weight, bar, row: html("tr", {}, html("th", { scope: "row" }, word), score, weight, html("td", {}, bar)) };
  });
  const head = html("tr", {}, ...["key", "score q·k", "weight α", ""].map((text) => html("th", { scope: "col" }, text)));
  const sentence = html("output", { className: "sum", ariaLive: "polite" });
  const table = html("table", { className: "weights" }, html("thead", {}, head), html("tbody", {}, ...rows.map(({ row }) => row)));

  function draw() {
    const scores = KEYS.map(([x, y]) => query[0] * x + query[1] * y);
    const powers = scores.map((score) => Math.exp(score - Math.max(...scores)));
    const total = powers.reduce((sum, power) => sum + power);
    const weights = powers.map((power) => power / total);
    const mean = [0, 1].map((axis) => KEYS.reduce((sum, key, which) => sum + weights[which] * key[axis], 0));
    const [x, y] = at(query);
    own.setAttribute("x2", x);
    own.setAttribute("y2", y);
    handle.setAttribute("x", x - 10);
    handle.setAttribute("y", y - 10);
    name.setAttribute("x", Math.min(x + 14, SIDE - 60));
    name.setAttribute("y", y + 5);
    average.setAttribute("cx", at(mean)[0]);
    average.setAttribute("cy", at(mean)[1]);
    rows.forEach(({ score, weight, bar }, which) => {
      score.textContent = digits(scores[which]);
      weight.textContent = digits(weights[which]);
      bar.style.width = `${Math.round(120 * weights[which])}px`;
    });
    const sum = WORDS.map((word, which) => `${digits(weights[which])}·${word}`).join(" + ");
    sentence.textContent = `average = ${sum} = (${mean.map(digits).join(", ")})`;
    handle.setAttribute("aria-label", `query (${query.map(digits).join(", ")}); ${sentence.textContent}`);
  }

  function move(to) {
    query = to.map((value) => Math.min(Math.max(value, -LIMIT), LIMIT));
    draw();
  }

  // where the query was before it is moved
  function leave() {
    const [x, y] = at(query);
    ghost.setAttribute("x2", x);
    ghost.setAttribute("y2", y);
  }

  handle.addEventListener("pointerdown", (event) => {
    leave();
    handle.setPointerCapture(event.pointerId);
    event.preventDefault();
    handle.focus();
  });
  handle.addEventListener("pointermove", (event) => {
    if (!handle.hasPointerCapture(event.pointerId)) return;
    const box = plane.getBoundingClientRect();
    const scale = SIDE / box.width;
    move([((event.clientX - box.left) * scale - SIDE / 2) / UNIT, (SIDE / 2 - (event.clientY - box.top) * scale) / UNIT]);
  });
  handle.addEventListener("focus", leave);
  handle.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };
    if (!steps[event.key]) return;
    event.preventDefault();
    move([query[0] + steps[event.key][0], query[1] + steps[event.key][1]]);
  });
  place.append(html("p", { className: "task" }, "Drag the query q, or move it with the arrow keys. The pale arrow is where it was; the circle is the average of the values, here the keys themselves."),
    html("div", { className: "query-figure" }, plane, html("div", {}, table, sentence)));
  draw();
})();
