// The page of `attent explore`: a text goes to every open run, and each shows what it makes of it and where it looked.

import { element, mark } from "./elements.js";
import { Run } from "./run.js";
import { Server } from "./server_source.js";
import { Viewed } from "./viewed.js";

// Milliseconds of quiet after which what was typed is read.
const QUIET = 350;
const BEAMS = [[1, "the most likely"], [2, "by a beam search of 2"], [5, "by a beam search of 5"]];

async function start(root) {
  // behind it stands what is looked at
  const server = new Server(location.hash.slice(1).split("&")[0]);
  let about;
  try {
    about = await (await server.get("/api/about")).json();
  } catch (error) {
    root.replaceChildren(element("p", { class: "status wrong", role: "alert", text: error.message }));
    return;
  }
  const fixed = about.scenes.map(() => element("section"));
  const runs = about.runs.map((run, number) => new Run(server, number, run, about.runs.length === 1));
  const columns = element("div", { class: runs.length > 1 ? "runs beside" : "runs" }, ...runs.map((run) => run.node));
  const name = about.runs.length === 1 ? [element("h1", {}, element("bdi", { text: about.runs[0].name }))] : [];
  const head = element("header", { class: "top" }, mark(`/${location.hash.split("&")[0]}`), ...name, ...(runs.length ? [box(about, runs)] : []));
  root.replaceChildren(head, ...(runs.length ? [columns] : []), ...fixed);
  for (const [place, number] of about.scenes.entries()) {
    const title = element("h1");
    const view = element("div");
    fixed[place].append(title, view);
    const viewed = new Viewed(server, view, about.runs.length + place);
    viewed.open(number).then(() => title.replaceChildren(element("bdi", { text: viewed.source?.scene.title || "Attention" })));
  }
}

/** What is asked: a text, or the number of an example. */
function box(about, runs) {
  const reads = about.runs.some((run) => !run.examples);
  const given = { text: about.text, row: 0, beam: 1 };
  let timer = 0;
  const go = () => {
    clearTimeout(timer);
    for (const run of runs) run.ask({ ...given });
  };
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(go, QUIET);
  };
  const text = element("textarea", { id: "text", dir: "auto", spellcheck: "false", on: { input: () => { given.text = text.value; soon(); } } });
  text.value = about.text;
  text.addEventListener("keydown", (event) => {
    // the Enter that ends what an input method composes is not for us
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    go();
  });
  const line = element("div", { class: "line" });
  if (about.runs.some((run) => run.task === "translate")) {
    const beam = element("select", { on: { change: () => { given.beam = Number(beam.value); go(); } } });
    for (const [width, name] of BEAMS) beam.append(element("option", { value: String(width), text: name }));
    line.append(element("label", { class: "choice" }, element("span", { text: "each word" }), beam));
  }
  const most = Math.max(...about.runs.map((run) => run.examples));
  if (most) {
    const row = element("input", { type: "number", min: 0, max: most - 1, value: 0, on: { input: () => { given.row = Math.round(Number(row.value)); soon(); } } });
    line.append(element("label", { class: "choice" }, element("span", { text: `example, 0 to ${most - 1}` }), row));
  }
  go();
  text.setAttribute("aria-label", "text");
  text.placeholder = reads ? hint(about.runs) : "";
  return element("div", { class: "ask" }, ...(reads ? [text] : []), line);
}

function hint(runs) {
  const tasks = new Set(runs.map((run) => run.task));
  if (tasks.has("fill-mask")) return "Type a text with _____ for each blank";
  return tasks.has("text-generation") ? "Type how a text begins" : "Type a text";
}

start(document.getElementById("explore"));
