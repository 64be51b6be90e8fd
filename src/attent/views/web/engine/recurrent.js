// Recurrent layers: gated units, in one direction step by step, and in both over a whole sequence.
import { Matrix } from "../formula/matrix.js";
import { joined, linearOf, sigmoid } from "./linear.js";

/** A layer of gated recurrent units; a state is {hidden, cell}, whose cell is null for a GRU. */
export class Recurrent {
  constructor(parameters) {
    const network = parameters.at("network");
    [this.input, this.hidden] = ["ih", "hh"].map((side) => ({ weight: network.matrix(`weight_${side}_l0`), bias: network.vector(`bias_${side}_l0`) }));
    this.width = this.hidden.weight.columns;
    this.isGru = this.hidden.weight.rows === 3 * this.width;
  }

  zero() {
    return { hidden: new Float32Array(this.width), cell: this.isGru ? null : new Float32Array(this.width) };
  }

  /** The state after an input, h = (1 − z) n + z h⁻ or h = o tanh(c). */
  step(x, { hidden, cell }) {
    const { width } = this;
    const [own, before] = [linearOf(this.input, x), linearOf(this.hidden, hidden)];
    const gate = (number, index) => sigmoid(own[number * width + index] + before[number * width + index]);
    const next = { hidden: new Float32Array(width), cell: this.isGru ? null : new Float32Array(width) };
    for (let index = 0; index < width; index++) {
      const [r, z] = [gate(0, index), gate(1, index)];
      if (this.isGru) {
        const n = Math.tanh(own[2 * width + index] + r * before[2 * width + index]);
        next.hidden[index] = (1 - z) * n + z * hidden[index];
      } else {
        // the input gate comes first, the forget gate second
        next.cell[index] = z * cell[index] + r * Math.tanh(own[2 * width + index] + before[2 * width + index]);
        next.hidden[index] = gate(3, index) * Math.tanh(next.cell[index]);
      }
    }
    return next;
  }
}

/** Layers that read a sequence in both directions: [h→_j; h←_j]. */
export class BidirectionalRecurrent {
  constructor(parameters, count) {
    this.layers = Array.from({ length: count }, (_, layer) => ["forwards", "backwards"].map((way) => new Recurrent(parameters.at(`${way}.${layer}`))));
  }

  /** Features (T, E) → (T, 2 width). */
  forward(features) {
    for (const [ahead, back] of this.layers) {
      const read = new Matrix(features.rows, 2 * ahead.width);
      let [one, other] = [ahead.zero(), back.zero()];
      for (let place = 0; place < features.rows; place++) {
        const last = features.rows - 1 - place;
        one = ahead.step(features.row(place), one);
        other = back.step(features.row(last), other);
        read.row(place).set(one.hidden);
        read.row(last).set(other.hidden, ahead.width);
      }
      features = read;
    }
    return features;
  }
}

/** Layers of which each reads the states of the one below, one step at a time. */
export class RecurrentStack {
  constructor(parameters, count) {
    this.layers = Array.from({ length: count }, (_, layer) => new Recurrent(parameters.at(`layers.${layer}`)));
  }

  /** The states after an input. */
  step(x, states) {
    return this.layers.map((layer, number) => {
      const state = layer.step(x, states[number]);
      x = state.hidden;
      return state;
    });
  }
}

/** The last output of each direction, [h→_T; h←_1]. */
export function ends(features) {
  const width = features.columns / 2;
  return joined(features.row(features.rows - 1).subarray(0, width), features.row(0).subarray(width));
}
