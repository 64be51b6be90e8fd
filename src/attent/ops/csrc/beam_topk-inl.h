// The loops of likeliest.cpp for one width of vector registers, LANES. Included once for each, inside a namespace of its own and under that
// width's compiler target.

#include "simd.h"

// Registers whose highest number is found before any is looked at.
constexpr int64_t BLOCK = 8;

static inline float highest_lane(Vector vector) {
  float numbers[LANES];
  store(numbers, vector);
  for (int64_t lanes = LANES / 2; lanes; lanes /= 2)
    for (int64_t i = 0; i < lanes; ++i) numbers[i] = numbers[i + lanes] > numbers[i] ? numbers[i + lanes] : numbers[i];
  return numbers[0];
}

// The highest of some numbers, passing over NaN.
static inline float highest(const float* x, int64_t count) {
  Vector most[2] = {all(-__builtin_inff()), all(-__builtin_inff())};
  int64_t j = 0;
  for (; j + 2 * LANES <= count; j += 2 * LANES)
    for (int64_t s = 0; s < 2; ++s) {
      const Vector here = load(x + j + s * LANES);
      most[s] = here > most[s] ? here : most[s];
    }
  float found = highest_lane(most[0] > most[1] ? most[0] : most[1]);
  for (; j < count; ++j) found = x[j] > found ? x[j] : found;
  return found;
}

// log Σ e^x; NaN if one of them is.
static float log_of_sum(const float* x, int64_t count) {
  const float most = highest(x, count);
  Vector sums[2] = {};
  int64_t j = 0;
  for (; j + 2 * LANES <= count; j += 2 * LANES)
    for (int64_t s = 0; s < 2; ++s) {
      const Vector below = load(x + j + s * LANES) - most;
      sums[s] += exponential(below < -87.0f ? all(-87.0f) : below);
    }
  float numbers[LANES], sum = 0;
  store(numbers, sums[0] + sums[1]);
  for (int64_t i = 0; i < LANES; ++i) sum += numbers[i];
  for (; j < count; ++j) sum += std::exp(x[j] - most);
  return most + std::log(sum);
}

// Some sentences.
static void rank(const Ranking& job, int64_t task, float*) {
  const int64_t last = task * SENTENCES + SENTENCES < job.number ? task * SENTENCES + SENTENCES : job.number;
  for (int64_t i = task * SENTENCES; i < last; ++i) {
    float* scores = job.scores + i * job.count;
    int64_t *places = job.places + i * job.count, found = 0;
    for (int64_t c = 0; c < job.count; ++c) scores[c] = -__builtin_inff(), places[c] = 0;
    for (int64_t k = 0; k < job.width; ++k) {
      const float before = job.so_far[i * job.width + k];
      float* told = job.told + (i * job.width + k) * job.size;
      // nothing goes on
      if (before == -__builtin_inff()) continue;
      float less = 0.0f;
      if (job.logits) {
        less = log_of_sum(told, job.size);
        told[job.barred[0]] = told[job.barred[1]] = -__builtin_inff();
      }
      if (less != less) {
        if (!found) scores[0] = less, places[0] = k * job.size + job.stop;
        continue;
      }
      for (int64_t j = 0; j < job.size; j += BLOCK * LANES) {
        const int64_t end = j + BLOCK * LANES < job.size ? j + BLOCK * LANES : job.size;
        if (!(before + (highest(told + j, end - j) - less) > scores[job.count - 1])) continue;
        for (int64_t v = j; v < end; ++v) {
          const float score = before + (told[v] - less);
          if (!(score > scores[job.count - 1])) continue;
          int64_t c = found < job.count ? found++ : job.count - 1;
          for (; c && score > scores[c - 1]; --c) scores[c] = scores[c - 1], places[c] = places[c - 1];
          scores[c] = score, places[c] = k * job.size + v;
        }
      }
    }
  }
}
