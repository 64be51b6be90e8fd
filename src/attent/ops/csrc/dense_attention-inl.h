// The loops of dense_attention.cpp for one width of vector registers (LANES floats). foreach_target.h includes this file for each width.

#include "simd.h"

#include "bfloat16.h"

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
    for (int n = 0; n < N; ++n) sums[r][n] = HAS_SUM ? load(to + r * to_line + n * LANES) : Vector{};
  for (int64_t s = 0; s < number; ++s) {
    Vector row[N];
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) row[n] = load(from + s * line + n * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float weight = IS_ROW_MAJOR ? weights[r * stride + s] : weights[s * stride + r];
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) sums[r][n] += weight * row[n];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) store(to + r * to_line + n * LANES, sums[r][n]);
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

// Copy the caller's rows to lines, with zeros for keys that no query attends to.
template <typename T>
static void gather(const T* from, int64_t step, int64_t rows, int64_t width, const int32_t* counts, float* to, int64_t line) {
  for (int64_t j = 0; j < rows; ++j) {
    if (counts && !counts[j]) memset(to + j * line, 0, 4 * line);
    else read_row(from + j * step, width, to + j * line);
  }
}

static inline void gather(const void* from, bool is_half, int64_t offset, int64_t step, int64_t rows, int64_t width,
                          const int32_t* counts, float* to, int64_t line) {
  if (is_half) gather(static_cast<const uint16_t*>(from) + offset, step, rows, width, counts, to, line);
  else gather(static_cast<const float*>(from) + offset, step, rows, width, counts, to, line);
}

// Write lines to rows `step` apart, times the factors.
template <typename T>
static void put(const float* from, int64_t line, int64_t rows, int64_t width, const float* factors, T* to, int64_t step) {
  for (int64_t i = 0; i < rows; ++i) write_row(from + i * line, factors ? factors[i] : 1.0f, width, to + i * step);
}

static inline void put(const float* from, int64_t line, int64_t rows, int64_t width, const float* factors, void* to, bool is_half,
                       int64_t offset, int64_t step) {
  if (is_half) put(from, line, rows, width, factors, static_cast<uint16_t*>(to) + offset, step);
  else put(from, line, rows, width, factors, static_cast<float*>(to) + offset, step);
}

static void fill_zero(void* to, bool is_half, int64_t offset, int64_t rows, int64_t width, int64_t step) {
  const int64_t size = is_half ? 2 : 4;
  for (int64_t i = 0; width && i < rows; ++i) memset(static_cast<char*>(to) + size * (offset + i * step), 0, size * width);
}

// The hash of hash.h, for a register.
static inline Words lowbias32_vector(Words bits) {
  bits = (bits ^ (bits >> 16)) * 0x7FEB352Du;
  bits = (bits ^ (bits >> 15)) * 0x846CA68Bu;
  return bits ^ (bits >> 16);
}

// A strip of queries of one head: the range of keys of any of them, and the first key and number of keys of each.
template <int N>
struct Strip {
  int64_t b, h, row, count, from, end;
  Words begin[N], lengths[N], row_hash[N];
};

template <int N>
static inline Strip<N> strip_of(const Problem& job, const KeyRange& keys_range, int64_t b, int64_t h, int64_t row, int64_t count) {
  const Shape& shape = job.shape;
  Strip<N> strip{b, h, row, count, keys_range.begin, keys_range.end, {}, {}, {}};
  uint32_t begin[N * LANES] = {}, lengths[N * LANES] = {}, rows[N * LANES];
  for (int64_t i = 0; i < N * LANES; ++i) {
    begin[i] = static_cast<uint32_t>(keys_range.begin), lengths[i] = static_cast<uint32_t>(keys_range.end - keys_range.begin);
    rows[i] = OF_ROW * static_cast<uint32_t>(row + i);
  }
  if (job.begin) {
    strip.from = shape.keys, strip.end = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row_begin = job.begin[shape.begin.to(b, h, row + i)], row_end = job.end[shape.end.to(b, h, row + i)];
      const int64_t clamped_begin = row_begin > 0 ? row_begin : 0, end = row_end < shape.keys ? row_end : shape.keys;
      begin[i] = static_cast<uint32_t>(clamped_begin), lengths[i] = clamped_begin < end ? static_cast<uint32_t>(end - clamped_begin) : 0;
      if (clamped_begin >= end) continue;
      strip.from = clamped_begin < strip.from ? clamped_begin : strip.from, strip.end = end > strip.end ? end : strip.end;
    }
  }
  memcpy(strip.begin, begin, sizeof begin), memcpy(strip.lengths, lengths, sizeof lengths), memcpy(strip.row_hash, rows, sizeof rows);
  const uint32_t head = job.seed_hash + OF_SEQUENCE * static_cast<uint32_t>(b) + OF_HEAD * static_cast<uint32_t>(h);
  for (int n = 0; n < N; ++n) strip.row_hash[n] = lowbias32_vector(strip.row_hash[n] + head);
  return strip;
}

// The bias of a register of queries with key j.
template <int N>
static inline Vector bias_of(const Problem& job, const Strip<N>& strip, int64_t j, int n) {
  const float* row = job.bias + job.shape.bias.to(strip.b, strip.h, j);
  if (!job.shape.has_query_bias) return broadcast(*row);
  const int64_t remaining = strip.count - n * LANES;
  row += strip.row + n * LANES;
  if (remaining >= LANES) return load(row);
  float buffer[LANES] = {};
  memcpy(buffer, row, 4 * remaining);
  return load(buffer);
}

// Replace unscaled scores (keys, STRIP) by e^(score − maximum), and sum these over the keys.
template <int N>
static inline void exponentials(const Problem& job, const Strip<N>& strip, float* scores, Vector (&sums)[N]) {
  const float scale = job.scale;
  const bool has_bias = job.bias != nullptr;
  Vector maxima[N];
  for (int n = 0; n < N; ++n) maxima[n] = broadcast(-INFINITY), sums[n] = Vector{};
  for (int64_t j = strip.from; j < strip.end; ++j)
    for (int n = 0; n < N; ++n) {
      float* position = scores + (j - strip.from) * STRIP + n * LANES;
      Vector score = load(position) * scale;
      if (has_bias) score += bias_of(job, strip, j, n);
      score = static_cast<uint32_t>(j) - strip.begin[n] < strip.lengths[n] ? score : broadcast(-INFINITY);
      store(position, score);
      maxima[n] = score > maxima[n] ? score : maxima[n];
    }
  // a fully masked row gets zeros
  for (int n = 0; n < N; ++n) maxima[n] = maxima[n] == broadcast(-INFINITY) ? Vector{} : maxima[n];
  for (int64_t j = strip.from; j < strip.end; ++j)
    for (int n = 0; n < N; ++n) {
      float* position = scores + (j - strip.from) * STRIP + n * LANES;
      const Vector power = exponential_or_zero(load(position) - maxima[n]);
      sums[n] += power;
      store(position, power);
    }
}

// The factor of a weight: 0 if dropped.
template <int N>
static inline Vector dropout_factor(const Problem& job, const Strip<N>& strip, int64_t j, int n) {
  const Words bits = lowbias32_vector(strip.row_hash[n] + lowbias32(OF_COLUMN + static_cast<uint32_t>(j)));
  return bits >= job.threshold ? broadcast(job.factor) : Vector{};
}

template <int N>
static void inverses(const Vector (&sums)[N], Vector (&results)[N]) {
  for (int n = 0; n < N; ++n) results[n] = sums[n] == Vector{} ? Vector{} : 1.0f / sums[n];
}

// Load queries, or their gradients, as lines (STRIP, line) and transposed (line, STRIP).
template <int N>
static void load_transposed(const void* from, bool is_half, int64_t offset, int64_t step, int64_t count, int64_t width, float* lines,
                            int64_t line, float* to) {
  gather(from, is_half, offset, step, count, width, nullptr, lines, line);
  memset(lines + count * line, 0, 4 * (N * LANES - count) * line);
  for (int64_t c = 0; c < width; c += LANES)
    for (int n = 0; n < N; ++n) transpose(lines + n * LANES * line + c, line, to + c * STRIP + n * LANES, STRIP);
}

// The buffers of one sequence.
struct Workspace {
  int64_t line, value_line;
  float *keys, *values, *dkeys, *dvalues, *queries, *transposed, *contexts, *transposed_gradient, *scores, *dscores, *dropped;
  int32_t* counts;
};

static Workspace workspace_of(const Shape& shape, float* scratch, bool gradients) {
  Workspace workspace{};
  const auto take = [&scratch](int64_t numbers) { return (scratch += numbers) - numbers; };
  workspace.line = line_of(shape.width), workspace.value_line = line_of(shape.value_width);
  workspace.keys = take(shape.keys * workspace.line), workspace.values = take(shape.keys * workspace.value_line);
  workspace.queries = take(STRIP * workspace.line), workspace.transposed = take(STRIP * workspace.line);
  workspace.contexts = take(STRIP * workspace.value_line), workspace.scores = take(STRIP * shape.keys);
  if (gradients) {
    workspace.dkeys = take(shape.keys * workspace.line), workspace.dvalues = take(shape.keys * workspace.value_line);
    workspace.transposed_gradient = take(STRIP * (workspace.value_line > workspace.line ? workspace.value_line : workspace.line));
    workspace.dscores = take(STRIP * shape.keys), workspace.dropped = take(STRIP * shape.keys);
  }
  workspace.counts = reinterpret_cast<int32_t*>(take(shape.keys + 1));
  return workspace;
}

// Load the keys and values in the range of keys.
static KeyRange prepare(const Problem& job, int64_t b, int64_t group, const Workspace& workspace) {
  const Shape& shape = job.shape;
  const KeyRange keys_range = key_range_of(job, b, group, workspace.counts);
  const int64_t number = keys_range.end - keys_range.begin;
  const int32_t* counts = keys_range.counts ? keys_range.counts + keys_range.begin : nullptr;
  gather(job.key, shape.is_key_half, shape.key.to(b, group, keys_range.begin), shape.key.row, number, shape.width, counts, workspace.keys,
         workspace.line);
  gather(job.value, shape.is_value_half, shape.value.to(b, group, keys_range.begin), shape.value.row, number, shape.value_width, counts,
         workspace.values, workspace.value_line);
  return keys_range;
}

template <int N>
static void attend_strip(const Problem& job, const KeyRange& keys_range, const Workspace& workspace, int64_t b, int64_t h, int64_t row,
                         int64_t count) {
  const Shape& shape = job.shape;
  const Strip<N> strip = strip_of<N>(job, keys_range, b, h, row, count);
  const int64_t number = strip.end - strip.from, skipped = strip.from - keys_range.begin, width = shape.value_width;
  const int64_t offset = ((b * shape.queries + row) * shape.heads + h) * width, stride = shape.heads * width;
  if (number <= 0) {
    fill_zero(job.context, shape.is_context_half, offset, count, width, stride);
    return;
  }
  load_transposed<N>(job.query, shape.is_query_half, shape.query.to(b, h, row), shape.query.row, count, shape.width, workspace.queries,
                     workspace.line, workspace.transposed);
  blocks<N, true, false>(workspace.keys + skipped * workspace.line, workspace.line, workspace.transposed, STRIP, workspace.scores, STRIP,
                         number, shape.width);
  Vector sums[N], inverse[N];
  exponentials(job, strip, workspace.scores, sums);
  for (int64_t j = 0; job.threshold && j < number; ++j)
    for (int n = 0; n < N; ++n) {
      float* weight = workspace.scores + j * STRIP + n * LANES;
      store(weight, load(weight) * dropout_factor(job, strip, strip.from + j, n));
    }
  product<false, false>(workspace.scores, STRIP, workspace.values + skipped * workspace.value_line, workspace.value_line, width,
                        workspace.contexts, count, number);
  inverses(sums, inverse);
  float factors[N * LANES];
  memcpy(factors, inverse, sizeof factors);
  put(workspace.contexts, workspace.value_line, count, width, factors, job.context, shape.is_context_half, offset, stride);
}

// Turn exponentials into weights, and `dscores` from the gradients of the dropped weights into those of the scores; `dropped` receives
// the weights after dropout.
template <int N>
static void score_gradients(const Problem& job, const Strip<N>& strip, const Vector (&sums)[N], float* weights, float* dscores,
                            float* dropped) {
  Vector inverse[N], mean[N];
  inverses(sums, inverse);
  for (int n = 0; n < N; ++n) mean[n] = Vector{};
  const int64_t number = strip.end - strip.from;
  for (int64_t j = 0; j < number; ++j)
    for (int n = 0; n < N; ++n) {
      const int64_t offset = j * STRIP + n * LANES;
      const Vector weight = load(weights + offset) * inverse[n];
      const Vector dropped_weight = job.threshold ? weight * dropout_factor(job, strip, strip.from + j, n) : weight;
      const Vector product = dropped_weight * load(dscores + offset);
      mean[n] += product;
      store(weights + offset, weight), store(dropped + offset, dropped_weight), store(dscores + offset, product);
    }
  for (int64_t j = 0; j < number; ++j)
    for (int n = 0; n < N; ++n) {
      const int64_t offset = j * STRIP + n * LANES;
      store(dscores + offset, (load(dscores + offset) - load(weights + offset) * mean[n]) * job.scale);
    }
}

template <int N>
static void gradients_strip(const Problem& job, const KeyRange& keys_range, const Workspace& workspace, int64_t b, int64_t h, int64_t row,
                            int64_t count) {
  const Shape& shape = job.shape;
  const Strip<N> strip = strip_of<N>(job, keys_range, b, h, row, count);
  const int64_t number = strip.end - strip.from, skipped = strip.from - keys_range.begin, width = shape.width;
  const int64_t offset = ((b * shape.queries + row) * shape.heads + h) * width, stride = shape.heads * width;
  if (number <= 0) {
    fill_zero(job.dquery, shape.is_query_half, offset, count, width, stride);
    return;
  }
  const float *keys = workspace.keys + skipped * workspace.line, *values = workspace.values + skipped * workspace.value_line;
  load_transposed<N>(job.query, shape.is_query_half, shape.query.to(b, h, row), shape.query.row, count, width, workspace.queries,
                     workspace.line, workspace.transposed);
  blocks<N, true, false>(keys, workspace.line, workspace.transposed, STRIP, workspace.scores, STRIP, number, width);
  Vector sums[N];
  exponentials(job, strip, workspace.scores, sums);
  load_transposed<N>(job.gradient, shape.is_context_half, shape.gradient.to(b, h, row), shape.gradient.row, count, shape.value_width,
                     workspace.contexts, workspace.value_line, workspace.transposed_gradient);
  blocks<N, true, false>(values, workspace.value_line, workspace.transposed_gradient, STRIP, workspace.dscores, STRIP, number,
                         shape.value_width);
  score_gradients(job, strip, sums, workspace.scores, workspace.dscores, workspace.dropped);
  product<true, true>(workspace.dropped, STRIP, workspace.contexts, workspace.value_line, shape.value_width,
                      workspace.dvalues + skipped * workspace.value_line, number, count);
  product<true, true>(workspace.dscores, STRIP, workspace.queries, workspace.line, width, workspace.dkeys + skipped * workspace.line,
                      number, count);
  // reuses the memory of the transposed gradients
  product<false, false>(workspace.dscores, STRIP, keys, workspace.line, width, workspace.transposed_gradient, count, number);
  put(workspace.transposed_gradient, workspace.line, count, width, nullptr, job.dquery, shape.is_query_half, offset, stride);
}

// Write the gradients of keys or values, with zeros outside the range.
static void put_keys(const Shape& shape, const KeyRange& keys_range, const float* from, int64_t line, void* to, bool is_half, int64_t b,
                     int64_t group, int64_t width) {
  const int64_t offset = (b * shape.keys * shape.groups + group) * width, step = shape.groups * width;
  fill_zero(to, is_half, offset, keys_range.begin, width, step);
  put(from, line, keys_range.end - keys_range.begin, width, nullptr, to, is_half, offset + keys_range.begin * step, step);
  fill_zero(to, is_half, offset + keys_range.end * step, shape.keys - keys_range.end, width, step);
}

// One sequence's group of heads, which share keys and values.
static void attend(const Problem& job, int64_t task, float* scratch) {
  const Shape& shape = job.shape;
  const int64_t b = task / shape.groups, group = task % shape.groups, heads_per_group = shape.heads / shape.groups;
  const Workspace workspace = workspace_of(shape, scratch, false);
  const KeyRange keys_range = prepare(job, b, group, workspace);
  for (int64_t h = group * heads_per_group; h < (group + 1) * heads_per_group; ++h)
    for (int64_t row = 0; row < shape.queries; row += STRIP) {
      const int64_t remaining = shape.queries - row;
      if (remaining > LANES) attend_strip<2>(job, keys_range, workspace, b, h, row, remaining < STRIP ? remaining : STRIP);
      else attend_strip<1>(job, keys_range, workspace, b, h, row, remaining);
    }
}

static void gradients(const Problem& job, int64_t task, float* scratch) {
  const Shape& shape = job.shape;
  const int64_t b = task / shape.groups, group = task % shape.groups, heads_per_group = shape.heads / shape.groups;
  const Workspace workspace = workspace_of(shape, scratch, true);
  const KeyRange keys_range = prepare(job, b, group, workspace);
  memset(workspace.dkeys, 0, 4 * (keys_range.end - keys_range.begin) * workspace.line);
  memset(workspace.dvalues, 0, 4 * (keys_range.end - keys_range.begin) * workspace.value_line);
  for (int64_t h = group * heads_per_group; h < (group + 1) * heads_per_group; ++h)
    for (int64_t row = 0; row < shape.queries; row += STRIP) {
      const int64_t remaining = shape.queries - row;
      if (remaining > LANES) gradients_strip<2>(job, keys_range, workspace, b, h, row, remaining < STRIP ? remaining : STRIP);
      else gradients_strip<1>(job, keys_range, workspace, b, h, row, remaining);
    }
  put_keys(shape, keys_range, workspace.dkeys, workspace.line, job.dkey, shape.is_key_half, b, group, shape.width);
  put_keys(shape, keys_range, workspace.dvalues, workspace.value_line, job.dvalue, shape.is_value_half, b, group, shape.value_width);
}
