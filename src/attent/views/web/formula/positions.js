// Order: the positions of attention/positions, by the same names. Sinusoidal is added to embeddings, rotary turns queries and keys, alibi and
// relative_bias are added to scores.
import { Matrix } from "./matrix.js";

/** PE(p, 2i) = sin(p / base^{2i/E}), PE(p, 2i + 1) = cos(p / base^{2i/E}) for the positions start, start + 1, …: (length, width). */
export function sinusoidal(length, width, start = 0, base = 10000) {
  const table = new Matrix(length, width);
  const frequencies = Array.from({ length: width }, (_, feature) => frequencyOf(feature - (feature % 2), width, base));
  for (let place = 0; place < length; place++) {
    for (let feature = 0; feature < width; feature++) {
      const angle = Math.fround((start + place) * frequencies[feature]);
      table.row(place)[feature] = feature % 2 ? Math.cos(angle) : Math.sin(angle);
    }
  }
  return table;
}

/** Queries or keys (T, D), D even, with each pair of features rotated by its position; adjacent pairs if interleaved, else x_i with x_{i + D/2}. */
export function rotary(features, start = 0, { base = 10000, interleaved = true } = {}) {
  const { rows, columns } = features;
  const frequencies = Array.from({ length: columns / 2 }, (_, pair) => frequencyOf(2 * pair, columns, base));
  const rotated = new Matrix(rows, columns);
  for (let place = 0; place < rows; place++) {
    const [from, to] = [features.row(place), rotated.row(place)];
    for (let pair = 0; pair < columns / 2; pair++) {
      const [one, other] = interleaved ? [2 * pair, 2 * pair + 1] : [pair, pair + columns / 2];
      const angle = Math.fround((start + place) * frequencies[pair]);
      const [sine, cosine] = [Math.sin(angle), Math.cos(angle)];
      to[one] = from[one] * cosine - from[other] * sine;
      to[other] = from[one] * sine + from[other] * cosine;
    }
  }
  return rotated;
}

/** ALiBi's slope of each head. */
export function slopes(heads) {
  const power = 2 ** Math.floor(Math.log2(heads));
  const own = Array.from({ length: Math.min(power, heads) }, (_, head) => 2 ** ((-8 * (head + 1)) / power));
  return [...own, ...Array.from({ length: heads - power }, (_, head) => 2 ** ((-4 * (2 * head + 1)) / power))];
}

/** The bias of ALiBi for one head: a function of the positions of query and key. */
export function alibi(slope) {
  return (query, key) => -slope * Math.abs(query - key);
}

/** T5's bias for one head, whose numbers are in a column of `table` (buckets, heads). */
export function relative_bias(table, head, { maximum_distance = 128, bidirectional = true } = {}) {
  return (query, key) => table.at(bucket(key - query, table.rows, maximum_distance, bidirectional), head);
}

/** T5's bucket of a distance j − p. */
export function bucket(offset, buckets = 32, maximum_distance = 128, bidirectional = true) {
  const count = bidirectional ? buckets / 2 : buckets;
  const first = bidirectional && offset > 0 ? count : 0;
  const distance = bidirectional ? Math.abs(offset) : Math.max(-offset, 0);
  const exact = Math.floor(count / 2);
  if (distance < exact) return first + distance;
  // in float32, as in Python, where the boundaries of buckets lie
  const growth = Math.fround(Math.fround(Math.log(Math.fround(distance / exact))) / Math.log(maximum_distance / exact));
  return first + Math.min(exact + Math.trunc(Math.fround(growth * (count - exact))), count - 1);
}

// rounded to float32 where Python does, since an angle of thousands loses digits there
function frequencyOf(feature, width, base) {
  return Math.fround(Math.exp(Math.fround(-Math.log(base) * Math.fround(feature / width))));
}
