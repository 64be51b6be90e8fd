// Which keys a query may attend to: the masks of attention/masks, by the same names.
// MASKS.name(parameters) is a function (query, key) of two positions, which is true where the query may attend.

export const MASKS = {
  none: () => () => true,
  causal: () => (query, key) => key <= query,
  /** `left` keys before the query and `right` after it; null for all of them */
  window: ({ left = 1, right = 1 } = {}) => (query, key) => (left === null || key >= query - left) && (right === null || key <= query + right),
  /** the first `length` keys */
  prefix: ({ length = 1 } = {}) => (_, key) => key < length,
  /** at most `distance` from centers[query] */
  around: ({ centers, distance }) => (query, key) => Math.abs(key - centers[query]) <= distance,
  /** the keys of the query's own document; `keys` has each key's number, negative for padding */
  documents: ({ keys, queries = keys }) => (query, key) => keys[key] >= 0 && keys[key] === queries[query],
  selected: ({ indices }) => (query, key) => indices[query].includes(key),
  excluded: ({ indices }) => (query, key) => !indices[query].includes(key),
  /** the first `length` keys are real */
  padding: ({ length }) => (_, key) => key < length,
};

/** Where both masks allow. */
export function both(one, other) {
  return (query, key) => one(query, key) && other(query, key);
}
