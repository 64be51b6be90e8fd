// The loops of rnn_attention.cpp for one width of vector registers (LANES floats). foreach_target.h includes this file for each width.
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
  x = x > broadcast(size) ? broadcast(size) : x;
  return x < broadcast(-size) ? broadcast(-size) : x;
}

// The larger magnitude in each lane; NaN counts as ∞.
static inline Vector max_magnitude(Vector maxima, Vector x) {
  const Vector size = x < Vector{} ? -x : x;
  return size <= maxima ? maxima : size == size ? size : broadcast(INFINITY);
}

static inline float largest(Vector maxima) {
  float size = 0;
  for (int l = 0; l < LANES; ++l) size = maxima[l] > size ? maxima[l] : size;
  return size;
}

// Lower the keys of one row.
static void prepare(const Keys& job, int64_t row, float*) {
  const int64_t line = padded(job.width);
  Vector maxima = {};
  for (int64_t j = row * job.keys; j < (row + 1) * job.keys; ++j)
    for (int64_t d = 0; d < line; d += LANES) {
      Vector key = {};
      if (d < job.width) key = get(job.key, job.is_half, j * job.width + d, job.width - d);
      maxima = max_magnitude(maxima, key);
      put(job.lowered_keys, job.is_half, j * line + d, LANES, exponential(clamped(2.0f * key, 2 * MAX_SINGLE)));
    }
  job.maxima[row] = largest(maxima);
}

// The number of r that share one division; 0 if e^2(q' + k') must be computed from the sum.
static int64_t sharing_of(float query, float key) {
  if (!(query <= MAX_SINGLE && key <= MAX_SINGLE)) return 0;
  return query + key <= MAX_SHARED_BY_4 ? 4 : query + key <= MAX_SHARED_BY_2 ? 2 : 1;
}

// r of one register of features for UNROLL keys. With SHARE 0, keys and query are given themselves, else as exponentials.
template <int64_t SHARE>
static inline __attribute__((always_inline)) void fractions(Vector query_line, const Vector (&key_registers)[UNROLL], Vector (&r)[UNROLL]) {
  Vector z[UNROLL];
  for (int64_t k = 0; k < UNROLL; ++k)
    z[k] = 1.0f + (SHARE ? query_line * key_registers[k] : exponential(clamped(2.0f * (query_line + key_registers[k]), 80.0f)));
  if (SHARE == 4) {
    const Vector left = z[0] * z[1], right = z[2] * z[3], inverse = 1.0f / (left * right);
    const Vector of_left = inverse * right, of_right = inverse * left;
    r[0] = of_left * z[1], r[1] = of_left * z[0], r[2] = of_right * z[3], r[3] = of_right * z[2];
  } else if (SHARE == 2) {
    const Vector left = 1.0f / (z[0] * z[1]), right = 1.0f / (z[2] * z[3]);
    r[0] = left * z[1], r[1] = left * z[0], r[2] = right * z[3], r[3] = right * z[2];
  } else {
    for (int64_t k = 0; k < UNROLL; ++k) r[k] = 1.0f / z[k];
  }
}

// The indices of UNROLL keys from j on; after the end, the last key again.
static inline void clamp_indices(int64_t j, int64_t length, int64_t (&indices)[UNROLL]) {
  for (int64_t k = 0; k < UNROLL; ++k) indices[k] = j + k < length ? j + k : length - 1;
}

// One register of each of these keys, lowered or (SHARE 0) plain.
template <int64_t SHARE, bool HALF>
static inline __attribute__((always_inline)) void load_keys(const void* key, int64_t width, const int64_t (&indices)[UNROLL], int64_t d,
                                                            Vector (&key_registers)[UNROLL]) {
  for (int64_t k = 0; k < UNROLL; ++k)
    key_registers[k] = SHARE || d < width ? get(key, HALF, indices[k] * width + d, SHARE ? LANES : width - d) : Vector{};
}

// Σ v − 2 Σ v r for each key.
template <int64_t SHARE, bool HALF>
static void scores(const float* query_line, const float* v, const void* key, int64_t width, int64_t line, int64_t length, float total,
                   float* out) {
  for (int64_t j = 0; j < length; j += UNROLL) {
    int64_t indices[UNROLL];
    clamp_indices(j, length, indices);
    Vector sums[UNROLL] = {};
    for (int64_t d = 0; d < line; d += LANES) {
      Vector key_registers[UNROLL], r[UNROLL];
      load_keys<SHARE, HALF>(key, SHARE ? line : width, indices, d, key_registers);
      fractions<SHARE>(load(query_line + d), key_registers, r);
      for (int64_t k = 0; k < UNROLL; ++k) sums[k] += load(v + d) * r[k];
    }
    for (int64_t k = 0; k < UNROLL && j + k < length; ++k) out[j + k] = total - 2.0f * sum(sums[k]);
  }
}

// Dot products of a line with rows of features.
template <bool HALF>
static void dots(const float* query_line, const void* rows, int64_t features, int64_t length, float* out) {
  for (int64_t j = 0; j < length; j += UNROLL) {
    int64_t indices[UNROLL];
    clamp_indices(j, length, indices);
    Vector sums[UNROLL] = {};
    for (int64_t f = 0; f < features; f += LANES)
      for (int64_t k = 0; k < UNROLL; ++k) sums[k] += load(query_line + f) * get(rows, HALF, indices[k] * features + f, features - f);
    for (int64_t k = 0; k < UNROLL && j + k < length; ++k) out[j + k] = sum(sums[k]);
  }
}

// The weighted sum of rows, as a line.
template <bool HALF>
static void mix(const float* weights, const void* rows, int64_t features, int64_t length, float* out) {
  memset(out, 0, 4 * padded(features));
  for (int64_t j = 0; j < length; j += UNROLL) {
    int64_t indices[UNROLL];
    clamp_indices(j, length, indices);
    float factors[UNROLL];
    for (int64_t k = 0; k < UNROLL; ++k) factors[k] = j + k < length ? weights[j + k] : 0;
    for (int64_t f = 0; f < features; f += LANES) {
      Vector partial = load(out + f);
      for (int64_t k = 0; k < UNROLL; ++k) partial += factors[k] * get(rows, HALF, indices[k] * features + f, features - f);
      store(out + f, partial);
    }
  }
}

// In place, with zeros from the length on.
static void softmax(float* scores, int64_t length, int64_t keys) {
  float maxima = -INFINITY, total = 0;
  for (int64_t j = 0; j < length; ++j) maxima = scores[j] > maxima ? scores[j] : maxima;
  for (int64_t j = 0; j < length; ++j) total += scores[j] = std::exp(scores[j] - maxima);
  for (int64_t j = 0; j < length; ++j) scores[j] /= total;
  for (int64_t j = length; j < keys; ++j) scores[j] = 0;
}

// Advance a pointer by `count` numbers.
template <bool HALF>
static inline const void* advance(const void* numbers, int64_t count) {
  return static_cast<const char*>(numbers) + (HALF ? 2 : 4) * count;
}

// A query as a line: plain, or e^2q'.
static void to_line(const float* query, int64_t width, bool exponents, float* line) {
  for (int64_t d = 0; d < padded(width); d += LANES) {
    const Vector x = d < width ? get(query, false, d, width - d) : Vector{};
    store(line + d, exponents ? exponential(2.0f * x) : x);
  }
}

// One step of a task's rows.
template <bool HALF>
static void forward_of(const Forward& job, int64_t task, float* scratch) {
  const int64_t width = job.width, line = padded(width), features = job.features;
  float *query_line = scratch, *context = scratch + line, total = 0;
  for (int64_t d = 0; job.v && d < width; ++d) total += job.v[d];
  for (int64_t row = task * ROWS; row < job.rows && row < (task + 1) * ROWS; ++row) {
    const int64_t step = row * job.steps + job.step, length = job.lengths[row] < job.keys ? job.lengths[row] : job.keys;
    const void *key = advance<HALF>(job.key, row * job.keys * width), *values = advance<HALF>(job.values, row * job.keys * features);
    float *query = job.queries + step * width, *weights = job.weights + step * job.keys;
    Vector maxima = {};
    for (int64_t d = 0; d < width; d += LANES) {
      Vector x = get(job.product, HALF, row * job.product_row + d, width - d);
      if (job.bias) x += get(job.bias, false, d, width - d);
      maxima = max_magnitude(maxima, x);
      put(query, false, d, width - d, x);
    }
    const int64_t sharing = job.v ? sharing_of(largest(maxima), job.maxima[row]) : 0;
    to_line(query, width, sharing, query_line);
    if (sharing) key = advance<HALF>(job.lowered_keys, row * job.keys * line);
    if (!job.v) {
      dots<HALF>(query_line, key, width, length, weights);
    } else {
      auto score = sharing == 4 ? scores<4, HALF> : sharing == 2 ? scores<2, HALF> : sharing ? scores<1, HALF> : scores<0, HALF>;
      score(query_line, job.v, key, width, line, length, total, weights);
    }
    softmax(weights, length, job.keys);
    mix<HALF>(weights, values, features, length, context);
    for (int64_t f = 0; f < features; f += LANES)
      put(job.contexts, HALF, (job.step * job.rows + row) * features + f, features - f, load(context + f));
  }
}

// 4 v Σ g r (1 − r) over the keys.
template <int64_t SHARE, bool HALF>
static void query_gradient(const float* query_line, const float* v, const void* key, const float* gradient, int64_t width, int64_t line,
                           int64_t length, float* out) {
  memset(out, 0, 4 * line);
  for (int64_t j = 0; j < length; j += UNROLL) {
    int64_t indices[UNROLL];
    clamp_indices(j, length, indices);
    float factors[UNROLL];
    for (int64_t k = 0; k < UNROLL; ++k) factors[k] = j + k < length ? gradient[j + k] : 0;
    for (int64_t d = 0; d < line; d += LANES) {
      Vector key_registers[UNROLL], r[UNROLL], partial = load(out + d);
      load_keys<SHARE, HALF>(key, SHARE ? line : width, indices, d, key_registers);
      fractions<SHARE>(load(query_line + d), key_registers, r);
      for (int64_t k = 0; k < UNROLL; ++k) partial += factors[k] * (r[k] - r[k] * r[k]);
      store(out + d, partial);
    }
  }
  for (int64_t d = 0; d < line; d += LANES) store(out + d, 4.0f * load(v + d) * load(out + d));
}

// The gradients of a task's rows.
template <bool HALF>
static void backward_of(const Backward& job, int64_t task, float* scratch) {
  const int64_t width = job.width, line = padded(width), features = job.features;
  float *query_line = scratch, *gradient_line = scratch + line, *context = scratch + 2 * line;
  for (int64_t row = task * ROWS; row < job.rows && row < (task + 1) * ROWS; ++row) {
    const int64_t step = row * job.steps + job.step, length = job.lengths[row] < job.keys ? job.lengths[row] : job.keys;
    const void *key = advance<HALF>(job.key, row * job.keys * width), *values = advance<HALF>(job.values, row * job.keys * features);
    const float *query = job.queries + step * width, *weights = job.weights + step * job.keys;
    float *dscores = job.dscores + step * job.keys, mean = 0;
    for (int64_t f = 0; f < features; f += LANES) {
      Vector partial = get(job.product, HALF, row * features + f, features - f);
      if (job.outer_gradient) partial += get(job.outer_gradient, HALF, (job.step * job.rows + row) * features + f, features - f);
      store(context + f, partial);
      put(job.dcontexts, HALF, step * features + f, features - f, partial);
    }
    dots<HALF>(context, values, features, length, dscores);
    for (int64_t j = 0; j < length; ++j) mean += weights[j] * dscores[j];
    for (int64_t j = 0; j < length; ++j) dscores[j] = weights[j] * (dscores[j] - mean);
    for (int64_t j = length; j < job.keys; ++j) dscores[j] = 0;
    if (!job.v) {
      mix<HALF>(dscores, key, width, length, gradient_line);
    } else {
      Vector maxima = {};
      for (int64_t d = 0; d < width; d += LANES) maxima = max_magnitude(maxima, get(query, false, d, width - d));
      const int64_t sharing = sharing_of(largest(maxima), job.maxima[row]);
      to_line(query, width, sharing, query_line);
      if (sharing) key = advance<HALF>(job.lowered_keys, row * job.keys * line);
      auto backpropagate = sharing == 4 ? query_gradient<4, HALF> : sharing == 2 ? query_gradient<2, HALF> : sharing ? query_gradient<1,
          HALF> : query_gradient<0, HALF>;
      backpropagate(query_line, job.v, key, dscores, width, line, length, gradient_line);
    }
    for (int64_t d = 0; d < width; d += LANES)
      put(job.dqueries, HALF, job.step * job.query_step + row * job.query_row + d, width - d, load(gradient_line + d));
  }
}

// The gradients of one row's keys, each against all queries of the row.
template <int64_t SHARE, bool HALF>
static void row_key_gradients(const KeyGradients& job, int64_t row, float* scratch) {
  const int64_t width = job.width, line = padded(width), length = job.lengths[row] < job.keys ? job.lengths[row] : job.keys;
  float *queries = scratch, *key = queries + job.steps * line, *sum_r = key + line, *sum_r_squared = sum_r + line,
      *dv_line = sum_r_squared + line;
  float *key_dscores = dv_line + line, total = 0;
  memset(dv_line, 0, 4 * line);
  for (int64_t t = 0; t < job.steps; ++t) to_line(job.queries + (row * job.steps + t) * width, width, SHARE, queries + t * line);
  for (int64_t j = 0; j < length; ++j) {
    for (int64_t t = 0; t < job.steps; ++t) total += key_dscores[t] = job.dscores[(row * job.steps + t) * job.keys + j];
    for (int64_t d = 0; d < line; d += LANES) {
      const Vector x = d < width ? get(job.key, HALF, (row * job.keys + j) * width + d, width - d) : Vector{};
      store(key + d, SHARE ? exponential(2.0f * x) : x);
    }
    memset(sum_r, 0, 8 * line);
    for (int64_t t = 0; t < job.steps; t += UNROLL) {
      int64_t indices[UNROLL];
      clamp_indices(t, job.steps, indices);
      float factors[UNROLL];
      for (int64_t k = 0; k < UNROLL; ++k) factors[k] = t + k < job.steps ? key_dscores[t + k] : 0;
      for (int64_t d = 0; d < line; d += LANES) {
        Vector key_registers[UNROLL], r[UNROLL], first = load(sum_r + d), second = load(sum_r_squared + d);
        for (int64_t k = 0; k < UNROLL; ++k) key_registers[k] = load(queries + indices[k] * line + d);
        fractions<SHARE>(load(key + d), key_registers, r);
        for (int64_t k = 0; k < UNROLL; ++k) {
          const Vector sharing = factors[k] * r[k];
          first += sharing, second += sharing * r[k];
        }
        store(sum_r + d, first), store(sum_r_squared + d, second);
      }
    }
    for (int64_t d = 0; d < width; d += LANES) {
      const Vector gradient_line = 4.0f * load(job.v + d) * (load(sum_r + d) - load(sum_r_squared + d));
      store(dv_line + d, load(dv_line + d) + load(sum_r + d));
      put(job.dkeys, HALF, (row * job.keys + j) * width + d, width - d, gradient_line);
    }
  }
  for (int64_t j = length; j < job.keys; ++j)
    for (int64_t d = 0; d < width; d += LANES) put(job.dkeys, HALF, (row * job.keys + j) * width + d, width - d, Vector{});
  for (int64_t d = 0; d < width; d += LANES) put(job.dv, false, row * width + d, width - d, total - 2.0f * load(dv_line + d));
}

template <bool HALF>
static void key_gradients_of(const KeyGradients& job, int64_t row, float* scratch) {
  Vector maxima = {};
  for (int64_t t = row * job.steps; t < (row + 1) * job.steps; ++t)
    for (int64_t d = 0; d < job.width; d += LANES) maxima =
        max_magnitude(maxima, get(job.queries, false, t * job.width + d, job.width - d));
  const int64_t sharing = sharing_of(largest(maxima), job.maxima[row]);
  auto backpropagate = sharing == 4 ? row_key_gradients<4, HALF> : sharing == 2 ? row_key_gradients<2,
      HALF> : sharing ? row_key_gradients<1, HALF> : row_key_gradients<0, HALF>;
  backpropagate(job, row, scratch);
}

static void key_gradients(const KeyGradients& job, int64_t row, float* scratch) {
  job.is_half ? key_gradients_of<true>(job, row, scratch) : key_gradients_of<false>(job, row, scratch);
}

static void forward(const Forward& job, int64_t task, float* scratch) {
  job.is_half ? forward_of<true>(job, task, scratch) : forward_of<false>(job, task, scratch);
}

static void backward(const Backward& job, int64_t task, float* scratch) {
  job.is_half ? backward_of<true>(job, task, scratch) : backward_of<false>(job, task, scratch);
}
