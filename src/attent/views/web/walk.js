const READOUT = document.getElementById("readout");
const TABLES = [...document.querySelectorAll("table")];
let kept = null;

function letters(table) {
  return table.dataset.axes.split(", ").slice(-2);
}

/** Tables of one step come one for each head; a step before the heads has one for all of them. */
function tableOf(step, head) {
  const found = TABLES.filter((table) => table.dataset.step === step);
  return found[head] || found[0];
}

function texts(table, row) {
  return [...table.rows[row].cells].map((cell) => cell.textContent);
}

function sum(left, right) {
  return left.map((number, place) => `(${number})(${right[place]})`).join(" + ");
}

/** The sum that a number is, of a step of which the page knows it; or nothing. */
function madeOf(table, row, column, head) {
  if (table.closest("details")?.querySelector("summary code").textContent === "scores = Q·Kᵀ") {
    return sum(texts(tableOf("Q", head), row).slice(1), texts(tableOf("K", head), column).slice(1));
  }
  if (table.dataset.step === "output") {
    const value = tableOf("V", head);
    return sum(texts(tableOf("weights", head), row).slice(1, value.rows.length), [...value.rows].slice(1).map((each) => each.cells[column].textContent));
  }
  return "";
}

function mark(cell) {
  const table = cell.closest("table"), row = cell.parentNode.rowIndex, column = cell.cellIndex;
  const [rows, columns] = letters(table);
  const step = table.dataset.step, head = TABLES.filter((each) => each.dataset.step === step).indexOf(table);
  for (const marked of document.querySelectorAll(".marked, .pointed")) marked.classList.remove("marked", "pointed");
  for (const each of TABLES) {
    const [itsRows] = letters(each);
    // features have no rows of their own
    const index = !itsRows.startsWith("T") ? 0 : itsRows === rows ? row : itsRows === columns ? column : 0;
    if (index > 0 && index < each.rows.length) each.rows[index].classList.add("marked");
  }
  table.rows[0].cells[column].classList.add("marked");
  cell.classList.add("pointed");
  const parts = madeOf(table, row, column, head);
  READOUT.textContent = `${step}[${texts(table, row)[0]}, ${texts(table, 0)[column]}] = ${parts ? `${parts} = ` : ""}${cell.textContent}`;
}

document.addEventListener("pointerover", (event) => {
  const cell = event.target.closest("td");
  if (cell && cell.cellIndex > 0 && !kept) mark(cell);
});
document.addEventListener("click", (event) => {
  const cell = event.target.closest("td");
  kept = cell && cell !== kept && cell.cellIndex > 0 ? cell : null;
  if (kept) mark(kept);
});
