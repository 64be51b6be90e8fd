// Rows times packed weights. A panel holds the weights of PANEL columns, one feature's behind the other's, zeros behind the last column.
// Every sum begins with the bias and takes the features in order, however many rows there are: a row's products are its own.
// Included by the loops, inside their namespaces, behind lanes.h.

constexpr int64_t PANEL = 64;
// Features of a panel that stay in the nearest cache while rows pass by; rows and registers that are summed side by side.
constexpr int64_t DEEP = 128, HIGH = 6, SIDE = LANES == 16 ? 4 : 2;

struct Product {
  const float *panels, *bias;
  int64_t depth, columns;
};

static inline int64_t padded(int64_t columns) { return (columns + PANEL - 1) / PANEL * PANEL; }

// R rows, `apart` numbers from each other, times one panel: begun with the bias, or going on with what stands there if there is none.
template <int64_t R>
static void tile(const float* rows, int64_t apart, const float* panel, int64_t depth, const float* bias, float* to, int64_t gap) {
  for (int64_t c = 0; c < PANEL; c += SIDE * LANES) {
    Vector sums[R][SIDE];
    for (int64_t r = 0; r < R; ++r)
      for (int64_t s = 0; s < SIDE; ++s) sums[r][s] = load(bias ? bias + c + s * LANES : to + r * gap + c + s * LANES);
    const float* weights = panel + c;
    for (int64_t k = 0; k < depth; ++k, weights += PANEL) {
      Vector some[SIDE];
      for (int64_t s = 0; s < SIDE; ++s) some[s] = load(weights + s * LANES);
      for (int64_t r = 0; r < R; ++r)
        for (int64_t s = 0; s < SIDE; ++s) sums[r][s] += rows[r * apart + k] * some[s];
    }
    for (int64_t r = 0; r < R; ++r)
      for (int64_t s = 0; s < SIDE; ++s) store(to + r * gap + c + s * LANES, sums[r][s]);
  }
}

// Any number of rows.
static void tiles(const float* rows, int64_t number, int64_t apart, const float* panel, int64_t depth, const float* bias, float* to,
                  int64_t gap) {
  for (; number >= HIGH; number -= HIGH, rows += HIGH * apart, to += HIGH * gap) tile<HIGH>(rows, apart, panel, depth, bias, to, gap);
  switch (number) {
    case 5: return tile<5>(rows, apart, panel, depth, bias, to, gap);
    case 4: return tile<4>(rows, apart, panel, depth, bias, to, gap);
    case 3: return tile<3>(rows, apart, panel, depth, bias, to, gap);
    case 2: return tile<2>(rows, apart, panel, depth, bias, to, gap);
    case 1: return tile<1>(rows, apart, panel, depth, bias, to, gap);
  }
}

// Rows times the panels from column `first` up to `last`; writes whole panels.
static void multiply(const Product& product, const float* rows, int64_t number, int64_t apart, int64_t first, int64_t last, float* to,
                     int64_t gap) {
  for (int64_t p = first; p < last; p += PANEL) {
    const float* panel = product.panels + p * product.depth;
    for (int64_t k = 0; k < product.depth; k += DEEP)
      tiles(rows + k, number, apart, panel + k * PANEL, product.depth - k < DEEP ? product.depth - k : DEEP, k ? nullptr : product.bias + p,
            to + p, gap);
  }
}
