// The loops of output_loss.cpp for one width of vector registers. Included once for each, inside a namespace of its own and under that
// width's compiler target, with
//   LANES     floats in a register

#include "simd.h"

#include "bfloat16.h"

// Registers that are worked on side by side: one sum alone would wait for itself.
constexpr int64_t SIDE = 4;

// What follows the last whole register: numbers, and behind them `rest`.
template <typename T>
static inline Vector load_part(const T* from, int64_t count, float rest) {
  T some[LANES] = {};
  memcpy(some, from, sizeof(T) * count);
  const Vector vector = load(some);
  float numbers[LANES];
  store(numbers, vector);
  for (int64_t i = count; i < LANES; ++i) numbers[i] = rest;
  return load(numbers);
}

template <typename T>
static inline void store_part(T* to, Vector vector, int64_t count) {
  T some[LANES];
  store(some, vector);
  memcpy(to, some, sizeof(T) * count);
}

// All lanes of all registers, in an order of its own.
static inline float total(const Vector (&sums)[SIDE]) {
  float numbers[LANES], sum = 0;
  store(numbers, (sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (int64_t i = 0; i < LANES; ++i) sum += numbers[i];
  return sum;
}

// The logits as float32, with the bias; of those left over at the end `count`, and `rest` behind them.
template <bool BIAS, typename T>
static inline Vector logits_at(const T* logits, const float* bias, int64_t j) {
  return BIAS ? load(logits + j) + load(bias + j) : load(logits + j);
}

template <bool BIAS, typename T>
static inline Vector last_logits(const T* logits, const float* bias, int64_t j, int64_t count, float rest) {
  const Vector some = load_part(logits + j, count, rest);
  return BIAS ? some + load_part(bias + j, count, 0) : some;
}

// The largest logit. It may pass over NaN, which the sum of the exponentials shows.
template <bool BIAS, typename T>
static inline float largest(const T* logits, const float* bias, int64_t width) {
  Vector most[SIDE];
  for (int64_t s = 0; s < SIDE; ++s) most[s] = all(-INFINITY);
  int64_t j = 0;
  for (; j + SIDE * LANES <= width; j += SIDE * LANES)
    for (int64_t s = 0; s < SIDE; ++s) {
      const Vector x = logits_at<BIAS>(logits, bias, j + s * LANES);
      most[s] = x > most[s] ? x : most[s];
    }
  for (; j < width; j += LANES) {
    const Vector x = j + LANES <= width ? logits_at<BIAS>(logits, bias, j) : last_logits<BIAS>(logits, bias, j, width - j, -INFINITY);
    most[0] = x > most[0] ? x : most[0];
  }
  float numbers[SIDE * LANES], found = -INFINITY;
  for (int64_t s = 0; s < SIDE; ++s) store(numbers + s * LANES, most[s]);
  for (int64_t i = 0; i < SIDE * LANES; ++i) found = numbers[i] > found ? numbers[i] : found;
  return found;
}

// Into the line e^(x − most); returns their sum, and that of x − most where the loss is smoothed.
template <bool BIAS, bool SMOOTH, typename T>
static inline float exponentials(const T* logits, const float* bias, int64_t width, float most, float* line, float* differences) {
  Vector sums[SIDE] = {}, below[SIDE] = {};
  int64_t j = 0;
  for (; j + SIDE * LANES <= width; j += SIDE * LANES)
    for (int64_t s = 0; s < SIDE; ++s) {
      const Vector x = logits_at<BIAS>(logits, bias, j + s * LANES) - most, power = exponential_or_zero(x);
      if (SMOOTH) below[s] += x;
      sums[s] += power;
      store(line + j + s * LANES, power);
    }
  for (; j + LANES <= width; j += LANES) {
    const Vector x = logits_at<BIAS>(logits, bias, j) - most, power = exponential_or_zero(x);
    if (SMOOTH) below[0] += x;
    sums[0] += power;
    store(line + j, power);
  }
  if (j < width) {
    const int64_t count = width - j;
    float some[LANES];
    store(some, last_logits<BIAS>(logits, bias, j, count, 0) - most);
    const Vector power = exponential_or_zero(load_part(some, count, -INFINITY));
    if (SMOOTH) below[0] += load_part(some, count, 0);
    sums[0] += power;
    store_part(line + j, power, count);
  }
  *differences = total(below);
  return total(sums);
}

// The line times `factor`, less `shift`; added to the sums of the columns where there are any.
template <bool BIAS, typename T>
static inline void slopes(const float* line, int64_t width, float factor, float shift, T* to, float* columns) {
  int64_t j = 0;
  for (; j + LANES <= width; j += LANES) {
    const Vector slope = load(line + j) * factor - shift;
    store(to + j, slope);
    if (BIAS) store(columns + j, load(columns + j) + slope);
  }
  if (j == width) return;
  const int64_t count = width - j;
  const Vector slope = load_part(line + j, count, 0) * factor - shift;
  store_part(to + j, slope, count);
  if (BIAS) store_part(columns + j, load_part(columns + j, count, 0) + slope, count);
}

static inline float number_of(const float* from) { return *from; }

static inline float number_of(const uint16_t* from) {
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

// One row: its loss; where `wanted`, slopes in the logits' place.
template <bool BIAS, typename T>
static float row_loss(const Losses& job, T* logits, int64_t target, float* line, float* columns) {
  const int64_t width = job.width;
  const float most = largest<BIAS>(logits, job.bias, width), smoothing = job.smoothing;
  const float told = number_of(logits + target) + (BIAS ? job.bias[target] : 0.0f) - most;
  float differences, sum;
  if (smoothing > 0) sum = exponentials<BIAS, true>(logits, job.bias, width, most, line, &differences);
  else sum = exponentials<BIAS, false>(logits, job.bias, width, most, line, &differences);
  if (job.wanted) {
    const float factor = 1.0f / sum, shift = smoothing / width, slope = line[target] * factor - shift + (smoothing - 1.0f);
    if (BIAS) columns[target] += smoothing - 1.0f;
    slopes<BIAS>(line, width, factor, shift, logits, columns);
    if (std::isnan(sum)) fill_with_nan(logits, width);
    else store_part(logits + target, all(slope), 1);
  }
  const float whole = std::log(sum), loss = whole - told;
  return smoothing > 0 ? (1.0f - smoothing) * loss + smoothing * (whole - differences / width) : loss;
}

// Some rows of one type.
template <typename T>
static void rows_of(const Losses& job, int64_t task, float* line) {
  const int64_t width = job.width, last = task * ROWS + ROWS < job.rows ? task * ROWS + ROWS : job.rows;
  float* columns = job.columns ? job.columns + task * width : nullptr;
  if (columns) memset(columns, 0, 4 * width);
  for (int64_t i = task * ROWS; i < last; ++i) {
    T* logits = static_cast<T*>(job.logits) + i * width;
    if (job.bias) job.losses[i] = row_loss<true>(job, logits, job.target[i], line, columns);
    else job.losses[i] = row_loss<false>(job, logits, job.target[i], line, columns);
  }
}

static void loss_task(const Losses& job, int64_t task, float* line) {
  if (job.halves) rows_of<uint16_t>(job, task, line);
  else rows_of<float>(job, task, line);
}
