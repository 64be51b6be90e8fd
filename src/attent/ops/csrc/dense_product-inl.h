// Products and transposes of a strip of queries. Included after simd.h, inside the namespace of one target.

// Numbers that a 32-bit word holds.
#ifdef PAIRS
constexpr int64_t PACK = 2;
#else
constexpr int64_t PACK = 1;
#endif

// Queries of a strip: one register of them, or two.
constexpr int64_t STRIP = 2 * LANES;

#if defined(__clang__) || __GNUC__ >= 12
// Interleave the first halves of two registers, or the second.
template <int FROM, int... I>
static inline Vector interleave(Vector a, Vector b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (FROM + I / 2 + I % 2 * LANES)...);
}

// Transpose a block of LANES × LANES.
static inline void transpose(const float* from, int64_t line, float* to, int64_t stride) {
  constexpr std::make_integer_sequence<int, LANES> indices{};
  Vector rows[LANES], swapped[LANES];
  for (int r = 0; r < LANES; ++r) rows[r] = load(from + r * line);
  // each step moves one bit of an element's row index to its column index
  for (int step = 1; step < LANES; step *= 2) {
    for (int r = 0; r < LANES / 2; ++r) {
      swapped[2 * r] = interleave<0>(rows[r], rows[r + LANES / 2], indices);
      swapped[2 * r + 1] = interleave<LANES / 2>(rows[r], rows[r + LANES / 2], indices);
    }
    for (int r = 0; r < LANES; ++r) rows[r] = swapped[r];
  }
  for (int r = 0; r < LANES; ++r) store(to + r * stride, rows[r]);
}
#else
static inline void transpose(const float* from, int64_t line, float* to, int64_t stride) {
  for (int r = 0; r < LANES; ++r)
    for (int c = 0; c < LANES; ++c) to[c * stride + r] = from[r * line + c];
}
#endif

// Add a weight times a register; with PAIRS, the product of two bfloat16 numbers of the weight with those of each lane.
static inline Vector multiply_add(Vector sum, float weight, Vector row) {
#ifdef PAIRS
  return (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)row, (__m512bh)_mm512_set1_ps(weight));
#else
  return sum + weight * row;
#endif
}

// R rows and N registers of  to = Σ_s weight(r, s) · from[s],  added to `to` if HAS_SUM. The weights are row-major or column-major, with
// `stride` between rows or columns.
template <int R, int N, bool IS_ROW_MAJOR, bool HAS_SUM>
static inline void block(const float* weights, int64_t stride, const float* from, int64_t line, float* to, int64_t to_line,
                         int64_t number) {
  // unrolled, as the sums would otherwise begin and end on the stack
  Vector sums[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) sums[r][n] = Vector{};
  for (int64_t s = 0; s < number; ++s) {
    Vector row[N];
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) row[n] = load(from + s * line + n * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float weight = IS_ROW_MAJOR ? weights[r * stride + s] : weights[s * stride + r];
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) sums[r][n] = multiply_add(sums[r][n], weight, row[n]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) {
      float* place = to + r * to_line + n * LANES;
      // sums of sums lose fewer bits than one long sum
      store(place, HAS_SUM ? load(place) + sums[r][n] : sums[r][n]);
    }
}

// `block` for at most R rows.
template <int R, int N, bool IS_ROW_MAJOR, bool HAS_SUM>
static inline void block_of(int64_t rows, const float* weights, int64_t stride, const float* from, int64_t line, float* to,
                            int64_t to_line, int64_t number) {
  if constexpr (R > 1)
    if (rows < R) return block_of<R - 1, N, IS_ROW_MAJOR, HAS_SUM>(rows, weights, stride, from, line, to, to_line, number);
  block<R, N, IS_ROW_MAJOR, HAS_SUM>(weights, stride, from, line, to, to_line, number);
}

template <int N, bool IS_ROW_MAJOR, bool HAS_SUM>
static inline void blocks(const float* weights, int64_t stride, const float* from, int64_t line, float* to, int64_t to_line, int64_t rows,
                          int64_t number) {
  // As many sums as there are registers for, of 32 or 16, in blocks of equal height: short ones would wait for their sums.
  constexpr int R = LANES == 16 || N == 1 ? 8 : 6;
  for (int64_t left = (rows + R - 1) / R; left > 0; --left) {
    const int64_t height = (rows + left - 1) / left;
    block_of<R, N, IS_ROW_MAJOR, HAS_SUM>(height, weights, stride, from, line, to, to_line, number);
    weights += height * (IS_ROW_MAJOR ? stride : 1), to += height * to_line, rows -= height;
  }
}

// `blocks` for rows of any width.
template <bool IS_ROW_MAJOR, bool HAS_SUM>
static void product(const float* weights, int64_t stride, const float* from, int64_t line, int64_t width, float* to, int64_t rows,
                    int64_t number) {
  int64_t c = 0;
  for (; c + LANES < width; c += 2 * LANES) blocks<2, IS_ROW_MAJOR, HAS_SUM>(weights, stride, from + c, line, to + c, line, rows, number);
  if (c < width) blocks<1, IS_ROW_MAJOR, HAS_SUM>(weights, stride, from + c, line, to + c, line, rows, number);
}

// `product` by column-major weights of any number of keys, or pairs of them.
static void product_of_keys(const float* weights, const float* from, int64_t line, int64_t width, float* to, int64_t rows, int64_t number) {
  product<false, false>(weights, STRIP, from, line, width, to, rows, number < BLOCK ? number : BLOCK);
  for (int64_t j = BLOCK; j < number; j += BLOCK)
    product<false, true>(weights + j * STRIP, STRIP, from + j * line, line, width, to, rows, number - j < BLOCK ? number - j : BLOCK);
}
