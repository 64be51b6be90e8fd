// One query's heads, whose keys and values are found by an index. Included by the loops, inside their namespaces, behind lanes.h. Every sum
// has one order, whatever is computed beside it.

static inline float total(Vector vector) {
  typedef float Four __attribute__((vector_size(16)));
  Four fours[LANES / 4];
  memcpy(fours, &vector, sizeof vector);
  Four sum = fours[0];
  for (int64_t i = 1; i < LANES / 4; ++i) sum += fours[i];
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

static inline float dot(const float* one, const float* other, int64_t width) {
  Vector sum{};
  int64_t d = 0;
  for (; d + LANES <= width; d += LANES) sum += load(one + d) * load(other + d);
  float found = total(sum);
  for (; d < width; ++d) found += one[d] * other[d];
  return found;
}

struct Heads {
  int64_t heads, groups, width;
  float scale;
};

// context (H·D) of query (H·D): softmax of scale · q·k over `count` keys, the j-th of which begins at memory + at[j], its value G·D numbers
// behind it; zeros where there is none. `weights` has room for count + LANES numbers.
static void look(const Heads& of, const float* query, const float* memory, const int64_t* at, int64_t count, float* weights,
                 float* context) {
  const int64_t width = of.width, shared = of.heads / of.groups;
  if (!count) memset(context, 0, 4 * of.heads * width);
  for (int64_t h = 0; h < of.heads && count; ++h, query += width, context += width) {
    const float *keys = memory + h / shared * width, *values = keys + of.groups * width;
    float highest = -__builtin_inff();
    for (int64_t j = 0; j < count; ++j) {
      weights[j] = of.scale * dot(query, keys + at[j], width);
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
