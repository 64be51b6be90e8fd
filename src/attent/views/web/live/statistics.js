// Figures of a head: means over its queries, as attention/maps/statistics.py computes them; a query that sees no key is left out.

/** Entropy in nats, distance in tokens, and the weights on the first token, the one before and the same; null where one is not defined. */
export function statistics({ rows, columns, data }, isDistribution, isSelf) {
  const sums = { entropy: 0, distance: 0, first: 0, previous: 0, same: 0 };
  let count = 0;
  for (let row = 0; row < rows; row++) {
    const weights = data.subarray(row * columns, (row + 1) * columns);
    // the last query stands at the last key
    const position = row + columns - rows;
    let total = 0;
    weights.forEach((weight, key) => {
      total += weight;
      if (weight > 0) sums.entropy -= weight * Math.log(weight);
      sums.distance += weight * Math.abs(position - key);
    });
    sums.first += weights[0];
    sums.previous += weights[position - 1] ?? 0;
    sums.same += weights[position] ?? 0;
    count += total > 0;
  }
  const isKnown = (name) => isDistribution && (isSelf || !["distance", "previous", "same"].includes(name));
  return Object.fromEntries(Object.entries(sums).map(([name, sum]) => [name, isKnown(name) ? sum / Math.max(count, 1) : null]));
}
