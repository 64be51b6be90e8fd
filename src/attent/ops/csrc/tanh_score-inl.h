// The loops of tanh.cpp for one width of vector registers. Included once for each, inside a namespace of its own and under that
// width's compiler target, with LANES floats in a register.
//
// With A = e^2q' / 2 and B = e^2k', y = AB + 1/2 is (1 + e^2(q' + k')) / 2, and 1 / y − 1 = −tanh(q' + k').

#include "simd.h"

// Registers of keys, and those whose scores are summed at a time.
constexpr int64_t REGISTERS = BLOCK / LANES, TOGETHER = LANES == 16 ? 2 : 1;

// The largest magnitude, NaN if there is one: without their signs, floats are in the order of their bits.
static float largest(const float* numbers, int64_t count) {
  int32_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    int32_t bits;
    memcpy(&bits, numbers + i, 4);
    bits &= 0x7fffffff;
    most = bits > most ? bits : most;
  }
  float size;
  memcpy(&size, &most, 4);
  return size;
}

// e^2(a + b) / 2 where the product of e^2a and e^2b might overflow; NaN stays NaN.
static inline Vector exponential_of_sum(Vector a, Vector b) {
  Vector x = 2.0f * (a + b);
  x = x > all(80.0f) ? all(80.0f) : x;
  x = x < all(-80.0f) ? all(-80.0f) : x;
  return 0.5f * exponential(x);
}

// e^2x; of those beyond ONE, which are not used, something finite.
static inline Vector squared_exponential(Vector x) {
  x *= 2.0f;
  x = x > all(2 * ONE) ? all(2 * ONE) : x;
  x = x < all(-2 * ONE) ? all(-2 * ONE) : x;
  return exponential(x);
}

static void exponentials(const float* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) store(to + i, squared_exponential(load(from + i)));
  if (i == count) return;
  float some[LANES] = {0};
  memcpy(some, from + i, 4 * (count - i));
  store(some, squared_exponential(load(some)));
  memcpy(to + i, some, 4 * (count - i));
}

// ---- scores: a vector's lanes are keys ----

// The largest e^2x of each feature over some tokens.
static void largest_of_each(const float* from, int64_t count, int64_t width, float* most) {
  for (int64_t d = 0; d < width; ++d) most[d] = from[d];
  for (int64_t j = 1; j < count; ++j)
    for (int64_t d = 0; d < width; ++d) most[d] = from[j * width + d] > most[d] ? from[j * width + d] : most[d];
  exponentials(most, most, width);
}

// The keys of a block, one feature after another; e^2k or k itself.
static void stand(const float* key, int64_t columns, int64_t width, bool exponents, float* line, float* block) {
  if (columns < BLOCK) memset(block, 0, 4 * width * BLOCK);
  for (int64_t j = 0; j < columns; ++j) {
    if (exponents) exponentials(key + j * width, line, width);
    const float* from = exponents ? line : key + j * width;
    for (int64_t d = 0; d < width; ++d) block[d * BLOCK + j] = from[d];
  }
}

// What every task needs of a chunk of rows or of a block of keys: which it is, is the task.
static void scores_preparation(const Scores& job, int64_t task, float* scratch) {
  const int64_t width = job.width, chunks = job.groups * job.chunks;
  if (task < chunks) {
    const int64_t group = task / job.chunks, i = task % job.chunks * CHUNK, rows = job.queries - i < CHUNK ? job.queries - i : CHUNK;
    const float *from = job.query + (group * job.queries + i) * width, *inverse = job.inverse + group % job.directions * width;
    float* to = job.rows + (group * job.queries + i) * width;
    job.most_of_rows[task] = largest(from, rows * width);
    largest_of_each(from, rows, width, job.largest_of_rows + task * width);
    for (int64_t r = 0; r < rows; ++r) {
      exponentials(from + r * width, to + r * width, width);
      for (int64_t d = 0; d < width; ++d) to[r * width + d] *= inverse[d];
    }
  } else {
    const int64_t number = task - chunks, group = number / job.blocks, j = number % job.blocks * BLOCK;
    const int64_t columns = job.keys - j < BLOCK ? job.keys - j : BLOCK;
    const float* from = job.key + (group * job.keys + j) * width;
    job.most_of_keys[number] = largest(from, columns * width);
    largest_of_each(from, columns, width, job.largest_of_keys + number * width);
    stand(from, columns, width, true, scratch, job.standing + number * width * BLOCK);
  }
}

// Whether no product of up to `group` z overflows, none being larger than (1 + a·b) · inverse.
static bool fit(const float* a, const float* b, const float* inverse, int64_t width, int64_t group) {
  float product = 1;
  for (int64_t d = 0; d < width; ++d) {
    if (d % group == 0) product = 1;
    product *= (1 + a[d] * b[d]) * std::fabs(inverse[d]);
    // nor of NaN
    if (!(product <= MOST_PRODUCT)) return false;
  }
  return true;
}

// R rows against TOGETHER registers of keys, `group` features from d on: adds Σ 1/z = above / below to the sums.
template <int64_t R>
static inline __attribute__((always_inline)) void add_fractions(const float* rows, const float* keys, const float* inverse, int64_t width,
                                                                int64_t group, Vector (&sums)[R][TOGETHER]) {
  Vector above[R][TOGETHER], below[R][TOGETHER];
  for (int64_t c = 0; c < TOGETHER; ++c) {
    const Vector key = load(keys + c * LANES);
    for (int64_t r = 0; r < R; ++r) above[r][c] = all(1.0f), below[r][c] = key * rows[r * width] + inverse[0];
  }
#pragma GCC unroll 8
  for (int64_t d = 1; d < group; ++d)
    for (int64_t c = 0; c < TOGETHER; ++c) {
      const Vector key = load(keys + d * BLOCK + c * LANES);
      for (int64_t r = 0; r < R; ++r) {
        const Vector z = key * rows[r * width + d] + inverse[d];
        above[r][c] = above[r][c] * z + below[r][c];
        below[r][c] *= z;
      }
    }
  for (int64_t r = 0; r < R; ++r)
    for (int64_t c = 0; c < TOGETHER; ++c) sums[r][c] += above[r][c] / below[r][c];
}

// R rows against one block where GROUP features share a division: Σ v − factor · Σ 1/z.
template <int64_t R, int64_t GROUP>
static void score_rows(const float* rows, const float* keys, const float* inverse, int64_t width, float total, float factor,
                       float (&found)[R][BLOCK]) {
  for (int64_t c = 0; c < BLOCK; c += TOGETHER * LANES) {
    Vector sums[R][TOGETHER] = {};
    int64_t d = 0;
    for (; d + GROUP <= width; d += GROUP) add_fractions<R>(rows + d, keys + d * BLOCK + c, inverse + d, width, GROUP, sums);
    if (d < width) add_fractions<R>(rows + d, keys + d * BLOCK + c, inverse + d, width, width - d, sums);
    for (int64_t r = 0; r < R; ++r)
      for (int64_t one = 0; one < TOGETHER; ++one) store(found[r] + c + one * LANES, total - factor * sums[r][one]);
  }
}

// The same of queries and keys of any size, a division for every feature.
template <int64_t R>
static void any_rows(const float* rows, const float* keys, const float* v, int64_t width, float (&found)[R][BLOCK]) {
  for (int64_t c = 0; c < BLOCK; c += LANES) {
    Vector sums[R] = {};
    for (int64_t d = 0; d < width; ++d)
      for (int64_t r = 0; r < R; ++r)
        sums[r] -= v[d] * (1.0f / (exponential_of_sum(all(rows[r * width + d]), load(keys + d * BLOCK + c)) + 0.5f) - 1.0f);
    for (int64_t r = 0; r < R; ++r) store(found[r] + c, sums[r]);
  }
}

// A tile's rows, R at a time, from row `first` on; returns the first that is left over.
template <int64_t R>
static int64_t score_tile(const Scores& job, int64_t group, const float* rows, const float* keys, int64_t direction, int64_t first,
                          int64_t last, float* scores, int64_t columns) {
  const float *v = job.v + direction * job.width, *inverse = job.inverse + direction * job.width;
  const float total = job.totals[2 * direction], factor = job.totals[2 * direction + 1];
  for (; first + R <= last; first += R) {
    float found[R][BLOCK];
    const float* ours = rows + first * job.width;
    if (group == 8) score_rows<R, 8>(ours, keys, inverse, job.width, total, factor, found);
    else if (group == 4) score_rows<R, 4>(ours, keys, inverse, job.width, total, factor, found);
    else if (group == 2) score_rows<R, 2>(ours, keys, inverse, job.width, total, factor, found);
    else any_rows<R>(ours, keys, v, job.width, found);
    for (int64_t r = 0; r < R; ++r) memcpy(scores + (first + r) * job.keys, found[r], 4 * columns);
  }
  return first;
}

// A block of keys against all the rows: (group, block) is the task.
static void scores_task(const Scores& job, int64_t task, float* scratch) {
  const int64_t group = task / job.blocks, j = task % job.blocks * BLOCK, width = job.width, direction = group % job.directions;
  const int64_t columns = job.keys - j < BLOCK ? job.keys - j : BLOCK;
  const float *standing = job.standing + task * width * BLOCK, *inverse = job.inverse + direction * width;
  const float* raw = nullptr;
  for (int64_t i = 0; i < job.queries; i += CHUNK) {
    const int64_t chunk = group * job.chunks + i / CHUNK, rows = job.queries - i < CHUNK ? job.queries - i : CHUNK;
    const float *a = job.largest_of_rows + chunk * width, *b = job.largest_of_keys + task * width;
    int64_t shared = job.most_of_rows[chunk] <= ONE && job.most_of_keys[task] <= ONE ? 8 : 1;
    while (shared > 1 && !fit(a, b, inverse, width, shared)) shared /= 2;
    if (shared == 1 && !raw) {
      stand(job.key + (group * job.keys + j) * width, columns, width, false, nullptr, scratch);
      raw = scratch;
    }
    const float* ours = (shared == 1 ? job.query : job.rows) + (group * job.queries + i) * width;
    const float* theirs = shared == 1 ? raw : standing;
    float* out = job.scores + (group * job.queries + i) * job.keys + j;
    const int64_t left = score_tile<2>(job, shared, ours, theirs, direction, 0, rows, out, columns);
    score_tile<1>(job, shared, ours, theirs, direction, left, rows, out, columns);
  }
}

// ---- gradients: a vector's lanes are features, FEATURES of them to a task ----

// Σ g of the rows and of the keys of each tile of a chunk of rows, one after another as the loops below add g·tanh²: of tanhs of ±1
// nothing is left of the difference. A chunk is the task.
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
      for (int64_t one = 0; one < count; ++one) sums_of_keys[j + one] += from[one];
      for (int64_t one = 0; one < count; ++one) lines[one][r] = from[one];
    }
    for (int64_t one = 0; one < count; ++one)
      for (int64_t r = 0; r < rows; ++r) sums[r] += lines[one][r];
    memcpy(job.sums_of_rows + (task * job.blocks + j / CHUNK) * CHUNK, sums, sizeof sums);
  }
}

// −tanh of ROWS queries and a key, LANES features of each; SMALL is in the key. NARROW: they share a division, 1/y1 = y2 · (1 / y1·y2).
template <Range RANGE>
static inline __attribute__((always_inline)) void tangents(const Vector (&ours)[ROWS], Vector key, Vector (&found)[ROWS]) {
  if (RANGE == ANY) {
    for (int64_t r = 0; r < ROWS; ++r) found[r] = 1.0f / (exponential_of_sum(ours[r], key) + 0.5f) - 1.0f;
    return;
  }
  Vector y[ROWS];
  for (int64_t r = 0; r < ROWS; ++r) y[r] = ours[r] * key + 0.5f * SMALL;
  if (RANGE == MIDDLING) {
    for (int64_t r = 0; r < ROWS; ++r) found[r] = SMALL / y[r] - 1.0f;
    return;
  }
  const Vector front = y[0] * y[1], back = y[2] * y[3], one = SMALL / (front * back), first = one * back, last = one * front;
  found[0] = y[1] * first - 1.0f, found[1] = y[0] * first - 1.0f;
  found[2] = y[3] * last - 1.0f, found[3] = y[2] * last - 1.0f;
}

// `count` keys against ROWS rows, LANES features of each, FEATURES apart: adds Σ g·(1 − tanh²) to dq, whose Σ g is `whole`, and
// Σ g·tanh² to dk; returns Σ g·tanh, negated.
template <Range RANGE>
static Vector gradient_rows(const float* query, const float* keys, const float* const* gradient, const float* whole, int64_t count,
                            float* dq, float* dk) {
  // of several sums, for one alone would wait for itself
  Vector ours[ROWS], sums[ROWS] = {}, shares[ROWS] = {};
  for (int64_t r = 0; r < ROWS; ++r) ours[r] = load(query + r * FEATURES);
  const float *g0 = gradient[0], *g1 = gradient[1], *g2 = gradient[2], *g3 = gradient[3];
  for (int64_t j = 0; j < count; ++j) {
    Vector found[ROWS];
    tangents<RANGE>(ours, load(keys + j * FEATURES), found);
    const float factors[ROWS] = {g0[j], g1[j], g2[j], g3[j]};
    Vector sum = load(dk + j * FEATURES);
    for (int64_t r = 0; r < ROWS; ++r) {
      const Vector weighted = found[r] * factors[r];
      shares[r] += weighted;
      sums[r] += weighted * found[r];
      sum += weighted * found[r];
    }
    store(dk + j * FEATURES, sum);
  }
  for (int64_t r = 0; r < ROWS; ++r) store(dq + r * FEATURES, load(dq + r * FEATURES) + (whole[r] - sums[r]));
  return (shares[0] + shares[1]) + (shares[2] + shares[3]);
}

// FEATURES features of some tokens, zeros behind the width: factor · e^2x, or x itself (factor 0). Returns the largest magnitude.
static float lay(const float* from, int64_t count, int64_t width, int64_t features, float factor, float* to) {
  Integers most = {};
  for (int64_t j = 0; j < count; ++j, from += width, to += FEATURES) {
    float some[FEATURES] = {0};
    const float* here = from;
    if (features < FEATURES) here = static_cast<float*>(memcpy(some, from, 4 * features));
    for (int64_t lane = 0; lane < FEATURES; lane += LANES) {
      const Vector x = load(here + lane);
      Integers bits;
      memcpy(&bits, &x, sizeof bits);
      bits &= 0x7fffffff;
      most = bits > most ? bits : most;
      store(to + lane, factor ? factor * squared_exponential(x) : x);
    }
  }
  float sizes[LANES];
  memcpy(sizes, &most, sizeof sizes);
  return largest(sizes, LANES);
}

// v · x of the features that there are.
static inline void weigh(const float* v, const float* x, int64_t features, float* to) {
  if (features < FEATURES)
    for (int64_t one = 0; one < features; ++one) to[one] = v[one] * x[one];
  else
    for (int64_t lane = 0; lane < FEATURES; lane += LANES) store(to + lane, load(v + lane) * load(x + lane));
}

// A tile: a chunk of rows against a chunk of keys, the exponentials of both at hand. Adds to dq, to `shares`, and Σ g·tanh² to dk.
static void gradient_tile(const Gradients& job, const Tile& tile, const float* ours, const float* most, const float* theirs, float size_of_keys,
                          float* few, float* raw, float* dq, float* dk, float* shares) {
  bool ready = false;
  static const float nothing[CHUNK] = {0};
  for (int64_t i = 0; i < tile.rows; i += ROWS) {
    const float* from[ROWS];
    const int64_t left = tile.rows - i < ROWS ? tile.rows - i : ROWS;
    for (int64_t r = 0; r < ROWS; ++r) from[r] = r < left ? tile.gradient + (i + r) * job.keys : nothing;
    // rows lie too far apart for the processor to guess the next
    if (i + 2 * ROWS <= tile.rows)
      for (int64_t r = 0; r < ROWS; ++r)
        for (int64_t j = 0; j < tile.count; j += 16) __builtin_prefetch(from[r] + ROWS * job.keys + j);
    const float size = most[i / ROWS];
    const bool narrow = size + size_of_keys <= BOTH, any = !(size <= ONE && size_of_keys <= ONE);
    if (any) {
      memset(few, 0, 4 * ROWS * FEATURES);
      lay(tile.query + i * job.width, left, job.width, tile.features, 0, few);
    }
    if (any && !ready) lay(tile.key, tile.count, job.width, tile.features, 0, raw), ready = true;
    auto work = any ? gradient_rows<ANY> : narrow ? gradient_rows<NARROW> : gradient_rows<MIDDLING>;
    for (int64_t lane = 0; lane < FEATURES; lane += LANES) {
      const float *mine = (any ? few : ours + i * FEATURES) + lane, *other = (any ? raw : theirs) + lane;
      const Vector share = work(mine, other, from, tile.sums_of_rows + i, tile.count, dq + i * FEATURES + lane, dk + lane);
      store(shares + lane, load(shares + lane) + share);
    }
  }
}

// A slab of rows against every key, for FEATURES features: (group, slab, features) is the task. Its dk and dv have places of their own.
static void gradients_task(const Gradients& job, int64_t task, float* scratch) {
  const int64_t width = job.width, parts = (width + FEATURES - 1) / FEATURES, place = task / parts, d = task % parts * FEATURES;
  const int64_t group = place / job.slabs, slab = place % job.slabs, features = width - d < FEATURES ? width - d : FEATURES;
  // the last slabs may be empty
  const int64_t start = slab * job.per_slab < job.queries ? slab * job.per_slab : job.queries;
  const int64_t rows = job.queries - start < job.per_slab ? job.queries - start : job.per_slab;
  const int64_t padded = (rows + ROWS - 1) / ROWS * ROWS, row = group * job.queries + start;
  const float *query = job.query + row * width + d, *v = job.v + group % job.directions * width + d;
  float *dk = scratch, *sum = dk + CHUNK * FEATURES, *theirs = sum + CHUNK * FEATURES, *raw = theirs + CHUNK * FEATURES;
  float *few = raw + CHUNK * FEATURES, *shares = few + ROWS * FEATURES, *dq = shares + FEATURES, *ours = dq + padded * FEATURES;
  float* most = ours + padded * FEATURES;
  memset(scratch, 0, 4 * (most - scratch));
  for (int64_t i = 0; i < rows; i += ROWS)
    most[i / ROWS] = lay(query + i * width, rows - i < ROWS ? rows - i : ROWS, width, features, 0.5f, ours + i * FEATURES);
  for (int64_t j = 0; j < job.keys; j += CHUNK) {
    const int64_t count = job.keys - j < CHUNK ? job.keys - j : CHUNK, size = count * FEATURES;
    const float* key = job.key + (group * job.keys + j) * width + d;
    const float size_of_keys = lay(key, count, width, features, SMALL, theirs);
    memset(sum, 0, 4 * size);
    for (int64_t i = 0; i < rows; i += CHUNK) {
      const int64_t chunk = group * job.chunks + (start + i) / CHUNK;
      const Tile tile{query + i * width, key, job.gradient + (row + i) * job.keys + j,
                      job.sums_of_rows + (chunk * job.blocks + j / CHUNK) * CHUNK, rows - i < CHUNK ? rows - i : CHUNK, count, features};
      memset(dk, 0, 4 * size);
      gradient_tile(job, tile, ours + i * FEATURES, most + i / ROWS, theirs, size_of_keys, few, raw, dq + i * FEATURES, dk, shares);
      for (int64_t one = 0; one < count; ++one) {
        const float whole = job.sums_of_keys[chunk * job.keys + j + one];
        for (int64_t at = one * FEATURES; at < (one + 1) * FEATURES; at += LANES) store(sum + at, load(sum + at) + (whole - load(dk + at)));
      }
    }
    float* to = job.dk + (place * job.keys + j) * width + d;
    for (int64_t one = 0; one < count; ++one) weigh(v, sum + one * FEATURES, features, to + one * width);
  }
  for (int64_t i = 0; i < rows; ++i) weigh(v, dq + i * FEATURES, features, job.dq + (row + i) * width + d);
  for (int64_t f = 0; f < features; ++f) job.dv[place * width + d + f] = -shares[f];
}
