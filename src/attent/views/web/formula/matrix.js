// Matrices: rows of numbers in float32, one after another. Sums are in double precision, so results are as exact as float32 allows.

export class Matrix {
  constructor(rows, columns, data = new Float32Array(rows * columns)) {
    this.rows = rows;
    this.columns = columns;
    this.data = data;
  }

  /** The matrix of an array of rows. */
  static of(rows) {
    return new Matrix(rows.length, rows.length ? rows[0].length : 0, Float32Array.from(rows.flatMap((row) => [...row])));
  }

  /** A row, which shares the matrix's numbers. */
  row(index) {
    return this.data.subarray(index * this.columns, (index + 1) * this.columns);
  }

  at(row, column) {
    return this.data[row * this.columns + column];
  }

  /** All rows as arrays of numbers. */
  list() {
    return Array.from({ length: this.rows }, (_, index) => [...this.row(index)]);
  }
}

/** Σ x_d y_d of two rows of the same length. */
export function dot(x, y) {
  let sum = 0;
  for (let index = 0; index < x.length; index++) sum += x[index] * y[index];
  return sum;
}

/** A matrix of f(row, column) for each entry. */
export function tabulate(rows, columns, f) {
  const table = new Matrix(rows, columns);
  for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) table.data[row * columns + column] = f(row, column);
  return table;
}

/** a bᵀ, times a scale: the dot product of each row of a (n, d) with each row of b (m, d), (n, m). */
export function timesTransposed(a, b, scale = 1) {
  const width = a.columns;
  return tabulate(a.rows, b.rows, (row, column) => {
    let sum = 0;
    const [one, other] = [row * width, column * width];
    for (let index = 0; index < width; index++) sum += a.data[one + index] * b.data[other + index];
    return sum * scale;
  });
}

/** a b of a (n, d) and b (d, m), (n, m). */
export function times(a, b) {
  const product = new Matrix(a.rows, b.columns);
  const sums = new Float64Array(b.columns);
  for (let row = 0; row < a.rows; row++) {
    sums.fill(0);
    for (let inner = 0; inner < a.columns; inner++) {
      const [factor, from] = [a.data[row * a.columns + inner], inner * b.columns];
      if (factor) for (let column = 0; column < b.columns; column++) sums[column] += factor * b.data[from + column];
    }
    product.row(row).set(sums);
  }
  return product;
}
