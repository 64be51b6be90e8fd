// What layers are made of: linear maps, layer normalization, activations, and the sum of features.
import { Matrix } from "../formula/matrix.js";

/** W x + b of each row x of features (T, in), with weight (out, in): (T, out). */
export function linear({ weight, bias }, features) {
  const products = new Matrix(features.rows, weight.rows);
  for (let row = 0; row < features.rows; row++) multiply(weight, features.row(row), bias, products.row(row));
  return products;
}

/** W x + b of one vector. */
export function linearOf({ weight, bias }, x) {
  return multiply(weight, x, bias, new Float32Array(weight.rows));
}

// four sums at a time, which a processor computes beside each other
function multiply({ rows, columns, data }, x, bias, y) {
  const end = columns - (columns % 4);
  for (let row = 0, at = 0; row < rows; row++, at += columns) {
    let [a, b, c, d] = [bias ? bias[row] : 0, 0, 0, 0];
    for (let index = 0; index < end; index += 4) {
      a += data[at + index] * x[index];
      b += data[at + index + 1] * x[index + 1];
      c += data[at + index + 2] * x[index + 2];
      d += data[at + index + 3] * x[index + 3];
    }
    for (let index = end; index < columns; index++) a += data[at + index] * x[index];
    y[row] = a + b + c + d;
  }
  return y;
}

/** (x − mean) / deviation · weight + bias for each row. */
export function layerNorm({ weight, bias }, features) {
  const normalized = new Matrix(features.rows, features.columns);
  for (let row = 0; row < features.rows; row++) {
    const [x, y] = [features.row(row), normalized.row(row)];
    const mean = sum(x) / x.length;
    const deviation = Math.sqrt(x.reduce((total, value) => total + (value - mean) ** 2, 0) / x.length + 1e-5);
    for (let index = 0; index < x.length; index++) y[index] = ((x[index] - mean) / deviation) * weight[index] + bias[index];
  }
  return normalized;
}

/** The parameters of a layer normalization. */
export function norm(parameters) {
  return { weight: parameters.vector("weight"), bias: parameters.vector("bias") };
}

const sum = (numbers) => numbers.reduce((total, value) => total + value, 0);
export const sigmoid = (x) => 1 / (1 + Math.exp(-x));

/** The error function, by its series of positive terms. */
function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x);
  let [term, total] = [x, x];
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(total); n++) {
    term *= (2 * x * x) / (2 * n + 1);
    total += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * total;
}

/** The nonlinearities of feed-forward networks by name. */
export const ACTIVATIONS = {
  relu: (x) => Math.max(x, 0),
  gelu: (x) => (x * (1 + erf(x / Math.SQRT2))) / 2,
  silu: (x) => x * sigmoid(x),
};

/** Replace each number by a function of it, and return the features. */
export function apply(f, features) {
  const { data } = features;
  for (let index = 0; index < data.length; index++) data[index] = f(data[index]);
  return features;
}

/** x + y. */
export function add(x, y) {
  return new Matrix(x.rows, x.columns, x.data.map((value, index) => value + y.data[index]));
}

/** Vectors, one after another. */
export function joined(...vectors) {
  const all = new Float32Array(vectors.reduce((total, vector) => total + vector.length, 0));
  vectors.reduce((at, vector) => (all.set(vector, at), at + vector.length), 0);
  return all;
}

/** A matrix that grows by rows. */
export class Growing extends Matrix {
  constructor(columns) {
    super(0, columns, new Float32Array(0));
  }

  append({ rows, columns, data }) {
    const [end, size] = [this.rows * columns, rows * columns];
    if (end + size > this.data.length) {
      const room = new Float32Array(Math.max(2 * this.data.length, end + size));
      room.set(this.data);
      this.data = room;
    }
    this.data.set(data.subarray(0, size), end);
    this.rows += rows;
  }
}
