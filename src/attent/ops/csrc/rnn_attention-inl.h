// The loops of glances.cpp for one width of vector registers. Included once for each, inside a namespace of its own and under that
// width's compiler target, with LANES floats in a register.
//
// With A = e^2q' and B = e^2k', r = 1 / (1 + AB) is (1 − tanh(q' + k')) / 2, and tanh' = 4 r (1 − r).

#include "simd.h"
#include "bfloat16.h"

static inline float sum(Vector vector) {
  float total = 0;
  for (int l = 0; l < LANES; ++l) total += vector[l];
  return total;
}

static inline Vector clamped(Vector x, float size) {
  x = x > all(size) ? all(size) : x;
  return x < all(-size) ? all(-size) : x;
}

// The larger, in each lane, of these sizes; what is not a number counts as endless.
static inline Vector larger(Vector most, Vector x) {
  const Vector size = x < Vector{} ? -x : x;
  return size <= most ? most : size == size ? size : all(INFINITY);
}

static inline float largest(Vector most) {
  float size = 0;
  for (int l = 0; l < LANES; ++l) size = most[l] > size ? most[l] : size;
  return size;
}

// The lines of a row's keys.
static void prepare(const Keys& job, int64_t row, float*) {
  const int64_t line = whole(job.width);
  Vector most = {};
  for (int64_t j = row * job.keys; j < (row + 1) * job.keys; ++j)
    for (int64_t d = 0; d < line; d += LANES) {
      Vector key = {};
      if (d < job.width) key = get(job.key, job.half, j * job.width + d, job.width - d);
      most = larger(most, key);
      put(job.lines, job.half, j * line + d, LANES, exponential(clamped(2.0f * key, 2 * ONE)));
    }
  job.most[row] = largest(most);
}

// How many r share one division; 0 where e^2(q' + k') has to be taken of the sum.
static int64_t sharing(float query, float key) {
  if (!(query <= ONE && key <= ONE)) return 0;
  return query + key <= FOUR ? 4 : query + key <= TWO ? 2 : 1;
}

// r of one feature register for keys that are looked at together; `other` are the keys themselves, and `mine` the query, if SHARE is 0.
template <int64_t SHARE>
static inline __attribute__((always_inline)) void fractions(Vector mine, const Vector (&other)[TOGETHER], Vector (&r)[TOGETHER]) {
  Vector z[TOGETHER];
  for (int64_t k = 0; k < TOGETHER; ++k)
    z[k] = 1.0f + (SHARE ? mine * other[k] : exponential(clamped(2.0f * (mine + other[k]), 80.0f)));
  if (SHARE == 4) {
    const Vector left = z[0] * z[1], right = z[2] * z[3], inverse = 1.0f / (left * right);
    const Vector of_left = inverse * right, of_right = inverse * left;
    r[0] = of_left * z[1], r[1] = of_left * z[0], r[2] = of_right * z[3], r[3] = of_right * z[2];
  } else if (SHARE == 2) {
    const Vector left = 1.0f / (z[0] * z[1]), right = 1.0f / (z[2] * z[3]);
    r[0] = left * z[1], r[1] = left * z[0], r[2] = right * z[3], r[3] = right * z[2];
  } else {
    for (int64_t k = 0; k < TOGETHER; ++k) r[k] = 1.0f / z[k];
  }
}

// Which keys of a row are looked at together from j on: beyond its end the last one again.
static inline void choose(int64_t j, int64_t length, int64_t (&chosen)[TOGETHER]) {
  for (int64_t k = 0; k < TOGETHER; ++k) chosen[k] = j + k < length ? j + k : length - 1;
}

// A register of each of these keys: of their lines, or of themselves.
template <int64_t SHARE, bool HALF>
static inline __attribute__((always_inline)) void take(const void* key, int64_t width, const int64_t (&chosen)[TOGETHER], int64_t d,
                                                       Vector (&other)[TOGETHER]) {
  for (int64_t k = 0; k < TOGETHER; ++k)
    other[k] = SHARE || d < width ? get(key, HALF, chosen[k] * width + d, SHARE ? LANES : width - d) : Vector{};
}

// Σ v − 2 Σ v r for each key.
template <int64_t SHARE, bool HALF>
static void scores(const float* mine, const float* v, const void* key, int64_t width, int64_t line, int64_t length, float total,
                   float* found) {
  for (int64_t j = 0; j < length; j += TOGETHER) {
    int64_t chosen[TOGETHER];
    choose(j, length, chosen);
    Vector sums[TOGETHER] = {};
    for (int64_t d = 0; d < line; d += LANES) {
      Vector other[TOGETHER], r[TOGETHER];
      take<SHARE, HALF>(key, SHARE ? line : width, chosen, d, other);
      fractions<SHARE>(load(mine + d), other, r);
      for (int64_t k = 0; k < TOGETHER; ++k) sums[k] += load(v + d) * r[k];
    }
    for (int64_t k = 0; k < TOGETHER && j + k < length; ++k) found[j + k] = total - 2.0f * sum(sums[k]);
  }
}

// The products of a line with rows of so many features.
template <bool HALF>
static void dots(const float* mine, const void* rows, int64_t features, int64_t length, float* found) {
  for (int64_t j = 0; j < length; j += TOGETHER) {
    int64_t chosen[TOGETHER];
    choose(j, length, chosen);
    Vector sums[TOGETHER] = {};
    for (int64_t f = 0; f < features; f += LANES)
      for (int64_t k = 0; k < TOGETHER; ++k) sums[k] += load(mine + f) * get(rows, HALF, chosen[k] * features + f, features - f);
    for (int64_t k = 0; k < TOGETHER && j + k < length; ++k) found[j + k] = sum(sums[k]);
  }
}

// The sum of rows, each as much as it weighs, as a line.
template <bool HALF>
static void mix(const float* weights, const void* rows, int64_t features, int64_t length, float* found) {
  memset(found, 0, 4 * whole(features));
  for (int64_t j = 0; j < length; j += TOGETHER) {
    int64_t chosen[TOGETHER];
    choose(j, length, chosen);
    float of[TOGETHER];
    for (int64_t k = 0; k < TOGETHER; ++k) of[k] = j + k < length ? weights[j + k] : 0;
    for (int64_t f = 0; f < features; f += LANES) {
      Vector some = load(found + f);
      for (int64_t k = 0; k < TOGETHER; ++k) some += of[k] * get(rows, HALF, chosen[k] * features + f, features - f);
      store(found + f, some);
    }
  }
}

// In place; zeros behind the length.
static void softmax(float* scores, int64_t length, int64_t keys) {
  float most = -INFINITY, total = 0;
  for (int64_t j = 0; j < length; ++j) most = scores[j] > most ? scores[j] : most;
  for (int64_t j = 0; j < length; ++j) total += scores[j] = std::exp(scores[j] - most);
  for (int64_t j = 0; j < length; ++j) scores[j] /= total;
  for (int64_t j = length; j < keys; ++j) scores[j] = 0;
}

// So many numbers further on.
template <bool HALF>
static inline const void* behind(const void* numbers, int64_t count) {
  return static_cast<const char*>(numbers) + (HALF ? 2 : 4) * count;
}

// A query as a line: itself, or e^2q'.
static void lay(const float* query, int64_t width, bool exponents, float* line) {
  for (int64_t d = 0; d < whole(width); d += LANES) {
    const Vector x = d < width ? get(query, false, d, width - d) : Vector{};
    store(line + d, exponents ? exponential(2.0f * x) : x);
  }
}

// Some rows of a step.
template <bool HALF>
static void forward_of(const Forward& job, int64_t task, float* scratch) {
  const int64_t width = job.width, line = whole(width), features = job.features;
  float *mine = scratch, *context = scratch + line, total = 0;
  for (int64_t d = 0; job.v && d < width; ++d) total += job.v[d];
  for (int64_t row = task * ROWS; row < job.rows && row < (task + 1) * ROWS; ++row) {
    const int64_t place = row * job.steps + job.place, length = job.lengths[row] < job.keys ? job.lengths[row] : job.keys;
    const void *key = behind<HALF>(job.key, row * job.keys * width), *values = behind<HALF>(job.values, row * job.keys * features);
    float *query = job.queries + place * width, *weights = job.weights + place * job.keys;
    Vector most = {};
    for (int64_t d = 0; d < width; d += LANES) {
      Vector x = get(job.product, HALF, row * job.product_row + d, width - d);
      if (job.bias) x += get(job.bias, false, d, width - d);
      most = larger(most, x);
      put(query, false, d, width - d, x);
    }
    const int64_t share = job.v ? sharing(largest(most), job.most[row]) : 0;
    lay(query, width, share, mine);
    if (share) key = behind<HALF>(job.lines, row * job.keys * line);
    if (!job.v) {
      dots<HALF>(mine, key, width, length, weights);
    } else {
      auto score = share == 4 ? scores<4, HALF> : share == 2 ? scores<2, HALF> : share ? scores<1, HALF> : scores<0, HALF>;
      score(mine, job.v, key, width, line, length, total, weights);
    }
    softmax(weights, length, job.keys);
    mix<HALF>(weights, values, features, length, context);
    for (int64_t f = 0; f < features; f += LANES)
      put(job.contexts, HALF, (job.place * job.rows + row) * features + f, features - f, load(context + f));
  }
}

// 4 v Σ g r (1 − r) over the keys.
template <int64_t SHARE, bool HALF>
static void slopes(const float* mine, const float* v, const void* key, const float* gradient, int64_t width, int64_t line, int64_t length,
                   float* found) {
  memset(found, 0, 4 * line);
  for (int64_t j = 0; j < length; j += TOGETHER) {
    int64_t chosen[TOGETHER];
    choose(j, length, chosen);
    float of[TOGETHER];
    for (int64_t k = 0; k < TOGETHER; ++k) of[k] = j + k < length ? gradient[j + k] : 0;
    for (int64_t d = 0; d < line; d += LANES) {
      Vector other[TOGETHER], r[TOGETHER], some = load(found + d);
      take<SHARE, HALF>(key, SHARE ? line : width, chosen, d, other);
      fractions<SHARE>(load(mine + d), other, r);
      for (int64_t k = 0; k < TOGETHER; ++k) some += of[k] * (r[k] - r[k] * r[k]);
      store(found + d, some);
    }
  }
  for (int64_t d = 0; d < line; d += LANES) store(found + d, 4.0f * load(v + d) * load(found + d));
}

// Some rows' gradients.
template <bool HALF>
static void backward_of(const Backward& job, int64_t task, float* scratch) {
  const int64_t width = job.width, line = whole(width), features = job.features;
  float *mine = scratch, *slope = scratch + line, *context = scratch + 2 * line;
  for (int64_t row = task * ROWS; row < job.rows && row < (task + 1) * ROWS; ++row) {
    const int64_t place = row * job.steps + job.place, length = job.lengths[row] < job.keys ? job.lengths[row] : job.keys;
    const void *key = behind<HALF>(job.key, row * job.keys * width), *values = behind<HALF>(job.values, row * job.keys * features);
    const float *query = job.queries + place * width, *weights = job.weights + place * job.keys;
    float *dscores = job.dscores + place * job.keys, together = 0;
    for (int64_t f = 0; f < features; f += LANES) {
      Vector some = get(job.product, HALF, row * features + f, features - f);
      if (job.outer) some += get(job.outer, HALF, (job.place * job.rows + row) * features + f, features - f);
      store(context + f, some);
      put(job.dcontexts, HALF, place * features + f, features - f, some);
    }
    dots<HALF>(context, values, features, length, dscores);
    for (int64_t j = 0; j < length; ++j) together += weights[j] * dscores[j];
    for (int64_t j = 0; j < length; ++j) dscores[j] = weights[j] * (dscores[j] - together);
    for (int64_t j = length; j < job.keys; ++j) dscores[j] = 0;
    if (!job.v) {
      mix<HALF>(dscores, key, width, length, slope);
    } else {
      Vector most = {};
      for (int64_t d = 0; d < width; d += LANES) most = larger(most, get(query, false, d, width - d));
      const int64_t share = sharing(largest(most), job.most[row]);
      lay(query, width, share, mine);
      if (share) key = behind<HALF>(job.lines, row * job.keys * line);
      auto pull = share == 4 ? slopes<4, HALF> : share == 2 ? slopes<2, HALF> : share ? slopes<1, HALF> : slopes<0, HALF>;
      pull(mine, job.v, key, dscores, width, line, length, slope);
    }
    for (int64_t d = 0; d < width; d += LANES)
      put(job.dqueries, HALF, job.place * job.query_step + row * job.query_row + d, width - d, load(slope + d));
  }
}

// A row's keys, each against all of its queries, whose lines are made first.
template <int64_t SHARE, bool HALF>
static void finish_row(const Ends& job, int64_t row, float* scratch) {
  const int64_t width = job.width, line = whole(width), length = job.lengths[row] < job.keys ? job.lengths[row] : job.keys;
  float *queries = scratch, *key = queries + job.steps * line, *once = key + line, *twice = once + line, *shares = twice + line;
  float *of_key = shares + line, total = 0;
  memset(shares, 0, 4 * line);
  for (int64_t t = 0; t < job.steps; ++t) lay(job.queries + (row * job.steps + t) * width, width, SHARE, queries + t * line);
  for (int64_t j = 0; j < length; ++j) {
    for (int64_t t = 0; t < job.steps; ++t) total += of_key[t] = job.dscores[(row * job.steps + t) * job.keys + j];
    for (int64_t d = 0; d < line; d += LANES) {
      const Vector x = d < width ? get(job.key, HALF, (row * job.keys + j) * width + d, width - d) : Vector{};
      store(key + d, SHARE ? exponential(2.0f * x) : x);
    }
    memset(once, 0, 8 * line);
    for (int64_t t = 0; t < job.steps; t += TOGETHER) {
      int64_t chosen[TOGETHER];
      choose(t, job.steps, chosen);
      float of[TOGETHER];
      for (int64_t k = 0; k < TOGETHER; ++k) of[k] = t + k < job.steps ? of_key[t + k] : 0;
      for (int64_t d = 0; d < line; d += LANES) {
        Vector other[TOGETHER], r[TOGETHER], first = load(once + d), second = load(twice + d);
        for (int64_t k = 0; k < TOGETHER; ++k) other[k] = load(queries + chosen[k] * line + d);
        fractions<SHARE>(load(key + d), other, r);
        for (int64_t k = 0; k < TOGETHER; ++k) {
          const Vector share = of[k] * r[k];
          first += share, second += share * r[k];
        }
        store(once + d, first), store(twice + d, second);
      }
    }
    for (int64_t d = 0; d < width; d += LANES) {
      const Vector slope = 4.0f * load(job.v + d) * (load(once + d) - load(twice + d));
      store(shares + d, load(shares + d) + load(once + d));
      put(job.dkeys, HALF, (row * job.keys + j) * width + d, width - d, slope);
    }
  }
  for (int64_t j = length; j < job.keys; ++j)
    for (int64_t d = 0; d < width; d += LANES) put(job.dkeys, HALF, (row * job.keys + j) * width + d, width - d, Vector{});
  for (int64_t d = 0; d < width; d += LANES) put(job.dv, false, row * width + d, width - d, total - 2.0f * load(shares + d));
}

template <bool HALF>
static void finish_of(const Ends& job, int64_t row, float* scratch) {
  Vector most = {};
  for (int64_t t = row * job.steps; t < (row + 1) * job.steps; ++t)
    for (int64_t d = 0; d < job.width; d += LANES) most = larger(most, get(job.queries, false, t * job.width + d, job.width - d));
  const int64_t share = sharing(largest(most), job.most[row]);
  auto work = share == 4 ? finish_row<4, HALF> : share == 2 ? finish_row<2, HALF> : share ? finish_row<1, HALF> : finish_row<0, HALF>;
  work(job, row, scratch);
}

static void finish(const Ends& job, int64_t row, float* scratch) {
  job.half ? finish_of<true>(job, row, scratch) : finish_of<false>(job, row, scratch);
}

static void forward(const Forward& job, int64_t task, float* scratch) {
  job.half ? forward_of<true>(job, task, scratch) : forward_of<false>(job, task, scratch);
}

static void backward(const Backward& job, int64_t task, float* scratch) {
  job.half ? backward_of<true>(job, task, scratch) : backward_of<false>(job, task, scratch);
}
