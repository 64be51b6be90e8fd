// Rows times packed weights. A panel holds PANEL columns: their weights, feature by feature, zeros after the last column; then their
// biases. Every sum begins with the bias and takes the features in order, independently of the number of rows.
// Included by the loops, inside their namespaces, after simd.h.

constexpr int64_t PANEL = 64;
// Features of a panel that fit the first-level cache; rows and registers of a tile of sums.
constexpr int64_t TILE_DEPTH = 128, TILE_ROWS = 6, TILE_REGISTERS = LANES == 16 ? 4 : 2;

// How weights are stored.
enum Kind { FLOAT32, BFLOAT16 };

struct Product {
  const uint8_t* panels;
  int64_t depth, columns, kind;
};

static inline int64_t padded(int64_t columns) { return (columns + PANEL - 1) / PANEL * PANEL; }

// Bytes of a panel.
static inline int64_t panel_size(int64_t kind, int64_t depth) { return PANEL * ((kind == BFLOAT16 ? 2 : 4) * depth + 4); }

// Bfloat16 is the upper half of float32.
static inline Vector load(const uint16_t* from) {
  typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));
  Halves halves;
  memcpy(&halves, from, sizeof halves);
  const Words bits = __builtin_convertvector(halves, Words) << 16;
  Vector vector;
  memcpy(&vector, &bits, sizeof vector);
  return vector;
}

// R rows, `stride` numbers apart, times one panel, plus the bias or, without one, the sums already in `to`.
template <int64_t R, typename Weight>
static void tile(const float* rows, int64_t stride, const Weight* panel, int64_t depth, const float* bias, float* to, int64_t to_stride) {
  for (int64_t c = 0; c < PANEL; c += TILE_REGISTERS * LANES) {
    Vector sums[R][TILE_REGISTERS];
    for (int64_t r = 0; r < R; ++r)
      for (int64_t s = 0; s < TILE_REGISTERS; ++s) sums[r][s] = load(bias ? bias + c + s * LANES : to + r * to_stride + c + s * LANES);
    const Weight* weights = panel + c;
    for (int64_t k = 0; k < depth; ++k, weights += PANEL) {
      Vector columns[TILE_REGISTERS];
      for (int64_t s = 0; s < TILE_REGISTERS; ++s) columns[s] = load(weights + s * LANES);
      for (int64_t r = 0; r < R; ++r)
        for (int64_t s = 0; s < TILE_REGISTERS; ++s) sums[r][s] += rows[r * stride + k] * columns[s];
    }
    for (int64_t r = 0; r < R; ++r)
      for (int64_t s = 0; s < TILE_REGISTERS; ++s) store(to + r * to_stride + c + s * LANES, sums[r][s]);
  }
}

// Any number of rows.
template <typename Weight>
static void tiles(const float* rows, int64_t number, int64_t stride, const Weight* panel, int64_t depth, const float* bias, float* to,
                  int64_t to_stride) {
  for (; number >= TILE_ROWS; number -= TILE_ROWS, rows += TILE_ROWS * stride, to += TILE_ROWS * to_stride)
    tile<TILE_ROWS>(rows, stride, panel, depth, bias, to, to_stride);
  switch (number) {
    case 5: return tile<5>(rows, stride, panel, depth, bias, to, to_stride);
    case 4: return tile<4>(rows, stride, panel, depth, bias, to, to_stride);
    case 3: return tile<3>(rows, stride, panel, depth, bias, to, to_stride);
    case 2: return tile<2>(rows, stride, panel, depth, bias, to, to_stride);
    case 1: return tile<1>(rows, stride, panel, depth, bias, to, to_stride);
  }
}

// Rows times one panel of floats.
template <typename Weight>
static void multiply_panel(const uint8_t* bytes, int64_t depth, const float* rows, int64_t number, int64_t stride, float* to,
                           int64_t to_stride) {
  const Weight* panel = reinterpret_cast<const Weight*>(bytes);
  const float* bias = reinterpret_cast<const float*>(panel + depth * PANEL);
  for (int64_t k = 0; k < depth; k += TILE_DEPTH)
    tiles(rows + k, number, stride, panel + k * PANEL, depth - k < TILE_DEPTH ? depth - k : TILE_DEPTH, k ? nullptr : bias, to, to_stride);
}

// Rows times the panels from column `begin` up to `end`; writes whole panels.
static void multiply(const Product& product, const float* rows, int64_t number, int64_t stride, int64_t begin, int64_t end, float* to,
                     int64_t to_stride) {
  const int64_t size = panel_size(product.kind, product.depth);
  const uint8_t* panel = product.panels + begin / PANEL * size;
  for (int64_t p = begin; p < end; p += PANEL, panel += size) {
    if (product.kind == BFLOAT16) multiply_panel<uint16_t>(panel, product.depth, rows, number, stride, to + p, to_stride);
    else multiply_panel<float>(panel, product.depth, rows, number, stride, to + p, to_stride);
  }
}
