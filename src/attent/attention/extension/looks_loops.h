// The loops of looks.cpp for one width of vector registers, LANES. Included once for each, inside a namespace of its own and under that
// width's compiler target. Every sum has one order, whatever is computed beside it.

#include "lanes.h"

static inline float total(Vector vector) {
  typedef float Four __attribute__((vector_size(16)));
  Four fours[LANES / 4];
  memcpy(fours, &vector, sizeof vector);
  Four sum = fours[0];
  for (int64_t i = 1; i < LANES / 4; ++i) sum += fours[i];
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

static float product(const float* one, const float* other, int64_t width) {
  Vector sum{};
  int64_t d = 0;
  for (; d + LANES <= width; d += LANES) sum += load(one + d) * load(other + d);
  float found = total(sum);
  for (; d < width; ++d) found += one[d] * other[d];
  return found;
}

// All heads of one sequence.
static void look(const Looks& job, int64_t b, float* scratch) {
  const int64_t count = job.counts[b], width = job.width, *rows = job.rows + b * job.stride;
  int64_t* at = reinterpret_cast<int64_t*>(scratch);
  float* weights = scratch + 2 * job.most;
  for (int64_t j = 0; j < count; ++j) at[j] = rows[j * job.each] * job.row + j * job.place;
  for (int64_t h = 0; h < job.heads; ++h) {
    const float* query = job.query + b * job.apart + h * width;
    const float* keys = job.memory + h / (job.heads / job.groups) * width;
    const float* values = keys + job.behind;
    float highest = -__builtin_inff();
    for (int64_t j = 0; j < count; ++j) {
      weights[j] = job.scale * product(query, keys + at[j], width);
      highest = weights[j] > highest ? weights[j] : highest;
    }
    // what stands behind the last weighs next to nothing
    for (int64_t j = count; j < count + LANES; ++j) weights[j] = -__builtin_inff();
    Vector sum{};
    for (int64_t j = 0; j < count; j += LANES) {
      const Vector below = load(weights + j) - highest;
      const Vector weight = exponential(below < -87.0f ? all(-87.0f) : below);
      store(weights + j, weight);
      sum += weight;
    }
    const float share = 1.0f / total(sum);
    float* context = job.context + (b * job.heads + h) * width;
    int64_t d = 0;
    for (; d + 2 * LANES <= width; d += 2 * LANES) {
      Vector one{}, other{};
      for (int64_t j = 0; j < count; ++j) {
        const float* value = values + at[j] + d;
        one += weights[j] * load(value);
        other += weights[j] * load(value + LANES);
      }
      store(context + d, one * share);
      store(context + d + LANES, other * share);
    }
    for (; d + LANES <= width; d += LANES) {
      Vector mixed{};
      for (int64_t j = 0; j < count; ++j) mixed += weights[j] * load(values + at[j] + d);
      store(context + d, mixed * share);
    }
    for (; d < width; ++d) {
      float mixed = 0.0f;
      for (int64_t j = 0; j < count; ++j) mixed += weights[j] * values[at[j] + d];
      context[d] = mixed * share;
    }
  }
}

// Some sequences.
static void turn(const Turned& job, int64_t task, float*) {
  const int64_t last = task * ROWS + ROWS < job.number ? task * ROWS + ROWS : job.number, half = job.width / 2;
  for (int64_t b = task * ROWS; b < last; ++b) {
    float* own = job.projected + b * job.apart;
    for (int64_t h = 0; h < job.turned; ++h) {
      float *__restrict one = own + h * job.width, *__restrict other = one + half;
      const float *__restrict cosine = job.cosine, *__restrict sine = job.sine;
      for (int64_t d = 0; d < half; ++d) {
        const float first = one[d], second = other[d];
        one[d] = first * cosine[d] - second * sine[d];
        other[d] = first * sine[d] + second * cosine[d];
      }
    }
    memcpy(job.to + b * job.kept, own + job.queries, 4 * job.kept);
  }
}
