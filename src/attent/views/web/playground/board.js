// What the model does with one sentence: links between the two texts, and its weights as matrices.
import { Board } from "../board.js";
import { onScheme } from "../colours.js";
import { element } from "../elements.js";
import { MatrixTable } from "../matrix_table.js";

const HINT = "Below is the right translation. Thickness is the weight while each of its words is written; point at a word to see its weights alone.";

export class Sentence extends Board {
  constructor() {
    super(["English words", "French words"], ["en", "fr"]);
    this.said = element("output", { class: "said" });
    this.tables = [new MatrixTable("Attention α, while each French word is written"), new MatrixTable("Self-attention of the English words")];
    this.matrices = element("div", { class: "matrices" }, ...this.tables.map(({ node }) => node));
    onScheme(() => this.weights && this.look());
  }

  /** Show the texts of what the worker computed, and weights (rows, source). */
  look(shown = this.shown) {
    this.shown = shown;
    const { source, rows, weights, own, isDistribution } = shown;
    const [attention, self] = [weights, own].map((numbers) => rowsOf(numbers, source.length));
    this.show(source, rows, attention, { isDistribution });
    // the compact form has no matrices
    if (!this.matrices.isConnected) return;
    this.tables[0].show(attention, rows, source, null, this.scale.high);
    this.tables[1].show(self, source, source, null);
    const mean = self.reduce((sum, row, place) => sum + row[place], 0) / source.length;
    this.tables[1].say(`Self-attention of the English words; ${mean.toFixed(2)} on the word itself`);
  }

  draw() {
    super.draw();
    const [side, place] = this.pointed ?? [];
    const [source, rows] = this.texts;
    const values = side ? (this.weights[place] ?? []).map((value, at) => [source[at], value]) : this.weights.map((row, at) => [rows[at], row[place]]);
    const listed = values.sort((one, other) => other[1] - one[1]).slice(0, 3).map(([word, value]) => `${word} ${value?.toFixed(2)}`).join(" · ");
    this.said.textContent = this.pointed ? side ? `while writing ${rows[place]}: ${listed}` : `the weight of ${source[place]} while writing ${listed}` : HINT;
  }
}

function rowsOf(numbers, across) {
  return Array.from({ length: numbers.length / across }, (_, row) => [...numbers.slice(row * across, (row + 1) * across)]);
}
