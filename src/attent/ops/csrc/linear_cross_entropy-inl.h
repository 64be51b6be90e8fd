// The loops of linear_cross_entropy.cpp for one width of vector registers (LANES floats); foreach_target.h includes it for each.

#include "simd.h"

#include "bfloat16.h"

// Independent sums, which hide the latency of an addition.
constexpr int64_t UNROLL = 4;

// Load the `count` numbers after the last whole register, padded with `padding`.
template <typename T>
static inline Vector load_part(const T* from, int64_t count, float padding) {
  T buffer[LANES] = {};
  memcpy(buffer, from, sizeof(T) * count);
  const Vector vector = load(buffer);
  float numbers[LANES];
  store(numbers, vector);
  for (int64_t i = count; i < LANES; ++i) numbers[i] = padding;
  return load(numbers);
}

template <typename T>
static inline void store_part(T* to, Vector vector, int64_t count) {
  T buffer[LANES];
  store(buffer, vector);
  memcpy(to, buffer, sizeof(T) * count);
}

// The sum of all lanes of all registers.
static inline float total(const Vector (&sums)[UNROLL]) {
  float numbers[LANES], sum = 0;
  store(numbers, (sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (int64_t i = 0; i < LANES; ++i) sum += numbers[i];
  return sum;
}

// The logits as float32, plus the bias; `last_logits` loads the remaining `count`.
template <bool BIAS, typename T>
static inline Vector logits_at(const T* logits, const float* bias, int64_t j) {
  return BIAS ? load(logits + j) + load(bias + j) : load(logits + j);
}

template <bool BIAS, typename T>
static inline Vector last_logits(const T* logits, const float* bias, int64_t j, int64_t count, float padding) {
  const Vector buffer = load_part(logits + j, count, padding);
  return BIAS ? buffer + load_part(bias + j, count, 0) : buffer;
}

// The largest logit. It may pass over NaN, which the sum of the exponentials shows.
template <bool BIAS, typename T>
static inline float largest(const T* logits, const float* bias, int64_t width) {
  Vector maximum[UNROLL];
  for (int64_t s = 0; s < UNROLL; ++s) maximum[s] = broadcast(-INFINITY);
  int64_t j = 0;
  for (; j + UNROLL * LANES <= width; j += UNROLL * LANES)
    for (int64_t s = 0; s < UNROLL; ++s) {
      const Vector x = logits_at<BIAS>(logits, bias, j + s * LANES);
      maximum[s] = x > maximum[s] ? x : maximum[s];
    }
  for (; j < width; j += LANES) {
    const Vector x = j + LANES <= width ? logits_at<BIAS>(logits, bias, j) : last_logits<BIAS>(logits, bias, j, width - j, -INFINITY);
    maximum[0] = x > maximum[0] ? x : maximum[0];
  }
  float numbers[UNROLL * LANES], result = -INFINITY;
  for (int64_t s = 0; s < UNROLL; ++s) store(numbers + s * LANES, maximum[s]);
  for (int64_t i = 0; i < UNROLL * LANES; ++i) result = numbers[i] > result ? numbers[i] : result;
  return result;
}

// Write e^(x − maximum) to the line; return their sum, and if SMOOTH that of x − maximum.
template <bool BIAS, bool SMOOTH, typename T>
static inline float exponentials(const T* logits, const float* bias, int64_t width, float maximum, float* line, float* differences) {
  Vector sums[UNROLL] = {}, shifted[UNROLL] = {};
  int64_t j = 0;
  for (; j + UNROLL * LANES <= width; j += UNROLL * LANES)
    for (int64_t s = 0; s < UNROLL; ++s) {
      const Vector x = logits_at<BIAS>(logits, bias, j + s * LANES) - maximum, power = exponential_or_zero(x);
      if (SMOOTH) shifted[s] += x;
      sums[s] += power;
      store(line + j + s * LANES, power);
    }
  for (; j + LANES <= width; j += LANES) {
    const Vector x = logits_at<BIAS>(logits, bias, j) - maximum, power = exponential_or_zero(x);
    if (SMOOTH) shifted[0] += x;
    sums[0] += power;
    store(line + j, power);
  }
  if (j < width) {
    const int64_t count = width - j;
    float buffer[LANES];
    store(buffer, last_logits<BIAS>(logits, bias, j, count, 0) - maximum);
    const Vector power = exponential_or_zero(load_part(buffer, count, -INFINITY));
    if (SMOOTH) shifted[0] += load_part(buffer, count, 0);
    sums[0] += power;
    store_part(line + j, power, count);
  }
  *differences = total(shifted);
  return total(sums);
}

// Write the line times `factor`, less `shift`; if BIAS add it to the sums of the columns.
template <bool BIAS, typename T>
static inline void write_gradients(const float* line, int64_t width, float factor, float shift, T* to, float* columns) {
  int64_t j = 0;
  for (; j + LANES <= width; j += LANES) {
    const Vector gradient = load(line + j) * factor - shift;
    store(to + j, gradient);
    if (BIAS) store(columns + j, load(columns + j) + gradient);
  }
  if (j == width) return;
  const int64_t count = width - j;
  const Vector gradient = load_part(line + j, count, 0) * factor - shift;
  store_part(to + j, gradient, count);
  if (BIAS) store_part(columns + j, load_part(columns + j, count, 0) + gradient, count);
}

static inline float to_float(const float* from) { return *from; }

static inline float to_float(const uint16_t* from) {
  const uint32_t bits = static_cast<uint32_t>(*from) << 16;
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

static inline void fill_with_nan(float* to, int64_t width) {
  for (int64_t j = 0; j < width; ++j) to[j] = NAN;
}

static inline void fill_with_nan(uint16_t* to, int64_t width) {
  for (int64_t j = 0; j < width; ++j) to[j] = 0x7fc0;
}

// The loss of one row; with `needs_grad` its logits are replaced by their gradients.
template <bool BIAS, typename T>
static float row_loss(const Losses& job, T* logits, int64_t target, float* line, float* columns) {
  const int64_t width = job.width;
  const float maximum = largest<BIAS>(logits, job.bias, width), smoothing = job.smoothing;
  const float target_logit = to_float(logits + target) + (BIAS ? job.bias[target] : 0.0f) - maximum;
  float differences, sum;
  if (smoothing > 0) sum = exponentials<BIAS, true>(logits, job.bias, width, maximum, line, &differences);
  else sum = exponentials<BIAS, false>(logits, job.bias, width, maximum, line, &differences);
  if (job.needs_grad) {
    const float factor = 1.0f / sum, shift = smoothing / width, gradient = line[target] * factor - shift + (smoothing - 1.0f);
    if (BIAS) columns[target] += smoothing - 1.0f;
    write_gradients<BIAS>(line, width, factor, shift, logits, columns);
    if (std::isnan(sum)) fill_with_nan(logits, width);
    else store_part(logits + target, broadcast(gradient), 1);
  }
  const float log_sum = std::log(sum), loss = log_sum - target_logit;
  return smoothing > 0 ? (1.0f - smoothing) * loss + smoothing * (log_sum - differences / width) : loss;
}

// A task's rows of one type.
template <typename T>
static void rows_of(const Losses& job, int64_t task, float* line) {
  const int64_t width = job.width, end = task * ROWS + ROWS < job.rows ? task * ROWS + ROWS : job.rows;
  float* columns = job.columns ? job.columns + task * width : nullptr;
  if (columns) memset(columns, 0, 4 * width);
  for (int64_t i = task * ROWS; i < end; ++i) {
    T* logits = static_cast<T*>(job.logits) + i * width;
    if (job.bias) job.losses[i] = row_loss<true>(job, logits, job.target[i], line, columns);
    else job.losses[i] = row_loss<false>(job, logits, job.target[i], line, columns);
  }
}

static void loss_task(const Losses& job, int64_t task, float* line) {
  if (job.is_half) rows_of<uint16_t>(job, task, line);
  else rows_of<float>(job, task, line);
}
