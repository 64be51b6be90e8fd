// What is looked at, behind # in the address: whoever opens it again sees the same. A part without "=", as the token of a server is, stays.

import { parsed, written } from "./selection.js";

// Letters of an address that are read, and milliseconds until a change is written: browsers refuse too many in a row.
const LONGEST = 4000;
const QUIET = 250;
const NAMES = ["group", "layer", "head", "row", "column", "combine"];
// What of a view's state an address holds.
const WRITTEN = ["group", "layer", "head", "places", "combine"];

/** What the address says about the view of this number of a source; what is not possible there is left out. */
export function readAddress({ scene }, which = 0) {
  if (location.hash.length > LONGEST) return {};
  const parts = new URLSearchParams(location.hash.slice(1));
  const get = (name) => parts.get(named(name, which));
  const group = get("group") === null ? scene.groups[0] : scene.groups.find((one) => one.name === get("group"));
  if (!group || !NAMES.some((name) => get(name) !== null)) return {};
  const values = {
    group: group.name, layer: whole(get("layer"), group.layers.length) ?? group.layers.length - 1, head: whole(get("head"), group.heads) ?? 0,
    combine: "sum",
  };
  if (get("head") === "mean" && group.heads > 1) values.head = "mean";
  for (const [side, count] of [["row", group.height], ["column", group.width]]) {
    const places = parsed(get(side) ?? "", count);
    if (places.length && !values.side) Object.assign(values, { side, place: places.at(-1), places });
  }
  if (["sum", "mean"].includes(get("combine"))) values.combine = get("combine");
  return values;
}

/** Whether the address says anything about a view. */
export function isAddressed(which) {
  return mine(which).length > 0;
}

/** Write what is looked at into the address when it changes, and follow an address that is changed. */
export function remember(state, source, which = 0, signal = undefined) {
  let timer = 0;
  let fresh = true;
  state.follow((values, changed) => {
    // what is pointed at is not in the address
    if (!WRITTEN.some((name) => changed.has(name))) return;
    // what is seen first needs no words, and the group of an address may come with the next scene
    const waits = fresh && !Object.keys(readAddress(source, which)).length;
    fresh = false;
    if (waits) return;
    clearTimeout(timer);
    timer = setTimeout(() => { if (!signal?.aborted) write(values, which); }, QUIET);
  });
  window.addEventListener("hashchange", () => {
    const values = readAddress(source, which);
    if (Object.keys(values).length) state.set({ side: null, place: null, ...values });
  }, { signal });
}

function write(values, which) {
  const parts = { group: values.group, layer: values.layer, head: values.head };
  if (values.places.length) {
    parts[values.side] = written(values.places);
    parts.combine = values.combine;
  }
  const own = new Set(mine(which));
  const others = location.hash.slice(1).split("&").filter((part) => part && !own.has(part));
  const said = Object.entries(parts).map(([name, value]) => `${named(name, which)}=${encodeURIComponent(value)}`);
  try {
    history.replaceState(history.state, "", `#${[...others, ...said].join("&")}`);
  } catch {
    // the frame of a notebook has no address of its own
  }
}

/** The parts of the address about a view. */
function mine(which) {
  const names = new Set(NAMES.map((name) => named(name, which)));
  return location.hash.slice(1).split("&").filter((part) => part.includes("=") && names.has(part.split("=")[0]));
}

function named(name, which) {
  return which ? `${name}.${which}` : name;
}

/** A whole number below a bound; null if the text is none. */
function whole(text, bound) {
  return /^\d{1,7}$/.test(text ?? "") && Number(text) < bound ? Number(text) : null;
}
