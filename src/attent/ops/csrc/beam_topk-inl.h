// The loops of beam_topk.cpp for one width of vector registers (LANES floats). foreach_target.h includes this file for each width.

#include "simd.h"

// Registers whose maximum is compared before their numbers.
constexpr int64_t BLOCK = 8;

static inline float max_lane(Vector vector) {
  float numbers[LANES];
  store(numbers, vector);
  for (int64_t half = LANES / 2; half; half /= 2)
    for (int64_t i = 0; i < half; ++i) numbers[i] = numbers[i + half] > numbers[i] ? numbers[i + half] : numbers[i];
  return numbers[0];
}

// The maximum, ignoring NaN.
static inline float maximum(const float* x, int64_t count) {
  Vector maxima[2] = {broadcast(-__builtin_inff()), broadcast(-__builtin_inff())};
  int64_t j = 0;
  for (; j + 2 * LANES <= count; j += 2 * LANES)
    for (int64_t s = 0; s < 2; ++s) {
      const Vector x_j = load(x + j + s * LANES);
      maxima[s] = x_j > maxima[s] ? x_j : maxima[s];
    }
  float result = max_lane(maxima[0] > maxima[1] ? maxima[0] : maxima[1]);
  for (; j < count; ++j) result = x[j] > result ? x[j] : result;
  return result;
}

// log Σ e^x; NaN if one of them is.
static float log_of_sum(const float* x, int64_t count) {
  const float highest = maximum(x, count);
  Vector sums[2] = {};
  int64_t j = 0;
  for (; j + 2 * LANES <= count; j += 2 * LANES)
    for (int64_t s = 0; s < 2; ++s) {
      const Vector shifted = load(x + j + s * LANES) - highest;
      sums[s] += exponential(shifted < -87.0f ? broadcast(-87.0f) : shifted);
    }
  float numbers[LANES], sum = 0;
  store(numbers, sums[0] + sums[1]);
  for (int64_t i = 0; i < LANES; ++i) sum += numbers[i];
  for (; j < count; ++j) sum += std::exp(x[j] - highest);
  return highest + std::log(sum);
}

// Σ e^(x − highest), and each of these numbers in `exponentials`.
static float sum_of_exponentials(const float* x, float highest, float* exponentials, int64_t count) {
  Vector sums[2] = {};
  int64_t j = 0;
  for (; j + 2 * LANES <= count; j += 2 * LANES)
    for (int64_t s = 0; s < 2; ++s) {
      const Vector exponential = exponential_or_zero(load(x + j + s * LANES) - highest);
      store(exponentials + j + s * LANES, exponential);
      sums[s] += exponential;
    }
  float numbers[LANES], sum = 0;
  store(numbers, sums[0] + sums[1]);
  for (int64_t i = 0; i < LANES; ++i) sum += numbers[i];
  for (; j < count; ++j) sum += exponentials[j] = std::exp(x[j] - highest);
  return sum;
}

// The best continuations of a task's sentences.
static void topk(const TopK& job, int64_t task, float*) {
  const int64_t end = task * SENTENCES + SENTENCES < job.number ? task * SENTENCES + SENTENCES : job.number;
  for (int64_t i = task * SENTENCES; i < end; ++i) {
    float* totals = job.totals + i * job.count;
    int64_t *indices = job.indices + i * job.count, filled = 0;
    for (int64_t c = 0; c < job.count; ++c) totals[c] = -__builtin_inff(), indices[c] = 0;
    for (int64_t k = 0; k < job.width; ++k) {
      const float score = job.scores[i * job.width + k];
      float* log_probs = job.log_probs + (i * job.width + k) * job.vocabulary;
      // a finished or unused row of the beam
      if (score == -__builtin_inff()) continue;
      float log_sum = 0.0f;
      if (job.logits) {
        log_sum = log_of_sum(log_probs, job.vocabulary);
        log_probs[job.forbidden[0]] = log_probs[job.forbidden[1]] = -__builtin_inff();
      }
      if (log_sum != log_sum) {
        if (!filled) totals[0] = log_sum, indices[0] = k * job.vocabulary + job.eos;
        continue;
      }
      for (int64_t j = 0; j < job.vocabulary; j += BLOCK * LANES) {
        const int64_t end = j + BLOCK * LANES < job.vocabulary ? j + BLOCK * LANES : job.vocabulary;
        if (!(score + (maximum(log_probs + j, end - j) - log_sum) > totals[job.count - 1])) continue;
        for (int64_t v = j; v < end; ++v) {
          const float total = score + (log_probs[v] - log_sum);
          if (!(total > totals[job.count - 1])) continue;
          int64_t c = filled < job.count ? filled++ : job.count - 1;
          for (; c && total > totals[c - 1]; --c) totals[c] = totals[c - 1], indices[c] = indices[c - 1];
          totals[c] = total, indices[c] = k * job.vocabulary + v;
        }
      }
    }
  }
}

// The log-softmax of a task's rows.
static void log_softmax(const LogSoftmax& job, int64_t task, float*) {
  const int64_t end = task * ROWS + ROWS < job.number ? task * ROWS + ROWS : job.number;
  for (int64_t i = task * ROWS; i < end; ++i) {
    float* logits = job.logits + i * job.vocabulary;
    const float log_sum = log_of_sum(logits, job.vocabulary);
    for (int64_t v = 0; v < job.vocabulary; ++v) logits[v] -= log_sum;
  }
}

// log (Σ_m e^x_m / M) of the log-probabilities x of token v, in place of the first model's logit.
static inline void log_mean_at(const LogMeanSoftmax& job, float* first, const float* log_sums, float log_count, int64_t v, int64_t end) {
  for (; v < end; ++v) {
    float highest = -__builtin_inff(), sum = 0;
    for (int64_t model = 0; model < job.count; ++model) {
      const float x = first[model * job.stride() + v] - log_sums[model];
      highest = x > highest ? x : highest;
    }
    for (int64_t model = 0; model < job.count; ++model) sum += std::exp(first[model * job.stride() + v] - log_sums[model] - highest);
    first[v] = highest == -__builtin_inff() ? highest : highest + (std::log(sum) - log_count);
  }
}

// The logarithm of the mean of the models' softmax, in place of the first model's logits. `scratch` holds each model's log Σ e^x, the
// share 1 / (M Σ e^x) of its exponentials, and these.
static void log_mean_softmax(const LogMeanSoftmax& job, int64_t task, float* scratch) {
  const int64_t end = task * ROWS + ROWS < job.number ? task * ROWS + ROWS : job.number, size = job.vocabulary;
  const float log_count = std::log(static_cast<float>(job.count));
  float *log_sums = scratch, *shares = log_sums + job.count, *exponentials = shares + job.count;
  for (int64_t i = task * ROWS; i < end; ++i) {
    float *first = job.logits + i * size, total = 0;
    for (int64_t model = 0; model < job.count; ++model) {
      const float* x = first + model * job.stride();
      const float highest = maximum(x, size), sum = sum_of_exponentials(x, highest, exponentials + model * size, size);
      log_sums[model] = highest + std::log(sum);
      shares[model] = 1.0f / (sum * job.count);
      total += shares[model];
    }
    if (total != total) {
      for (int64_t v = 0; v < size; ++v) first[v] = total;
      continue;
    }
    int64_t v = 0;
    for (; v + BLOCK * LANES <= size; v += BLOCK * LANES) {
      Vector means[BLOCK], lowest = broadcast(1.0f);
      for (int64_t b = 0; b < BLOCK; ++b) {
        means[b] = load(exponentials + v + b * LANES) * shares[0];
        for (int64_t model = 1; model < job.count; ++model) means[b] += load(exponentials + model * size + v + b * LANES) * shares[model];
        lowest = means[b] < lowest ? means[b] : lowest;
      }
      // smaller ones have lost digits, or are 0
      if (-max_lane(-lowest) < 1e-30f) log_mean_at(job, first, log_sums, log_count, v, v + BLOCK * LANES);
      else
        for (int64_t b = 0; b < BLOCK; ++b) store(first + v + b * LANES, logarithm(means[b]));
    }
    log_mean_at(job, first, log_sums, log_count, v, size);
  }
}
