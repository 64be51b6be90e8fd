// Attention of one query, whose keys and values are gathered by offsets. Included after simd.h, inside the namespace of a target. The
// order of every sum is independent of the batch.

static inline float total(Vector vector) {
  typedef float Four __attribute__((vector_size(16)));
  Four fours[LANES / 4];
  memcpy(fours, &vector, sizeof vector);
  Four sums = fours[0];
  for (int64_t i = 1; i < LANES / 4; ++i) sums += fours[i];
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

static inline float dot(const float* first, const float* second, int64_t width) {
  Vector sums{};
  int64_t d = 0;
  for (; d + LANES <= width; d += LANES) sums += load(first + d) * load(second + d);
  float sum = total(sums);
  for (; d < width; ++d) sum += first[d] * second[d];
  return sum;
}

struct Heads {
  int64_t heads, groups, width;
  float scale;
};

// context (H·D) of query (H·D): softmax of scale · q·k over `count` keys, the j-th at memory + offsets[j], its value G·D numbers
// later; zeros without keys. `weights` has room for count + LANES numbers.
static void decode_attention(const Heads& heads, const float* query, const float* memory, const int64_t* offsets, int64_t count,
                             float* weights, float* context) {
  const int64_t width = heads.width, heads_per_group = heads.heads / heads.groups;
  if (!count) memset(context, 0, 4 * heads.heads * width);
  for (int64_t h = 0; h < heads.heads && count; ++h, query += width, context += width) {
    const float *keys = memory + h / heads_per_group * width, *values = keys + heads.groups * width;
    float maximum = -__builtin_inff();
    for (int64_t j = 0; j < count; ++j) {
      weights[j] = heads.scale * dot(query, keys + offsets[j], width);
      maximum = weights[j] > maximum ? weights[j] : maximum;
    }
    // padding gets a weight of almost 0
    for (int64_t j = count; j < count + LANES; ++j) weights[j] = -__builtin_inff();
    Vector sums{};
    for (int64_t j = 0; j < count; j += LANES) {
      const Vector shifted = load(weights + j) - maximum;
      const Vector weight = exponential(shifted < -87.0f ? broadcast(-87.0f) : shifted);
      store(weights + j, weight);
      sums += weight;
    }
    const float inverse = 1.0f / total(sums);
    int64_t d = 0;
    for (; d + 2 * LANES <= width; d += 2 * LANES) {
      Vector first{}, second{};
      for (int64_t j = 0; j < count; ++j) {
        const float* value = values + offsets[j] + d;
        first += weights[j] * load(value);
        second += weights[j] * load(value + LANES);
      }
      store(context + d, first * inverse);
      store(context + d + LANES, second * inverse);
    }
    for (; d + LANES <= width; d += LANES) {
      Vector average{};
      for (int64_t j = 0; j < count; ++j) average += weights[j] * load(values + offsets[j] + d);
      store(context + d, average * inverse);
    }
    for (; d < width; ++d) {
      float average = 0.0f;
      for (int64_t j = 0; j < count; ++j) average += weights[j] * values[offsets[j] + d];
      context[d] = average * inverse;
    }
  }
}
