// Products and transposes of a strip of queries. Included after simd.h, inside the namespace of one target.

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

template <int N, bool IS_ROW_MAJOR, bool HAS_SUM>
static inline void blocks(const float* weights, int64_t stride, const float* from, int64_t line, float* to, int64_t to_line, int64_t rows,
                          int64_t number) {
  // as many sums as there are registers for
  constexpr int R = LANES == 16 || N == 1 ? 8 : 4;
  const int64_t row_step = IS_ROW_MAJOR ? stride : 1;
  int64_t r = 0;
  for (; r + R <= rows; r += R) block<R, N, IS_ROW_MAJOR, HAS_SUM>(weights + r * row_step, stride, from, line, to + r * to_line, to_line,
                                                                   number);
  if (R > 4 && r + 4 <= rows) {
    block<4, N, IS_ROW_MAJOR, HAS_SUM>(weights + r * row_step, stride, from, line, to + r * to_line, to_line, number);
    r += 4;
  }
  if (r + 2 <= rows) {
    block<2, N, IS_ROW_MAJOR, HAS_SUM>(weights + r * row_step, stride, from, line, to + r * to_line, to_line, number);
    r += 2;
  }
  if (r < rows) block<1, N, IS_ROW_MAJOR, HAS_SUM>(weights + r * row_step, stride, from, line, to + r * to_line, to_line, number);
}

// `blocks` for rows of any width.
template <bool IS_ROW_MAJOR, bool HAS_SUM>
static void product(const float* weights, int64_t stride, const float* from, int64_t line, int64_t width, float* to, int64_t rows,
                    int64_t number) {
  int64_t c = 0;
  for (; c + LANES < width; c += 2 * LANES) blocks<2, IS_ROW_MAJOR, HAS_SUM>(weights, stride, from + c, line, to + c, line, rows, number);
  if (c < width) blocks<1, IS_ROW_MAJOR, HAS_SUM>(weights, stride, from + c, line, to + c, line, rows, number);
}
