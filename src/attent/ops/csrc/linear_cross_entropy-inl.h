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

// Two rows of the same token: their exponentials over their sums are probabilities, and `constant` is what the difference of their
// logits exceeds that of their log-probabilities by. A bias is the same in both.
template <typename T>
struct Pair {
  T *first, *second;
  const float *first_line, *second_line;
  float first_factor, second_factor, constant;
};

struct Divergences {
  float first, second;
};

static inline Vector load_up_to(const float* from, int64_t count) { return count == LANES ? load(from) : load_part(from, count, 0); }

static inline Vector load_up_to(const uint16_t* from, int64_t count) { return count == LANES ? load(from) : load_part(from, count, 0); }

template <typename T>
static inline void store_up_to(T* to, Vector vector, int64_t count) {
  if (count == LANES) store(to, vector);
  else store_part(to, vector, count);
}

// Σ p log(p / q) and Σ q log(q / p).
template <typename T>
static Divergences divergences(const Pair<T>& pair, int64_t width) {
  Vector first[UNROLL] = {}, second[UNROLL] = {};
  for (int64_t j = 0, s = 0; j < width; j += LANES, s = (s + 1) % UNROLL) {
    const int64_t count = j + LANES <= width ? LANES : width - j;
    const Vector ratio = load_up_to(pair.first + j, count) - load_up_to(pair.second + j, count) - pair.constant;
    first[s] += load_up_to(pair.first_line + j, count) * ratio;
    second[s] -= load_up_to(pair.second_line + j, count) * ratio;
  }
  return {total(first) * pair.first_factor, total(second) * pair.second_factor};
}

// Write p − shift + weight (p (log(p / q) − divergence) + p − q), and the same for q; if BIAS add both to the sums of the columns.
template <bool BIAS, typename T>
static void write_pair(const Pair<T>& pair, int64_t width, Divergences divergence, float shift, float weight, float* columns) {
  for (int64_t j = 0; j < width; j += LANES) {
    const int64_t count = j + LANES <= width ? LANES : width - j;
    const Vector ratio = load_up_to(pair.first + j, count) - load_up_to(pair.second + j, count) - pair.constant;
    const Vector p = load_up_to(pair.first_line + j, count) * pair.first_factor;
    const Vector q = load_up_to(pair.second_line + j, count) * pair.second_factor;
    const Vector first = p - shift + (p * (ratio - divergence.first) + (p - q)) * weight;
    const Vector second = q - shift + (q * (-ratio - divergence.second) + (q - p)) * weight;
    store_up_to(pair.first + j, first, count);
    store_up_to(pair.second + j, second, count);
    if (BIAS) store_up_to(columns + j, load_up_to(columns + j, count) + first + second, count);
  }
}

// What the exponentials of a row add up to.
struct RowSums {
  float maximum, sum, loss;
};

// Write a row's exponentials to the line, and return its largest logit, their sum and the loss.
template <bool BIAS, typename T>
static RowSums row_sums(const Losses& job, const T* logits, int64_t target, float* line) {
  const int64_t width = job.width;
  const float maximum = largest<BIAS>(logits, job.bias, width), smoothing = job.smoothing;
  const float target_logit = to_float(logits + target) + (BIAS ? job.bias[target] : 0.0f) - maximum;
  float differences, sum;
  if (smoothing > 0) sum = exponentials<BIAS, true>(logits, job.bias, width, maximum, line, &differences);
  else sum = exponentials<BIAS, false>(logits, job.bias, width, maximum, line, &differences);
  const float log_sum = std::log(sum), loss = log_sum - target_logit;
  return {maximum, sum, smoothing > 0 ? (1.0f - smoothing) * loss + smoothing * (log_sum - differences / width) : loss};
}

// The loss of one row; with `needs_grad` its logits are replaced by their gradients.
template <bool BIAS, typename T>
static float row_loss(const Losses& job, T* logits, int64_t target, float* line, float* columns) {
  const int64_t width = job.width;
  const float smoothing = job.smoothing;
  const RowSums row = row_sums<BIAS>(job, logits, target, line);
  if (job.needs_grad) {
    const float factor = 1.0f / row.sum, shift = smoothing / width, gradient = line[target] * factor - shift + (smoothing - 1.0f);
    if (BIAS) columns[target] += smoothing - 1.0f;
    write_gradients<BIAS>(line, width, factor, shift, logits, columns);
    if (std::isnan(row.sum)) fill_with_nan(logits, width);
    else store_part(logits + target, broadcast(gradient), 1);
  }
  return row.loss;
}

// The losses of two rows in turn that are of one token, each with half of their divergence.
template <bool BIAS, typename T>
static void pair_loss(const Losses& job, T* logits, int64_t target, float* lines, float* columns, float* losses) {
  const int64_t width = job.width;
  T* other = logits + width;
  const RowSums first = row_sums<BIAS>(job, logits, target, lines), second = row_sums<BIAS>(job, other, target, lines + width);
  const float constant = (first.maximum + std::log(first.sum)) - (second.maximum + std::log(second.sum));
  const Pair<T> pair{logits, other, lines, lines + width, 1.0f / first.sum, 1.0f / second.sum, constant};
  const Divergences divergence = divergences(pair, width);
  const float weight = job.r_drop / 2, added = weight * (divergence.first + divergence.second) / 2;
  losses[0] = first.loss + added;
  losses[1] = second.loss + added;
  if (!job.needs_grad) return;
  const float ratio = to_float(logits + target) - to_float(other + target) - constant, shift = job.smoothing / width;
  const float p = lines[target] * pair.first_factor, q = lines[width + target] * pair.second_factor;
  const float lifted = job.smoothing - 1.0f - shift;
  write_pair<BIAS>(pair, width, divergence, shift, weight, columns);
  if (BIAS) columns[target] += 2 * (job.smoothing - 1.0f);
  if (std::isnan(losses[0] + losses[1])) {
    fill_with_nan(logits, 2 * width);
    return;
  }
  store_part(logits + target, broadcast(p + lifted + (p * (ratio - divergence.first) + (p - q)) * weight), 1);
  store_part(other + target, broadcast(q + lifted + (q * (-ratio - divergence.second) + (q - p)) * weight), 1);
}

// A task's rows of one type.
template <typename T>
static void rows_of(const Losses& job, int64_t task, float* line) {
  const int64_t width = job.width, end = task * ROWS + ROWS < job.rows ? task * ROWS + ROWS : job.rows;
  float* columns = job.columns ? job.columns + task * width : nullptr;
  if (columns) memset(columns, 0, 4 * width);
  for (int64_t i = task * ROWS; i < end; ++i) {
    T* logits = static_cast<T*>(job.logits) + i * width;
    if (job.r_drop > 0) {
      if (job.bias) pair_loss<true>(job, logits, job.target[i], line, columns, job.losses + i);
      else pair_loss<false>(job, logits, job.target[i], line, columns, job.losses + i);
      ++i;
    } else if (job.bias) job.losses[i] = row_loss<true>(job, logits, job.target[i], line, columns);
    else job.losses[i] = row_loss<false>(job, logits, job.target[i], line, columns);
  }
}

static void loss_task(const Losses& job, int64_t task, float* line) {
  if (job.is_half) rows_of<uint16_t>(job, task, line);
  else rows_of<float>(job, task, line);
}
