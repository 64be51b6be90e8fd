// The page of a run.
import { open } from "../engine/engine.js";
import { unpacked } from "../unpacked.js";

/** Open the engine of the page. */
export async function start(root) {
  const description = JSON.parse(document.getElementById("description").textContent);
  const engine = open({ description, weights: await unpacked("weights") });
  root.textContent = engine.description.title;
  return engine;
}
