// What is shown, as files: a matrix as PNG, and numbers as CSV. They are made on the page; nothing is asked of anyone.

import { element } from "./elements.js";
import { written } from "./selection.js";

// Letters of a title in a name.
const LETTERS = 60;

/** Buttons that save a part of the view: `table` returns rows of fields; a canvas is saved as PNG. */
export function saving(part, source, state, table, canvas = null) {
  const status = element("span", { role: "status" });
  const made = { CSV: async () => new Blob([csv(table())], { type: "text/csv" }) };
  if (canvas) made.PNG = () => pixels(canvas);
  const buttons = Object.entries(made).map(([kind, make]) => element("button", {
    type: "button", text: kind, "aria-label": `save the ${part} as ${kind}`,
    on: {
      click: async () => {
        try {
          const name = `${called(part, source.scene, state.values)}.${kind.toLowerCase()}`;
          download(await make(), name);
          status.textContent = `saved as ${name}`;
        } catch (error) {
          status.textContent = `not saved: ${error.message}`;
        }
      },
    },
  }));
  return element("div", { class: "save", role: "group", "aria-label": `save the ${part}` }, element("span", { text: "save as" }), ...buttons, status);
}

/** The cells of some parts of a map {height, width, values, y, x}, of which each stands for step × step weights, as rows of fields. */
export function mapTable(parts, step, how, rows, columns, isSeen = () => true) {
  const header = step === 1
    ? ["row", "row_token", "column", "column_token", "weight"]
    : ["row", "row_end", "row_token", "column", "column_end", "column_token", `${how}_weight`];
  const place = (at, labels) => (step === 1 ? [at, label(labels[at])] : [at, Math.min(at + step, labels.length) - 1, label(labels[at])]);
  const cells = parts.flatMap(({ values, width, y, x }) => Array.from(values, (value, cell) => (
    [(y + Math.floor(cell / width)) * step, (x + (cell % width)) * step, value]
  )));
  const seen = cells.filter(([row, column]) => isSeen(row, column));
  return [header, ...seen.map(([row, column, value]) => [...place(row, rows), ...place(column, columns), value])];
}

/** A token as a field: what a program that calculates would take for a formula is no formula. */
export function label(token) {
  return /^[=+\-@\t\r]/.test(token) ? `'${token}` : token;
}

/** Rows of fields as RFC 4180 has them; a number with all of its digits, nothing where none is known. */
function csv(rows) {
  const field = (value) => {
    if (typeof value === "number") return Number.isNaN(value) ? "" : String(value);
    return /[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
  };
  return rows.map((row) => `${row.map(field).join(",")}\r\n`).join("");
}

/** A name for a file: the title's letters, and what is looked at. */
function called(part, scene, { group, layer, head, side, places, combine }) {
  const words = [scene.title || "attention", group, `layer ${layer}`, head === "mean" ? "mean of heads" : `head ${head}`];
  if (places.length) words.push(`${places.length > 1 ? `${combine} of ` : ""}${side} ${written(places).slice(0, 40)}`);
  return [...words, part].map((word) => Array.from(word.normalize("NFC").replace(/[^\p{L}\p{M}\p{N}_]+/gu, "-")).slice(0, LETTERS).join("")).join("-")
    .replace(/-+/g, "-").replace(/^-|-$/g, "");
}

function pixels(canvas) {
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large for this browser"))), "image/png");
  });
}

function download(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  // the browser reads it after this turn
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
