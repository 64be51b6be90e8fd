// Which keys a query may attend to: those masks of attention/masks that pages use, by the same names.
// MASKS.name(parameters) is a function (query, key) of two positions, which is true where the query may attend.

export const MASKS = {
  none: () => () => true,
  causal: () => (query, key) => key <= query,
  /** `left` keys before the query and `right` after it */
  window: ({ left = 1, right = 1 } = {}) => (query, key) => key >= query - left && key <= query + right,
  /** the first `length` keys */
  prefix: ({ length = 1 } = {}) => (_, key) => key < length,
};

/** Where both masks allow. */
export function both(one, other) {
  return (query, key) => one(query, key) && other(query, key);
}
