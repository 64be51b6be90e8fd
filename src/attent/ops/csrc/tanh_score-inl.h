// The loops of tanh_score.cpp for one width of vector registers (LANES floats). foreach_target.h includes this file for each width.
//
// With A = e^2q' / 2 and B = e^2k', y = AB + 1/2 is (1 + e^2(q' + k')) / 2, and 1 / y − 1 = −tanh(q' + k').

#include "simd.h"

// Registers of a block of keys, and those of one pass of the inner loop.
constexpr int64_t REGISTERS = BLOCK / LANES, UNROLL = LANES == 16 ? 2 : 1;

// The largest magnitude, NaN if there is one: without their signs, floats are in the order of their bits.
static float largest(const float* numbers, int64_t count) {
  int32_t maxima = 0;
  for (int64_t i = 0; i < count; ++i) {
    int32_t bits;
    memcpy(&bits, numbers + i, 4);
    bits &= 0x7fffffff;
    maxima = bits > maxima ? bits : maxima;
  }
  float size;
  memcpy(&size, &maxima, 4);
  return size;
}

// e^2(a + b) / 2 where the product of e^2a and e^2b might overflow; NaN stays NaN.
static inline Vector exponential_of_sum(Vector a, Vector b) {
  Vector x = 2.0f * (a + b);
  x = x > broadcast(80.0f) ? broadcast(80.0f) : x;
  x = x < broadcast(-80.0f) ? broadcast(-80.0f) : x;
  return 0.5f * exponential(x);
}

// e^2x, clamped beyond MAX_SINGLE, where it is not used.
static inline Vector squared_exponential(Vector x) {
  x *= 2.0f;
  x = x > broadcast(2 * MAX_SINGLE) ? broadcast(2 * MAX_SINGLE) : x;
  x = x < broadcast(-2 * MAX_SINGLE) ? broadcast(-2 * MAX_SINGLE) : x;
  return exponential(x);
}

static void exponentials(const float* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) store(to + i, squared_exponential(load(from + i)));
  if (i == count) return;
  float buffer[LANES] = {0};
  memcpy(buffer, from + i, 4 * (count - i));
  store(buffer, squared_exponential(load(buffer)));
  memcpy(to + i, buffer, 4 * (count - i));
}

// ---- scores: a vector's lanes are keys ----

// The largest e^2x of each feature over some tokens.
static void feature_maxima(const float* from, int64_t count, int64_t width, float* maxima) {
  for (int64_t d = 0; d < width; ++d) maxima[d] = from[d];
  for (int64_t j = 1; j < count; ++j)
    for (int64_t d = 0; d < width; ++d) maxima[d] = from[j * width + d] > maxima[d] ? from[j * width + d] : maxima[d];
  exponentials(maxima, maxima, width);
}

// The keys of a block, one feature after another; e^2k or k itself.
static void transpose_keys(const float* key, int64_t columns, int64_t width, bool exponents, float* line, float* block) {
  if (columns < BLOCK) memset(block, 0, 4 * width * BLOCK);
  for (int64_t j = 0; j < columns; ++j) {
    if (exponents) exponentials(key + j * width, line, width);
    const float* from = exponents ? line : key + j * width;
    for (int64_t d = 0; d < width; ++d) block[d * BLOCK + j] = from[d];
  }
}

// Prepare a chunk of rows or a block of keys for all tasks.
static void scores_preparation(const Scores& job, int64_t task, float* scratch) {
  const int64_t width = job.width, chunks = job.groups * job.chunks;
  if (task < chunks) {
    const int64_t group = task / job.chunks, i = task % job.chunks * CHUNK, rows = job.queries - i < CHUNK ? job.queries - i : CHUNK;
    const float *from = job.query + (group * job.queries + i) * width, *inverse = job.inverse + group % job.directions * width;
    float* to = job.rows + (group * job.queries + i) * width;
    job.row_maxima[task] = largest(from, rows * width);
    feature_maxima(from, rows, width, job.row_exp_maxima + task * width);
    for (int64_t r = 0; r < rows; ++r) {
      exponentials(from + r * width, to + r * width, width);
      for (int64_t d = 0; d < width; ++d) to[r * width + d] *= inverse[d];
    }
  } else {
    const int64_t number = task - chunks, group = number / job.blocks, j = number % job.blocks * BLOCK;
    const int64_t columns = job.keys - j < BLOCK ? job.keys - j : BLOCK;
    const float* from = job.key + (group * job.keys + j) * width;
    job.key_maxima[number] = largest(from, columns * width);
    feature_maxima(from, columns, width, job.key_exp_maxima + number * width);
    transpose_keys(from, columns, width, true, scratch, job.transposed_keys + number * width * BLOCK);
  }
}

// Return whether no product of up to `group` z overflows, each being at most (1 + a·b) · inverse.
static bool products_fit(const float* a, const float* b, const float* inverse, int64_t width, int64_t group) {
  float product = 1;
  for (int64_t d = 0; d < width; ++d) {
    if (d % group == 0) product = 1;
    product *= (1 + a[d] * b[d]) * std::fabs(inverse[d]);
    // false for NaN too
    if (!(product <= MOST_PRODUCT)) return false;
  }
  return true;
}

// R rows against UNROLL registers of keys, `group` features from d on: adds Σ 1/z = numerator / denominator to the sums.
template <int64_t R>
static inline __attribute__((always_inline)) void add_fractions(const float* rows, const float* keys, const float* inverse, int64_t width,
                                                                int64_t group, Vector (&sums)[R][UNROLL]) {
  Vector numerator[R][UNROLL], denominator[R][UNROLL];
  for (int64_t c = 0; c < UNROLL; ++c) {
    const Vector key = load(keys + c * LANES);
    for (int64_t r = 0; r < R; ++r) numerator[r][c] = broadcast(1.0f), denominator[r][c] = key * rows[r * width] + inverse[0];
  }
#pragma GCC unroll 8
  for (int64_t d = 1; d < group; ++d)
    for (int64_t c = 0; c < UNROLL; ++c) {
      const Vector key = load(keys + d * BLOCK + c * LANES);
      for (int64_t r = 0; r < R; ++r) {
        const Vector z = key * rows[r * width + d] + inverse[d];
        numerator[r][c] = numerator[r][c] * z + denominator[r][c];
        denominator[r][c] *= z;
      }
    }
  for (int64_t r = 0; r < R; ++r)
    for (int64_t c = 0; c < UNROLL; ++c) sums[r][c] += numerator[r][c] / denominator[r][c];
}

// R rows against one block where GROUP features share a division: Σ v − factor · Σ 1/z.
template <int64_t R, int64_t GROUP>
static void score_rows(const float* rows, const float* keys, const float* inverse, int64_t width, float total, float factor,
                       float (&out)[R][BLOCK]) {
  for (int64_t c = 0; c < BLOCK; c += UNROLL * LANES) {
    Vector sums[R][UNROLL] = {};
    int64_t d = 0;
    for (; d + GROUP <= width; d += GROUP) add_fractions<R>(rows + d, keys + d * BLOCK + c, inverse + d, width, GROUP, sums);
    if (d < width) add_fractions<R>(rows + d, keys + d * BLOCK + c, inverse + d, width, width - d, sums);
    for (int64_t r = 0; r < R; ++r)
      for (int64_t k = 0; k < UNROLL; ++k) store(out[r] + c + k * LANES, total - factor * sums[r][k]);
  }
}

// The same of queries and keys of any size, a division for every feature.
template <int64_t R>
static void any_rows(const float* rows, const float* keys, const float* v, int64_t width, float (&out)[R][BLOCK]) {
  for (int64_t c = 0; c < BLOCK; c += LANES) {
    Vector sums[R] = {};
    for (int64_t d = 0; d < width; ++d)
      for (int64_t r = 0; r < R; ++r)
        sums[r] -= v[d] * (1.0f / (exponential_of_sum(broadcast(rows[r * width + d]), load(keys + d * BLOCK + c)) + 0.5f) - 1.0f);
    for (int64_t r = 0; r < R; ++r) store(out[r] + c, sums[r]);
  }
}

// A tile's rows, R at a time, from row `first` on; returns the first that remains.
template <int64_t R>
static int64_t score_tile(const Scores& job, int64_t group, const float* rows, const float* keys, int64_t direction, int64_t first,
                          int64_t last, float* scores, int64_t columns) {
  const float *v = job.v + direction * job.width, *inverse = job.inverse + direction * job.width;
  const float total = job.totals[2 * direction], factor = job.totals[2 * direction + 1];
  for (; first + R <= last; first += R) {
    float out[R][BLOCK];
    const float* query_rows = rows + first * job.width;
    if (group == 8) score_rows<R, 8>(query_rows, keys, inverse, job.width, total, factor, out);
    else if (group == 4) score_rows<R, 4>(query_rows, keys, inverse, job.width, total, factor, out);
    else if (group == 2) score_rows<R, 2>(query_rows, keys, inverse, job.width, total, factor, out);
    else any_rows<R>(query_rows, keys, v, job.width, out);
    for (int64_t r = 0; r < R; ++r) memcpy(scores + (first + r) * job.keys, out[r], 4 * columns);
  }
  return first;
}

// A block of keys against all the rows: (group, block) is the task.
static void scores_task(const Scores& job, int64_t task, float* scratch) {
  const int64_t group = task / job.blocks, j = task % job.blocks * BLOCK, width = job.width, direction = group % job.directions;
  const int64_t columns = job.keys - j < BLOCK ? job.keys - j : BLOCK;
  const float *transposed_keys = job.transposed_keys + task * width * BLOCK, *inverse = job.inverse + direction * width;
  const float* raw_keys = nullptr;
  for (int64_t i = 0; i < job.queries; i += CHUNK) {
    const int64_t chunk = group * job.chunks + i / CHUNK, rows = job.queries - i < CHUNK ? job.queries - i : CHUNK;
    const float *a = job.row_exp_maxima + chunk * width, *b = job.key_exp_maxima + task * width;
    int64_t shared = job.row_maxima[chunk] <= MAX_SINGLE && job.key_maxima[task] <= MAX_SINGLE ? 8 : 1;
    while (shared > 1 && !products_fit(a, b, inverse, width, shared)) shared /= 2;
    if (shared == 1 && !raw_keys) {
      transpose_keys(job.key + (group * job.keys + j) * width, columns, width, false, nullptr, scratch);
      raw_keys = scratch;
    }
    const float* query_rows = (shared == 1 ? job.query : job.rows) + (group * job.queries + i) * width;
    const float* key_rows = shared == 1 ? raw_keys : transposed_keys;
    float* out = job.scores + (group * job.queries + i) * job.keys + j;
    const int64_t rows_left = score_tile<2>(job, shared, query_rows, key_rows, direction, 0, rows, out, columns);
    score_tile<1>(job, shared, query_rows, key_rows, direction, rows_left, rows, out, columns);
  }
}

// ---- gradients: a vector's lanes are features, FEATURES of them to a task ----

// Σ g of the rows and of the keys of each tile of a chunk of rows, in the order in which the loops below add g·tanh², so that both
// cancel for tanh = ±1. A chunk is the task.
static void gradients_preparation(const Gradients& job, int64_t task, float*) {
  const int64_t group = task / job.chunks, i = task % job.chunks * CHUNK, rows = job.queries - i < CHUNK ? job.queries - i : CHUNK;
  const float* gradient = job.gradient + (group * job.queries + i) * job.keys;
  float* sums_of_keys = job.sums_of_keys + task * job.keys;
  memset(sums_of_keys, 0, 4 * job.keys);
  for (int64_t j = 0; j < job.keys; j += CHUNK) {
    const int64_t count = job.keys - j < CHUNK ? job.keys - j : CHUNK;
    float lines[CHUNK][CHUNK], sums[CHUNK] = {0};
    for (int64_t r = 0; r < rows; ++r) {
      const float* from = gradient + r * job.keys + j;
      for (int64_t k = 0; k < count; ++k) sums_of_keys[j + k] += from[k];
      for (int64_t k = 0; k < count; ++k) lines[k][r] = from[k];
    }
    for (int64_t k = 0; k < count; ++k)
      for (int64_t r = 0; r < rows; ++r) sums[r] += lines[k][r];
    memcpy(job.sums_of_rows + (task * job.blocks + j / CHUNK) * CHUNK, sums, sizeof sums);
  }
}

// −tanh of ROWS queries and a key, LANES features of each; SMALL is in the key. NARROW: they share a division, 1/y1 = y2 · (1 / y1·y2).
template <Range RANGE>
static inline __attribute__((always_inline)) void tangents(const Vector (&query_rows)[ROWS], Vector key, Vector (&out)[ROWS]) {
  if (RANGE == ANY) {
    for (int64_t r = 0; r < ROWS; ++r) out[r] = 1.0f / (exponential_of_sum(query_rows[r], key) + 0.5f) - 1.0f;
    return;
  }
  Vector y[ROWS];
  for (int64_t r = 0; r < ROWS; ++r) y[r] = query_rows[r] * key + 0.5f * SMALL;
  if (RANGE == MEDIUM) {
    for (int64_t r = 0; r < ROWS; ++r) out[r] = SMALL / y[r] - 1.0f;
    return;
  }
  const Vector left = y[0] * y[1], right = y[2] * y[3], k = SMALL / (left * right), first = k * right, last = k * left;
  out[0] = y[1] * first - 1.0f, out[1] = y[0] * first - 1.0f;
  out[2] = y[3] * last - 1.0f, out[3] = y[2] * last - 1.0f;
}

// `count` keys against ROWS rows, LANES features of each, FEATURES apart: adds Σ g·(1 − tanh²) to dq, whose Σ g is `whole`, and
// Σ g·tanh² to dk; returns Σ g·tanh, negated.
template <Range RANGE>
static Vector gradient_rows(const float* query, const float* keys, const float* const* gradient, const float* total, int64_t count,
                            float* dq, float* dk) {
  // several sums hide the latency of an addition
  Vector query_rows[ROWS], sums[ROWS] = {}, shares[ROWS] = {};
  for (int64_t r = 0; r < ROWS; ++r) query_rows[r] = load(query + r * FEATURES);
  const float *g0 = gradient[0], *g1 = gradient[1], *g2 = gradient[2], *g3 = gradient[3];
  for (int64_t j = 0; j < count; ++j) {
    Vector out[ROWS];
    tangents<RANGE>(query_rows, load(keys + j * FEATURES), out);
    const float factors[ROWS] = {g0[j], g1[j], g2[j], g3[j]};
    Vector sum = load(dk + j * FEATURES);
    for (int64_t r = 0; r < ROWS; ++r) {
      const Vector weighted = out[r] * factors[r];
      shares[r] += weighted;
      sums[r] += weighted * out[r];
      sum += weighted * out[r];
    }
    store(dk + j * FEATURES, sum);
  }
  for (int64_t r = 0; r < ROWS; ++r) store(dq + r * FEATURES, load(dq + r * FEATURES) + (total[r] - sums[r]));
  return (shares[0] + shares[1]) + (shares[2] + shares[3]);
}

// FEATURES features of some tokens, zeros after the width: factor · e^2x, or x itself (factor 0). Returns the largest magnitude.
static float to_lanes(const float* from, int64_t count, int64_t width, int64_t features, float factor, float* to) {
  Integers maxima = {};
  for (int64_t j = 0; j < count; ++j, from += width, to += FEATURES) {
    float buffer[FEATURES] = {0};
    const float* row_start = from;
    if (features < FEATURES) row_start = static_cast<float*>(memcpy(buffer, from, 4 * features));
    for (int64_t lane = 0; lane < FEATURES; lane += LANES) {
      const Vector x = load(row_start + lane);
      Integers bits;
      memcpy(&bits, &x, sizeof bits);
      bits &= 0x7fffffff;
      maxima = bits > maxima ? bits : maxima;
      store(to + lane, factor ? factor * squared_exponential(x) : x);
    }
  }
  float sizes[LANES];
  memcpy(sizes, &maxima, sizeof sizes);
  return largest(sizes, LANES);
}

// v · x of the existing features.
static inline void multiply(const float* v, const float* x, int64_t features, float* to) {
  if (features < FEATURES)
    for (int64_t k = 0; k < features; ++k) to[k] = v[k] * x[k];
  else
    for (int64_t lane = 0; lane < FEATURES; lane += LANES) store(to + lane, load(v + lane) * load(x + lane));
}

// A tile: a chunk of rows against a chunk of keys, given the exponentials of both. Adds to dq, to `shares`, and Σ g·tanh² to dk.
static void gradient_tile(const Gradients& job, const Tile& tile, const float* query_rows, const float* maxima, const float* key_rows,
                          float key_maximum, float* raw_rows, float* raw_keys, float* dq, float* dk, float* shares) {
  bool has_raw_keys = false;
  static const float zeros[CHUNK] = {0};
  for (int64_t i = 0; i < tile.rows; i += ROWS) {
    const float* from[ROWS];
    const int64_t rows_left = tile.rows - i < ROWS ? tile.rows - i : ROWS;
    for (int64_t r = 0; r < ROWS; ++r) from[r] = r < rows_left ? tile.gradient + (i + r) * job.keys : zeros;
    // rows are too far apart for hardware prefetching
    if (i + 2 * ROWS <= tile.rows)
      for (int64_t r = 0; r < ROWS; ++r)
        for (int64_t j = 0; j < tile.count; j += 16) __builtin_prefetch(from[r] + ROWS * job.keys + j);
    const float size = maxima[i / ROWS];
    const bool is_narrow = size + key_maximum <= MAX_SUM, needs_sum = !(size <= MAX_SINGLE && key_maximum <= MAX_SINGLE);
    if (needs_sum) {
      memset(raw_rows, 0, 4 * ROWS * FEATURES);
      to_lanes(tile.query + i * job.width, rows_left, job.width, tile.features, 0, raw_rows);
    }
    if (needs_sum && !has_raw_keys) to_lanes(tile.key, tile.count, job.width, tile.features, 0, raw_keys), has_raw_keys = true;
    auto work = needs_sum ? gradient_rows<ANY> : is_narrow ? gradient_rows<NARROW> : gradient_rows<MEDIUM>;
    for (int64_t lane = 0; lane < FEATURES; lane += LANES) {
      const float *query_lanes = (needs_sum ? raw_rows : query_rows + i * FEATURES) + lane,
          *key_lanes = (needs_sum ? raw_keys : key_rows) + lane;
      const Vector share = work(query_lanes, key_lanes, from, tile.sums_of_rows + i, tile.count, dq + i * FEATURES + lane, dk + lane);
      store(shares + lane, load(shares + lane) + share);
    }
  }
}

// A slab of rows against every key, for FEATURES features: (group, slab, features) is the task. Each slab has its own dk and dv.
static void gradients_task(const Gradients& job, int64_t task, float* scratch) {
  const int64_t width = job.width, parts = (width + FEATURES - 1) / FEATURES, slab_index = task / parts, d = task % parts * FEATURES;
  const int64_t group = slab_index / job.slabs, slab = slab_index % job.slabs, features = width - d < FEATURES ? width - d : FEATURES;
  // the last slabs may be empty
  const int64_t start = slab * job.per_slab < job.queries ? slab * job.per_slab : job.queries;
  const int64_t rows = job.queries - start < job.per_slab ? job.queries - start : job.per_slab;
  const int64_t padded = (rows + ROWS - 1) / ROWS * ROWS, row = group * job.queries + start;
  const float *query = job.query + row * width + d, *v = job.v + group % job.directions * width + d;
  float *dk = scratch, *sum = dk + CHUNK * FEATURES, *key_rows = sum + CHUNK * FEATURES, *raw_keys = key_rows + CHUNK * FEATURES;
  float *raw_rows = raw_keys + CHUNK * FEATURES, *shares = raw_rows + ROWS * FEATURES, *dq = shares + FEATURES,
      *query_rows = dq + padded * FEATURES;
  float* maxima = query_rows + padded * FEATURES;
  memset(scratch, 0, 4 * (maxima - scratch));
  for (int64_t i = 0; i < rows; i += ROWS)
    maxima[i / ROWS] = to_lanes(query + i * width, rows - i < ROWS ? rows - i : ROWS, width, features, 0.5f, query_rows + i * FEATURES);
  for (int64_t j = 0; j < job.keys; j += CHUNK) {
    const int64_t count = job.keys - j < CHUNK ? job.keys - j : CHUNK, size = count * FEATURES;
    const float* key = job.key + (group * job.keys + j) * width + d;
    const float key_maximum = to_lanes(key, count, width, features, SMALL, key_rows);
    memset(sum, 0, 4 * size);
    for (int64_t i = 0; i < rows; i += CHUNK) {
      const int64_t chunk = group * job.chunks + (start + i) / CHUNK;
      const Tile tile{query + i * width, key, job.gradient + (row + i) * job.keys + j,
                      job.sums_of_rows + (chunk * job.blocks + j / CHUNK) * CHUNK, rows - i < CHUNK ? rows - i : CHUNK, count, features};
      memset(dk, 0, 4 * size);
      gradient_tile(job, tile, query_rows + i * FEATURES, maxima + i / ROWS, key_rows, key_maximum, raw_rows, raw_keys, dq + i * FEATURES,
                    dk, shares);
      for (int64_t k = 0; k < count; ++k) {
        const float total = job.sums_of_keys[chunk * job.keys + j + k];
        for (int64_t offset = k * FEATURES; offset < (k + 1) * FEATURES; offset += LANES) store(sum + offset,
                                                                                                load(sum + offset) +
                                                                                                    (total - load(dk + offset)));
      }
    }
    float* to = job.dk + (slab_index * job.keys + j) * width + d;
    for (int64_t k = 0; k < count; ++k) multiply(v, sum + k * FEATURES, features, to + k * width);
  }
  for (int64_t i = 0; i < rows; ++i) multiply(v, dq + i * FEATURES, features, job.dq + (row + i) * width + d);
  for (int64_t f = 0; f < features; ++f) job.dv[slab_index * width + d + f] = -shares[f];
}
