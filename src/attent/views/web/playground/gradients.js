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

  /** a bᵀ of a (n, d) and b (m, d), (n, m); `scale` multiplies it. */
  timesTransposed(a, b, scale = 1) {
    const [n, m, d] = [a.rows, b.rows, a.columns];
    const result = this.record(n, m, ({ gradient }) => {
      for (let index = 0; index < n * m; index++) {
        const slope = scale * gradient[index];
        for (let inner = 0, x = Math.floor(index / m) * d, y = (index % m) * d; inner < d; inner++, x++, y++) {
          a.gradient[x] += slope * b.data[y];
          b.gradient[y] += slope * a.data[x];
        }
      }
    });
    for (let index = 0; index < n * m; index++) {
      let sum = 0;
      for (let inner = 0, x = Math.floor(index / m) * d, y = (index % m) * d; inner < d; inner++, x++, y++) sum += a.data[x] * b.data[y];
      result.data[index] = scale * sum;
    }
    return result;
  }

  /** a b of a (n, d) and b (d, m), (n, m). */
  times(a, b) {
    const [n, d, m] = [a.rows, a.columns, b.columns];
    const result = this.record(n, m, ({ gradient }) => {
      multiplyBack(a.data, b.data, gradient, a.gradient, b.gradient, n, d, m);
    });
    multiply(a.data, b.data, result.data, n, d, m);
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

  /** Both side by side, (n, d + m). */
  concatenate(a, b) {
    const columns = a.columns + b.columns;
    const result = this.record(a.rows, columns, ({ gradient }) => {
      for (let row = 0; row < a.rows; row++) {
        for (let column = 0; column < a.columns; column++) a.gradient[row * a.columns + column] += gradient[row * columns + column];
        for (let column = 0; column < b.columns; column++) b.gradient[row * b.columns + column] += gradient[row * columns + a.columns + column];
      }
    });
    for (let row = 0; row < a.rows; row++) {
      result.data.set(a.row(row), row * columns);
      result.data.set(b.row(row), row * columns + a.columns);
    }
    return result;
  }

  /** States s_t = tanh(x_t + s_{t−1} R) of inputs x (T, d) and R (d, d), s_{−1} = 0: (T, d). */
  recur(x, R) {
    const [length, d] = [x.rows, x.columns];
    const result = this.record(length, d, ({ data, gradient }) => {
      for (let at = length - 1; at >= 0; at--) {
        for (let column = 0; column < d; column++) x.gradient[at * d + column] += gradient[at * d + column] * (1 - data[at * d + column] ** 2);
        if (!at) break;
        for (let inner = 0; inner < d; inner++) {
          const before = (at - 1) * d + inner;
          for (let column = 0; column < d; column++) {
            const slope = gradient[at * d + column] * (1 - data[at * d + column] ** 2);
            gradient[before] += slope * R.data[inner * d + column];
            R.gradient[inner * d + column] += slope * data[before];
          }
        }
      }
    });
    for (let at = 0; at < length; at++) {
      const state = result.row(at);
      state.set(x.row(at));
      for (let inner = 0; at && inner < d; inner++) {
        const factor = result.data[(at - 1) * d + inner];
        for (let column = 0; column < d; column++) state[column] += factor * R.data[inner * d + column];
      }
      for (let column = 0; column < d; column++) state[column] = Math.tanh(state[column]);
    }
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

// Both apart, with arrays as arguments and four terms at a time: browsers compile such loops to code that is twice as fast.
function multiply(a, b, product, n, d, m) {
  for (let row = 0; row < n; row++) {
    let inner = 0;
    for (let at = row * d; inner + 3 < d; inner += 4, at += 4) {
      const [f, f1, f2, f3] = [a[at], a[at + 1], a[at + 2], a[at + 3]];
      for (let column = 0, y = inner * m, z = row * m; column < m; column++, y++, z++) product[z] += f * b[y] + f1 * b[y + m] + f2 * b[y + 2 * m] + f3 * b[y + 3 * m];
    }
    for (; inner < d; inner++) for (let column = 0; column < m; column++) product[row * m + column] += a[row * d + inner] * b[inner * m + column];
  }
}

function multiplyBack(a, b, slopes, byA, byB, n, d, m) {
  for (let row = 0; row < n; row++) {
    let inner = 0;
    for (let at = row * d; inner + 3 < d; inner += 4, at += 4) {
      const [f, f1, f2, f3] = [a[at], a[at + 1], a[at + 2], a[at + 3]];
      let [sum, sum1, sum2, sum3] = [0, 0, 0, 0];
      for (let column = 0, y = inner * m, z = row * m; column < m; column++, y++, z++) {
        const slope = slopes[z];
        sum += slope * b[y];
        sum1 += slope * b[y + m];
        sum2 += slope * b[y + 2 * m];
        sum3 += slope * b[y + 3 * m];
        byB[y] += f * slope;
        byB[y + m] += f1 * slope;
        byB[y + 2 * m] += f2 * slope;
        byB[y + 3 * m] += f3 * slope;
      }
      byA[at] += sum;
      byA[at + 1] += sum1;
      byA[at + 2] += sum2;
      byA[at + 3] += sum3;
    }
    for (; inner < d; inner++) {
      for (let column = 0; column < m; column++) {
        byA[row * d + inner] += slopes[row * m + column] * b[inner * m + column];
        byB[inner * m + column] += a[row * d + inner] * slopes[row * m + column];
      }
    }
  }
}
