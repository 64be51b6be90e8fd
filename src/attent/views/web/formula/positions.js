// Order: the positions of attention/positions, by the same names. Sinusoidal is added to embeddings, rotary turns queries and keys, alibi and
// relative_bias are added to scores.
import { Matrix } from "./matrix.js";

// The base of wavelengths, and the distance from which all have the same bucket.
const [BASE, FARTHEST] = [10000, 128];

/** PE(p, 2i) = sin(p / base^{2i/E}), PE(p, 2i + 1) = cos(p / base^{2i/E}) for the positions start, start + 1, …: (length, width). */
export function sinusoidal(length, width, start = 0, base = BASE) {
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

/** Queries or keys (T, D), D even, with each pair of adjacent features rotated by its position. */
export function rotary(features, start = 0) {
  const { rows, columns } = features;
  const rotated = new Matrix(rows, columns);
  const frequencies = Array.from({ length: columns }, (_, feature) => frequencyOf(feature, columns, BASE));
  for (let place = 0; place < rows; place++) {
    const [from, to] = [features.row(place), rotated.row(place)];
    for (let one = 0; one < columns; one += 2) {
      const angle = Math.fround((start + place) * frequencies[one]);
      const [sine, cosine] = [Math.sin(angle), Math.cos(angle)];
      to[one] = from[one] * cosine - from[one + 1] * sine;
      to[one + 1] = from[one] * sine + from[one + 1] * cosine;
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
export function relative_bias(table, head) {
  return (query, key) => table.at(bucket(key - query, table.rows / 2), head);
}

/** T5's bucket of a distance j − p; there are `count` of each sign. */
function bucket(offset, count) {
  const first = offset > 0 ? count : 0;
  const distance = Math.abs(offset);
  const exact = Math.floor(count / 2);
  if (distance < exact) return first + distance;
  // in float32, as in Python, where the boundaries of buckets lie
  const growth = Math.fround(Math.fround(Math.log(Math.fround(distance / exact))) / Math.log(FARTHEST / exact));
  return first + Math.min(exact + Math.trunc(Math.fround(growth * (count - exact))), count - 1);
}

// rounded to float32 where Python does, since an angle of thousands loses digits there
function frequencyOf(feature, width, base) {
  return Math.fround(Math.exp(Math.fround(-Math.log(base) * Math.fround(feature / width))));
}
