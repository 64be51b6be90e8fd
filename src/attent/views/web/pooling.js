// A matrix made small: squares of 2ⁿ × 2ⁿ cells as their mean or their largest.

/** Some cells of a matrix as a matrix of their own. */
export function cut(matrix, top, left, height, width) {
  const values = new Float32Array(height * width);
  for (let row = 0; row < height; row += 1) {
    const start = (top + row) * matrix.width + left;
    values.set(matrix.values.subarray(start, start + width), row * width);
  }
  return { height, width, values };
}

/** Each square of `step` × `step` cells as one. */
export function pooled(matrix, step, how) {
  if (step === 1) return matrix;
  const [height, width] = [Math.ceil(matrix.height / step), Math.ceil(matrix.width / step)];
  const values = new Float32Array(height * width);
  for (let row = 0; row < height; row += 1) {
    for (let column = 0; column < width; column += 1) values[row * width + column] = square(matrix, row, column, step, how);
  }
  return { height, width, values };
}

function square(matrix, row, column, step, how) {
  const [bottom, right] = [Math.min((row + 1) * step, matrix.height), Math.min((column + 1) * step, matrix.width)];
  let [total, most, count] = [0, -Infinity, 0];
  for (let i = row * step; i < bottom; i += 1) {
    for (let j = column * step; j < right; j += 1) {
      const value = matrix.values[i * matrix.width + j];
      total += value;
      if (value > most) most = value;
      count += 1;
    }
  }
  return how === "max" ? most : total / count;
}

/** The mean of several matrices of one shape. */
export function mean(matrices) {
  const values = new Float32Array(matrices[0].values.length);
  for (const matrix of matrices) for (let cell = 0; cell < values.length; cell += 1) values[cell] += matrix.values[cell];
  for (let cell = 0; cell < values.length; cell += 1) values[cell] /= matrices.length;
  return { height: matrices[0].height, width: matrices[0].width, values };
}
