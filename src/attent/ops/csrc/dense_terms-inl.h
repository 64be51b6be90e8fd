// What becomes of a strip's products of features before the mask: soft cap and biases. Included by dense_attention-inl.h.

// tanh x and its derivative: by the series of Cephes where |x| < 0.625, and by e^(−2|x|) beyond.
static inline Vector tanh_of(Vector x, Vector& slope) {
  const Vector size = x < Vector{} ? -x : x, power = exponential_or_zero(size * -2.0f), inverse = 1.0f / (1.0f + power);
  const Vector large = (1.0f - power) * inverse, square = x * x;
  Vector series = square * -5.70498872745e-3f + 2.06390887954e-2f;
  series = series * square - 5.37397155531e-2f;
  series = series * square + 1.33314422036e-1f;
  series = series * square - 3.33332819422e-1f;
  slope = 4.0f * power * inverse * inverse;
  return size < broadcast(0.625f) ? series * square * x + x : x < Vector{} ? -large : large;
}

// Replace products of keys [from, end), times `scale`, by capped scores; `slopes`, unless null, receives their derivatives.
template <int N>
static inline void cap_scores(const Problem& job, int64_t from, int64_t end, float* scores, float scale, float* slopes) {
  const float into = scale / job.soft_cap;
  for (int64_t j = 0; j < end - from; ++j)
    for (int n = 0; n < N; ++n) {
      const int64_t offset = j * STRIP + n * LANES;
      Vector slope;
      store(scores + offset, tanh_of(load(scores + offset) * into, slope) * job.soft_cap);
      if (slopes) store(slopes + offset, slope);
    }
}

// Add a bias to scores, which no sum makes infinite; −∞ hides scores of any number.
static inline Vector with_bias(Vector score, Vector bias) {
  // half the lowest number
  constexpr float LEAST = -0x1.fffffep126f;
  const Vector sum = score + (bias < broadcast(LEAST) ? broadcast(LEAST) : bias);
  return bias == broadcast(-INFINITY) ? bias : sum;
}

// Multiply scores of keys [from, end) by `scale` and add the bias of pairs.
template <int N>
static inline void add_bias(const Problem& job, const Strip& strip, int64_t from, int64_t end, float* scores, float scale) {
  const Shape& shape = job.shape;
  float lines[LANES * LANES], columns[LANES * LANES];
  for (int n = 0; n < N; ++n) {
    const int64_t first = n * LANES, rows = strip.count - first < LANES ? strip.count - first : LANES;
    const float* bias = bias_row(job, strip, first);
    for (int64_t j = from; j < end; j += LANES) {
      const int64_t number = end - j < LANES ? end - j : LANES;
      if (!shape.bias.row) {
        for (int64_t k = 0; k < number; ++k) store(columns + k * LANES, broadcast(bias[(j + k) * shape.bias_key]));
      } else if (rows == LANES && number == LANES && shape.bias_key == 1) {
        transpose(bias + j, shape.bias.row, columns, LANES);
      } else {
        memset(lines, 0, sizeof lines);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t k = 0; k < number; ++k) lines[r * LANES + k] = bias[r * shape.bias.row + (j + k) * shape.bias_key];
        transpose(lines, LANES, columns, LANES);
      }
      for (int64_t k = 0; k < number; ++k) {
        float* position = scores + (j + k - from) * STRIP + first;
        store(position, with_bias(load(position) * scale, load(columns + k * LANES)));
      }
    }
  }
}

// Turn products of keys [from, end) into scores, which are yet to be multiplied by the number returned.
template <int N>
static inline float add_terms(const Problem& job, const Strip& strip, int64_t from, int64_t end, float* scores, float* slopes) {
  float scale = PACK > 1 ? job.scale : 1.0f;
  if (job.soft_cap != 0.0f) cap_scores<N>(job, from, end, scores, scale, slopes), scale = 1.0f;
  if (job.bias) add_bias<N>(job, strip, from, end, scores, scale), scale = 1.0f;
  if (!job.offset_bias) return scale;
  for (int64_t j = from; j < end; ++j)
    for (int n = 0; n < N; ++n) {
      float* position = scores + (j - from) * STRIP + n * LANES;
      const Vector bias = load_some(offset_bias(job, strip, j) + n * LANES, strip.count - n * LANES);
      store(position, with_bias(load(position) * scale, bias));
    }
  return 1.0f;
}
