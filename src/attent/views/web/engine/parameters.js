// The weights of a run by the names of the Python modules: read from the bytes that a page has inside, and handed on part by part.
import { Matrix } from "../formula/matrix.js";
import { halves } from "../unpacked.js";

/** The parameters of a module: those of a model whose names begin with its path. */
export class Parameters {
  /** `tensors` maps full names to {shape, numbers}. */
  constructor(tensors, path = "") {
    this.tensors = tensors;
    this.path = path;
  }

  /** The parameters of a part. */
  at(name) {
    return new Parameters(this.tensors, this.path ? `${this.path}.${name}` : name);
  }

  has(name) {
    return this.tensors.has(this.at(name).path);
  }

  /** A vector, or null if there is none of this name. */
  vector(name) {
    return this.tensors.get(this.at(name).path)?.numbers ?? null;
  }

  /** A matrix; of one with an axis of heads, that of a head. */
  matrix(name, head = 0) {
    const { shape, numbers } = this.tensors.get(this.at(name).path);
    const [rows, columns] = shape.slice(-2);
    return new Matrix(rows, columns, shape.length === 2 ? numbers : numbers.subarray(head * rows * columns, (head + 1) * rows * columns));
  }

  /** A linear layer: weight (out, in) and bias. */
  linear(name) {
    return { weight: this.at(name).matrix("weight"), bias: this.at(name).vector("bias") };
  }
}

/**
 * Read tensors from bytes. `described` lists {name, shape, offset, kind}: "float16", or "int8", whose rows are codes from −127 to 127, after all of
 * them a float32 for each row, by which its codes are multiplied. Tied tensors have the same offset. Where all are of 16 bits, the upper bytes of all
 * come first, then the lower ones.
 */
export function unpackedTensors(described, packed) {
  const bytes = described.some(({ kind }) => kind === "int8") ? packed : rejoined(packed);
  const [tensors, read] = [new Map(), new Map()];
  for (const { name, shape, offset, kind } of described) {
    if (!read.has(offset)) read.set(offset, kind === "int8" ? scaled(bytes, offset, shape) : halves(bytes.slice(offset, offset + 2 * size(shape))));
    tensors.set(name, { shape, numbers: read.get(offset) });
  }
  return tensors;
}

function rejoined(packed) {
  const [count, bytes] = [packed.length / 2, new Uint8Array(packed.length)];
  for (let place = 0; place < count; place++) {
    bytes[2 * place + 1] = packed[place];
    bytes[2 * place] = packed[count + place];
  }
  return bytes;
}

const size = (shape) => shape.reduce((product, length) => product * length, 1);

function scaled(bytes, offset, shape) {
  const [count, columns] = [size(shape), shape[shape.length - 1]];
  const codes = new Int8Array(bytes.buffer, bytes.byteOffset + offset, count);
  const view = new DataView(bytes.buffer, bytes.byteOffset + offset + count);
  const numbers = new Float32Array(count);
  for (let row = 0; row < count / columns; row++) {
    const scale = view.getFloat32(4 * row, true);
    for (let place = row * columns; place < (row + 1) * columns; place++) numbers[place] = codes[place] * scale;
  }
  return numbers;
}
