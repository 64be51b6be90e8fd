// Automatic differentiation: matrices that remember how they were computed, and the derivative of a number by each of them.
// An operation appends its result to the tape; `backward` goes through the tape from its end and adds to the gradients of the inputs.

export class Tensor {
  /** Numbers in double precision, row after row; `gradient` has the derivative of the loss by each. */
  constructor(rows, columns, data = new Float64Array(rows * columns)) {
    this.rows = rows;
    this.columns = columns;
    this.data = data;
    this.gradient = new Float64Array(rows * columns);
    this.pass = null;
  }

  row(index) {
    return this.data.subarray(index * this.columns, (index + 1) * this.columns);
  }
}

export class Tape {
  constructor() {
    this.results = [];
  }

  /** The result of an operation, and what adds its gradient to those of its inputs. */
  record(rows, columns, pass) {
    const result = new Tensor(rows, columns);
    result.pass = pass;
    this.results.push(result);
    return result;
  }

  /** Add the derivatives of `loss` (1, 1) times `scale` to the gradients of all that it was computed from. */
  backward(loss, scale = 1) {
    loss.gradient[0] = scale;
    for (let index = this.results.length - 1; index >= 0; index--) this.results[index].pass?.(this.results[index]);
  }

  /** f of each number; `slope(x, y)` is its derivative, of the input and the result. */
  map(a, f, slope) {
    const result = this.record(a.rows, a.columns, ({ data, gradient }) => {
      for (let index = 0; index < data.length; index++) a.gradient[index] += gradient[index] * slope(a.data[index], data[index]);
    });
    for (let index = 0; index < a.data.length; index++) result.data[index] = f(a.data[index]);
    return result;
  }

  /** f of the numbers of a and b of the same rows; a single column goes with every column. `slopes(x, y, z)` are both derivatives. */
  zip(a, b, f, slopes) {
    const columns = Math.max(a.columns, b.columns);
    const [stepA, stepB] = [a, b].map((side) => Number(side.columns === columns));
    const place = (side, step, row, column) => row * side.columns + step * column;
    const result = this.record(a.rows, columns, ({ data, gradient }) => {
      for (let row = 0, index = 0; row < a.rows; row++) {
        for (let column = 0; column < columns; column++, index++) {
          const [atA, atB] = [place(a, stepA, row, column), place(b, stepB, row, column)];
          const [byA, byB] = slopes(a.data[atA], b.data[atB], data[index]);
          a.gradient[atA] += gradient[index] * byA;
          b.gradient[atB] += gradient[index] * byB;
        }
      }
    });
    for (let row = 0, index = 0; row < a.rows; row++) {
      for (let column = 0; column < columns; column++, index++) result.data[index] = f(a.data[place(a, stepA, row, column)], b.data[place(b, stepB, row, column)]);
    }
    return result;
  }

  add(a, b) {
    return this.zip(a, b, (x, y) => x + y, () => BOTH);
  }

  /** The rows of a at these places: embeddings of words, or queries and keys of pairs. */
  gather(a, places) {
    const { columns } = a;
    const result = this.record(places.length, columns, ({ gradient }) => {
      places.forEach((place, row) => {
        for (let column = 0; column < columns; column++) a.gradient[place * columns + column] += gradient[row * columns + column];
      });
    });
    places.forEach((place, row) => result.data.set(a.row(place), row * columns));
    return result;
  }

  /** a b of a (n, d) and b (d, m), (n, m). */
  times(a, b) {
    return this.product(a, b, b.columns, [b.columns, 1], 1);
  }

  /** a bᵀ of a (n, d) and b (m, d), (n, m); `scale` multiplies it. */
  timesTransposed(a, b, scale = 1) {
    return this.product(a, b, b.rows, [1, b.columns], scale);
  }

  /** The product of a (n, d) and a matrix (d, m), whose next row and next column are so many numbers further in b. */
  product(a, b, m, [down, across], scale) {
    const [n, d] = [a.rows, a.columns];
    const result = this.record(n, m, ({ gradient }) => {
      addProduct([a.gradient, d, 1], [gradient, m, 1], [b.data, across, down], [n, m, d], scale);
      addProduct([b.gradient, down, across], [a.data, 1, d], [gradient, m, 1], [d, n, m], scale);
    });
    addProduct([result.data, m, 1], [a.data, d, 1], [b.data, down, across], [n, d, m], scale);
    return result;
  }

  /** The sum of each row, (n, 1). */
  sum(a) {
    const result = this.record(a.rows, 1, ({ gradient }) => {
      for (let index = 0; index < a.data.length; index++) a.gradient[index] += gradient[Math.floor(index / a.columns)];
    });
    for (let index = 0; index < a.data.length; index++) result.data[Math.floor(index / a.columns)] += a.data[index];
    return result;
  }

  /** All rows of several matrices, one matrix after another. */
  stack(parts) {
    const starts = parts.map((_, place) => parts.slice(0, place).reduce((sum, part) => sum + part.data.length, 0));
    const result = this.record(parts.reduce((sum, part) => sum + part.rows, 0), parts[0].columns, ({ gradient }) => {
      parts.forEach((part, place) => part.gradient.forEach((_, index, all) => { all[index] += gradient[starts[place] + index]; }));
    });
    parts.forEach((part, place) => result.data.set(part.data, starts[place]));
    return result;
  }

  /** −Σ log p of the word of each row under the softmax of its logits: (1, 1). */
  crossEntropy(logits, words) {
    const { rows, columns } = logits;
    const slopes = new Float64Array(rows * columns);
    const result = this.record(1, 1, ({ gradient }) => {
      for (let index = 0; index < slopes.length; index++) logits.gradient[index] += gradient[0] * slopes[index];
    });
    words.forEach((word, row) => {
      const own = logits.row(row);
      const top = own.reduce((most, value) => Math.max(most, value));
      let total = 0;
      for (let column = 0; column < columns; column++) total += slopes[row * columns + column] = Math.exp(own[column] - top);
      for (let column = 0; column < columns; column++) slopes[row * columns + column] /= total;
      result.data[0] += Math.log(total) - (own[word] - top);
      slopes[row * columns + word] -= 1;
    });
    return result;
  }
}

const BOTH = [1, 1];

/**
 * Add scale · a b to a product (n, m), of a (n, d) and b (d, m); each is [numbers, step to the next row, step to the next column].
 * Four terms at a time: browsers compile such a loop to code that is twice as fast.
 */
function addProduct([product, down, across], [a, downA, acrossA], [b, downB, acrossB], [n, d, m], scale) {
  for (let row = 0; row < n; row++) {
    let inner = 0;
    for (let at = row * downA; inner + 3 < d; inner += 4, at += 4 * acrossA) {
      const [f, f1, f2, f3] = [scale * a[at], scale * a[at + acrossA], scale * a[at + 2 * acrossA], scale * a[at + 3 * acrossA]];
      for (let column = 0, y = inner * downB, z = row * down; column < m; column++, y += acrossB, z += across) {
        product[z] += f * b[y] + f1 * b[y + downB] + f2 * b[y + 2 * downB] + f3 * b[y + 3 * downB];
      }
    }
    for (; inner < d; inner++) {
      const factor = scale * a[row * downA + inner * acrossA];
      for (let column = 0, y = inner * downB, z = row * down; column < m; column++, y += acrossB, z += across) product[z] += factor * b[y];
    }
  }
}
