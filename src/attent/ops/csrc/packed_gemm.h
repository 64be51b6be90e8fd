// Rows times packed weights. A panel holds PANEL columns: their weights, feature by feature, zeros after the last column; then their
// biases. Every sum begins with the bias and takes the features in order, independently of the number of rows.
//
// Weights of 8 bits lie as int8.h has them, after them each column's scale and shift, then its bias. Rows are rounded to 8 bits by a scale
// of their own; the sums are exact.
// Included by the loops, inside their namespaces, after simd.h, bfloat16.h and int8.h.

constexpr int64_t PANEL = 64;
// Features of a panel that fit the first-level cache; rows and registers of a tile of sums.
constexpr int64_t TILE_DEPTH = 128, TILE_ROWS = 6, TILE_REGISTERS = LANES == 16 ? 4 : 2;

// The type of weights; INT8 + n for the n-th kernel of int8.h, and FIXED more if the panels tell the scale of the rows.
enum Kind { FLOAT32, BFLOAT16, INT8, FIXED = 8 };

struct Product {
  const uint8_t* panels;
  int64_t depth, columns, kind;
};

static inline int64_t padded(int64_t columns) { return (columns + PANEL - 1) / PANEL * PANEL; }

// Features of a row or a panel of 8 bits, filled up.
static inline int64_t filled(int64_t depth) { return (depth + INT8_STEP - 1) / INT8_STEP * INT8_STEP; }

// Bytes of a panel.
static inline int64_t panel_size(int64_t kind, int64_t depth) {
  return PANEL * (kind >= INT8 ? filled(depth) + (kind >= FIXED ? 16 : 12) : (kind == BFLOAT16 ? 2 : 4) * depth + 4);
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

// Round a row to 8 bits, to the nearest multiple of its largest number / 127, plus 128; return that scale. The scale of a row of numbers
// that are almost zero is 0, and that of a row with a number that is not finite is NaN. With a factor that is not 0, numbers are rounded
// after multiplying by it, at most 127; the scale is its inverse.
static float quantize(const float* row, int64_t depth, float factor, uint8_t* to) {
  constexpr int32_t NOT_FINITE = 0x7f800000;
  const float magic = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer, held in the lowest bits
  const int64_t whole = depth / LANES * LANES, last = depth - whole;
  float tail[LANES] = {};
  memcpy(tail, row + whole, 4 * last);
  Integers largest{};
  for (int64_t k = 0; k < depth; k += LANES) {
    const Vector numbers = load(k < whole ? row + k : tail);
    Integers bits;
    memcpy(&bits, &numbers, sizeof bits);
    bits &= 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  int32_t maximum = 0;
  for (int64_t l = 0; l < LANES; ++l) maximum = largest[l] > maximum ? largest[l] : maximum;
  float size;
  memcpy(&size, &maximum, 4);
  const bool is_zero = size < 1e-30f, is_finite = maximum < NOT_FINITE;
  const float inverse = is_zero || !is_finite ? 0.0f : factor != 0.0f ? factor : 127.0f / size;
  for (int64_t k = 0; k < depth; k += LANES) {
    const Vector scaled = rounded(load(k < whole ? row + k : tail) * inverse), least = scaled < -127.0f ? broadcast(-127.0f) : scaled;
    const Vector shifted = (least > 127.0f ? broadcast(127.0f) : least) + magic;
    Words bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits += 128;
#if LANES == 16
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + k), _mm512_cvtepi32_epi8((__m512i)bits));
#else
    for (int64_t l = 0; l < LANES; ++l) to[k + l] = static_cast<uint8_t>(bits[l]);
#endif
  }
  for (int64_t k = whole + LANES * (last > 0); k < filled(depth); ++k) to[k] = 128;
  return is_zero ? 0.0f : !is_finite ? __builtin_nanf("") : factor != 0.0f ? 1.0f / factor : size / 127.0f;
}

// to = sums · scale of the column · scale of the row + bias, each rounded.
static void dequantize(const int32_t* sums, int64_t number, const float* row_scales, const float* scales, const float* bias, float* to,
                       int64_t to_stride) {
  for (int64_t r = 0; r < number; ++r, sums += PANEL, to += to_stride)
    for (int64_t c = 0; c < PANEL; c += LANES) {
      Integers exact;
      memcpy(&exact, sums + c, sizeof exact);
      store(to + c, rounded(__builtin_convertvector(exact, Vector) * load(scales + c) * row_scales[r]) + load(bias + c));
    }
}

// `multiply` by weights of 8 bits.
static void multiply_int8(const Product& product, const float* rows, int64_t number, int64_t stride, int64_t begin, int64_t end, float* to,
                          int64_t to_stride) {
  // what fits a thread's stack, and sums that fit the first-level cache
  constexpr int64_t BYTES = 1 << 18, ROWS = 192, SUMMED = 32;
  alignas(64) uint8_t quantized[BYTES];
  alignas(64) int32_t sums[SUMMED * PANEL];
  float row_scales[ROWS];
  const int64_t index = (product.kind - INT8) % FIXED, tables = product.kind >= FIXED ? 3 : 2;
  const Int8Kernel kernel = int8_kernel(index);
  const int64_t depth = filled(product.depth), size = panel_size(product.kind, product.depth), fitting = BYTES / depth;
  const int64_t block = number < fitting ? (number < ROWS ? number : ROWS) : (fitting < ROWS ? fitting : ROWS);
  for (int64_t i = 0; i < number; i += block, rows += block * stride, to += block * to_stride) {
    const int64_t count = number - i < block ? number - i : block;
    float factor = -1.0f;
    const uint8_t* panel = product.panels + begin / PANEL * size;
    for (int64_t p = begin; p < end; p += PANEL, panel += size) {
      const float* scales = reinterpret_cast<const float*>(panel + PANEL * depth);
      const int32_t* shifts = reinterpret_cast<const int32_t*>(scales + PANEL);
      // matrices of one product may have different factors
      if (const float own = tables > 2 ? scales[2 * PANEL] : 0.0f; own != factor) {
        factor = own;
        for (int64_t r = 0; r < count; ++r) row_scales[r] = quantize(rows + r * stride, product.depth, factor, quantized + r * depth);
      }
      for (int64_t r = 0, summed; r < count; r += summed) {
        // whole tiles of rows
        summed = count - r <= SUMMED ? count - r : index == 4 ? SUMMED : SUMMED / TILE_ROWS * TILE_ROWS;
        kernel(quantized + r * depth, summed, reinterpret_cast<const int8_t*>(panel), depth / 4, shifts, sums);
        dequantize(sums, summed, row_scales + r, scales, scales + tables * PANEL, to + r * to_stride + p, to_stride);
      }
    }
  }
}

// Rows times the panels from column `begin` up to `end`; writes whole panels.
static void multiply(const Product& product, const float* rows, int64_t number, int64_t stride, int64_t begin, int64_t end, float* to,
                     int64_t to_stride) {
  if (product.kind >= INT8) return multiply_int8(product, rows, number, stride, begin, end, to, to_stride);
  const int64_t size = panel_size(product.kind, product.depth);
  const uint8_t* panel = product.panels + begin / PANEL * size;
  for (int64_t p = begin; p < end; p += PANEL, panel += size) {
    if (product.kind == BFLOAT16) multiply_panel<uint16_t>(panel, product.depth, rows, number, stride, to + p, to_stride);
    else multiply_panel<float>(panel, product.depth, rows, number, stride, to + p, to_stride);
  }
}
