// The output layer in bfloat16, its cross entropy and their gradients by matrix tiles: no logit leaves the cache. A first sweep
// computes the sum of each token's exponentials; a second recomputes the logits, bit for bit, and accumulates the gradients. Tasks of
// the first are chunks of tokens, those of the second ranges of classes.

#include "native.h"

#include "amx.h"

#include <cmath>

namespace {

// Tokens of a task of the first sweep, and of one block of gradients in the second; tokens of a pass of the second over its classes;
// classes of a block of logits.
constexpr int64_t CHUNK = 512, GROUP = 1024, CLASSES = 256;
// The running state of a token in the first sweep: three registers.
constexpr int64_t STATE = 48;

struct Problem {
  const uint16_t* features;
  const float *weight, *bias;
  const int64_t* target;
  float* losses;
  float *dweight, *dbias;
  uint16_t* dfeatures;
  int64_t number, width, classes, ranges;
  float smoothing, scale;
  // right sides: Wᵀ in strips of 32 classes, and W in strips of 32 features; left side: the features, transposed
  uint16_t *forward, *backward, *transposed_features;
  // features padded to whole tiles; of each token the logarithm to base 2 of its exponentials' sum
  uint16_t* last_rows;
  float* log2_sums;
  // of each range of classes the gradient of the features
  float* const* parts;

  int64_t strips() const { return (classes + 31) / 32; }
  int64_t steps() const { return (number + 31) / 32; }
  // 32 rows of features, zero after the last
  const uint16_t* rows(int64_t first) const { return first + 32 <= number ? features + first * width : last_rows; }
};

#ifdef HAS_AMX
FOR_AMX

// LOWEST is below any logit, and finite after multiplication.
constexpr float TO_BASE_2 = 1.44269504088896341f, LOWEST = -1e38f;

// 2^y for y <= 0 to about one unit in the last place, at least the smallest normal number; NaN stays NaN.
static inline __m512 power(__m512 y) {
  // max returns the second operand if one is NaN
  y = _mm512_max_ps(_mm512_set1_ps(-126.0f), y);
  const __m512 n = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), r = _mm512_sub_ps(y, n);
  __m512 series = _mm512_set1_ps(1.535336188319500e-4f);
  series = _mm512_fmadd_ps(series, r, _mm512_set1_ps(1.339887440266574e-3f));
  series = _mm512_fmadd_ps(series, r, _mm512_set1_ps(9.618437357674640e-3f));
  series = _mm512_fmadd_ps(series, r, _mm512_set1_ps(5.550332471162809e-2f));
  series = _mm512_fmadd_ps(series, r, _mm512_set1_ps(2.402264791363012e-1f));
  series = _mm512_fmadd_ps(series, r, _mm512_set1_ps(6.931472028550421e-1f));
  series = _mm512_fmadd_ps(series, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(series, n);
}

// The right sides of one strip of classes, zero after the last class.
static void pack_strip(const Problem& job, int64_t strip, float* lines) {
  const int64_t width = job.width, first = 32 * strip, rounded = job.classes - first < 32 ? job.classes - first : 32;
  const float* from = job.weight + first * width;
  if (rounded < 32) {
    memset(lines, 0, 128 * width);
    memcpy(lines, from, 4 * rounded * width);
    from = lines;
  }
  for (int64_t k = 0; k < width; k += 32) {
    uint16_t* to = job.forward + (strip * (width / 32) + k / 32) * 2 * amx::TILE;
    amx::pack_transposed(from + k, width, to);
    amx::pack_transposed(from + 16 * width + k, width, to + amx::TILE);
    if (job.backward) amx::pack(from + k, width, job.backward + (k / 32 * job.strips() + strip) * 2 * amx::TILE);
  }
}

// The features as left side of the product with the logits' gradients, in strips of 32.
static void transpose_rows(const Problem& job, int64_t step, float*) {
  __m512i low[16], high[16];
  for (int64_t k = 0; k < job.width; k += 32) {
    amx::weave(job.rows(32 * step) + k, job.width, 32, low, high);
    uint16_t* to = job.transposed_features + (k / 32 * job.steps() + step) * 2 * amx::TILE;
    amx::transpose(low);
    amx::write(low, to);
    amx::transpose(high);
    amx::write(high, to + amx::TILE);
  }
}

// Logits of 32 tokens and some classes, CLASSES numbers a row, −∞ after the last class.
static inline void logits(const Problem& job, int64_t row, int64_t first, int64_t strips, float* to) {
  const uint16_t* left = job.rows(row);
  for (int64_t strip = 0; strip < strips; ++strip) {
    amx::clear();
    amx::multiply(left, 2 * job.width, 16 * job.width, 32, job.forward + (first / 32 + strip) * 32 * job.width, job.width / 32);
    amx::put(to + 32 * strip, 4 * CLASSES);
  }
  const int64_t count = job.classes - first < 32 * strips ? job.classes - first : 32 * strips;
  if (job.bias)
    for (int64_t i = 0; i < 32; ++i)
      for (int64_t j = 0; j < count; ++j) to[i * CLASSES + j] += job.bias[first + j];
  for (int64_t i = 0; i < 32; ++i)
    for (int64_t j = count; j < 32 * strips; ++j) to[i * CLASSES + j] = -INFINITY;
}

// Update the states of two tokens with `count` logits each, padded with −∞: in each lane the running maximum, the sum of exponentials
// relative to it, and the sum of the logits. Two tokens at a time hide the latency.
static inline void add_two(const float* line, int64_t count, float* states) {
  const int64_t rounded = (count + 31) / 32 * 32;
  const __m512 base = _mm512_set1_ps(TO_BASE_2);
  __m512 maxima[2][2], sums[2][2] = {}, totals[2][2] = {}, shifts[2];
  for (int t = 0; t < 2; ++t) maxima[t][0] = maxima[t][1] = _mm512_loadu_ps(states + STATE * t);
  // the maximum ignores NaN, the sum shows it
  for (int64_t j = 0; j < rounded; j += 32) {
    const __mmask32 is_valid = count - j < 32 ? (1u << (count - j)) - 1 : ~0u;
    for (int t = 0; t < 2; ++t)
      for (int half = 0; half < 2; ++half) {
        const __m512 x = _mm512_loadu_ps(line + t * CLASSES + j + 16 * half);
        maxima[t][half] = _mm512_max_ps(x, maxima[t][half]);
        totals[t][half] = _mm512_mask_add_ps(totals[t][half], static_cast<__mmask16>(is_valid >> 16 * half), totals[t][half], x);
      }
  }
  for (int t = 0; t < 2; ++t) shifts[t] = _mm512_mul_ps(maxima[t][0] = _mm512_max_ps(maxima[t][0], maxima[t][1]), base);
  for (int64_t j = 0; j < rounded; j += 32)
    for (int t = 0; t < 2; ++t)
      for (int half = 0; half < 2; ++half) {
        const __m512 x = _mm512_loadu_ps(line + t * CLASSES + j + 16 * half);
        sums[t][half] = _mm512_add_ps(sums[t][half], power(_mm512_fmsub_ps(x, base, shifts[t])));
      }
  for (int t = 0; t < 2; ++t, states += STATE) {
    const __m512 factor = power(_mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(states), maxima[t][0]), base));
    _mm512_storeu_ps(states, maxima[t][0]);
    _mm512_storeu_ps(states + 16, _mm512_fmadd_ps(_mm512_loadu_ps(states + 16), factor, _mm512_add_ps(sums[t][0], sums[t][1])));
    _mm512_storeu_ps(states + 32, _mm512_add_ps(_mm512_loadu_ps(states + 32), _mm512_add_ps(totals[t][0], totals[t][1])));
  }
}

// The losses of a task's tokens.
static void sum_exponentials(const Problem& job, int64_t task, float* scratch) {
  const amx::Tiles tiles;
  const int64_t first = task * CHUNK, end = first + CHUNK < job.number ? first + CHUNK : job.number;
  float *sums = scratch, *states = sums + 32 * CLASSES, *target_logits = states + STATE * CHUNK;
  for (int64_t i = 0; i < CHUNK; ++i) {
    _mm512_storeu_ps(states + STATE * i, _mm512_set1_ps(LOWEST));
    _mm512_storeu_ps(states + STATE * i + 16, _mm512_setzero_ps());
    _mm512_storeu_ps(states + STATE * i + 32, _mm512_setzero_ps());
    target_logits[i] = 0;
  }
  for (int64_t first_class = 0; first_class < job.classes; first_class += CLASSES) {
    const int64_t count = job.classes - first_class < CLASSES ? job.classes - first_class : CLASSES, strips = (count + 31) / 32;
    for (int64_t row = first; row < end; row += 32) {
      logits(job, row, first_class, strips, sums);
      for (int64_t i = 0; i < 32; i += 2) add_two(sums + i * CLASSES, count, states + STATE * (row - first + i));
      for (int64_t i = row; i < row + 32 && i < end; ++i) {
        const int64_t index = job.target[i] - first_class;
        if (index >= 0 && index < count) target_logits[i - first] = sums[(i - row) * CLASSES + index];
      }
    }
  }
  for (int64_t i = first; i < end; ++i) {
    const float* state = states + STATE * (i - first);
    const __m512 largest = _mm512_loadu_ps(state);
    const float peak = _mm512_reduce_max_ps(largest);
    const __m512 factor = power(_mm512_mul_ps(_mm512_sub_ps(largest, _mm512_set1_ps(peak)), _mm512_set1_ps(TO_BASE_2)));
    const float sum = _mm512_reduce_add_ps(_mm512_mul_ps(_mm512_loadu_ps(state + 16), factor));
    const float log = peak > LOWEST ? peak + std::log(sum) : NAN;
    // 0 · ∞ is NaN
    const float even = job.smoothing > 0 ? job.smoothing * (log - _mm512_reduce_add_ps(_mm512_loadu_ps(state + 32)) / job.classes) : 0.0f;
    job.losses[i] = (1.0f - job.smoothing) * (log - target_logits[i - first]) + even;
    job.log2_sums[i] = peak > LOWEST ? peak * TO_BASE_2 + std::log2(sum) : NAN;
  }
}

// The logits' gradients of 32 tokens, softmax − smoothing / V less 1 − smoothing at the target: `lines` as left side, CLASSES numbers a
// row, and `woven` as right side, interleaved, `strip` numbers for 32 classes.
static inline void slopes(const Problem& job, int64_t row, int64_t first, int64_t strips, const float* sums, uint16_t* lines,
                          uint16_t* woven, int64_t strip) {
  const __m512 base = _mm512_set1_ps(TO_BASE_2), shift = _mm512_set1_ps(job.smoothing / job.classes);
  for (int64_t i = 0; i < 32; i += 2) {
    const float *even = sums + i * CLASSES, *odd = even + CLASSES;
    const __m512 of_even = _mm512_set1_ps(job.log2_sums[row + i]), of_odd = _mm512_set1_ps(job.log2_sums[row + i + 1]);
    for (int64_t j = 0; j < 32 * strips; j += 32) {
      const auto slope = [&](const float* from, __m512 log2_sums) {
        return _mm512_sub_ps(power(_mm512_fmsub_ps(_mm512_loadu_ps(from + j), base, log2_sums)), shift);
      };
      const __m512 a = slope(even, of_even), b = slope(even + 16, of_even), c = slope(odd, of_odd), d = slope(odd + 16, of_odd);
      const __m512i even_line = amx::to_bfloat16(a, b), odd_line = amx::to_bfloat16(c, d);
      _mm512_storeu_si512(lines + i * CLASSES + j, even_line);
      _mm512_storeu_si512(lines + (i + 1) * CLASSES + j, odd_line);
      uint16_t* to = woven + j / 32 * strip + 16 * i;
      _mm512_storeu_si512(to, _mm512_unpacklo_epi16(even_line, odd_line));
      _mm512_storeu_si512(to + amx::TILE, _mm512_unpackhi_epi16(even_line, odd_line));
    }
    for (int64_t of = i; of < i + 2 && row + of < job.number; ++of) {
      const int64_t index = job.target[row + of] - first, column = index % 32;
      if (index < 0 || index >= 32 * strips) continue;
      const __m512 y = _mm512_set1_ps(sums[of * CLASSES + index] * TO_BASE_2 - job.log2_sums[row + of]);
      const __m512 target_logits = _mm512_sub_ps(_mm512_sub_ps(power(y), shift), _mm512_set1_ps(1.0f - job.smoothing));
      const uint16_t number =
          static_cast<uint16_t>(_mm_cvtsi128_si32(_mm512_castsi512_si128(amx::to_bfloat16(target_logits, target_logits))));
      lines[of * CLASSES + index] = number;
      woven[index / 32 * strip + column % 8 / 4 * amx::TILE + 16 * i + (column / 8 * 4 + column % 4) * 2 + of - i] = number;
    }
  }
}

// Add the gradients of 32 tokens to the bias's.
static inline void add_to_bias(const Problem& job, int64_t row, int64_t first, int64_t strips, const uint16_t* lines) {
  for (int64_t i = 0; i < 32 && row + i < job.number; ++i)
    for (int64_t j = 0; j < 32 * strips && first + j < job.classes; ++j) {
      const uint32_t bits = static_cast<uint32_t>(lines[i * CLASSES + j]) << 16;
      float number;
      memcpy(&number, &bits, sizeof number);
      job.dbias[first + j] += number * job.scale;
    }
}

// Write a strip of the weight's gradient, in its own order.
static void write_weights(const Problem& job, int64_t strip, const float* block) {
  __m512i low[16], high[16];
  for (int64_t k = 0; k < job.width; k += 32, block += 1024)
    for (int64_t half = 0; half < 2; ++half) {
      for (int64_t i = 0; i < 16; ++i) {
        low[i] = _mm512_loadu_si512(block + 32 * i + 16 * half);
        high[i] = _mm512_loadu_si512(block + 32 * (i + 16) + 16 * half);
      }
      amx::transpose(low);
      amx::transpose(high);
      const __m512 scale = _mm512_set1_ps(job.scale);
      for (int64_t j = 0; j < 16; ++j) {
        const int64_t class_index = 32 * strip + amx::woven(16 * half + j);
        if (class_index >= job.classes) continue;
        amx::unweave(_mm512_mul_ps(_mm512_castsi512_ps(low[j]), scale), _mm512_mul_ps(_mm512_castsi512_ps(high[j]), scale),
                     job.dweight + class_index * job.width + k);
      }
    }
}

// The gradients of a range of classes, and its part of those of the features.
static void gradients(const Problem& job, int64_t range, float* scratch) {
  const amx::Tiles tiles;
  const int64_t width = job.width, begin = job.strips() * range / job.ranges, end = job.strips() * (range + 1) / job.ranges;
  float *sums = scratch, *weight_sums = sums + 32 * CLASSES, *feature_sums = job.parts[range];
  uint16_t *lines = reinterpret_cast<uint16_t*>(weight_sums + (end - begin) * 32 * width), *woven = lines + 32 * CLASSES;
  for (int64_t group = 0; group < job.number; group += GROUP)
    for (int64_t from = begin; from < end; from += CLASSES / 32) {
      const int64_t strips = end - from < CLASSES / 32 ? end - from : CLASSES / 32;
      for (int64_t x = group; x < group + GROUP && x < job.number; x += CHUNK) {
        const int64_t steps = job.number - x < CHUNK ? (job.number - x + 31) / 32 : CHUNK / 32;
        for (int64_t step = 0; step < steps; ++step) {
          const int64_t row = x + 32 * step;
          logits(job, row, 32 * from, strips, sums);
          slopes(job, row, 32 * from, strips, sums, lines, woven + step * 2 * amx::TILE, steps * 2 * amx::TILE);
          if (job.dbias) add_to_bias(job, row, 32 * from, strips, lines);
          for (int64_t k = 0; k < width; k += 32) {
            float* to = feature_sums + row * width + k;
            if (from == begin) amx::clear();
            else amx::get(to, 4 * width);
            amx::multiply(lines, 2 * CLASSES, 16 * CLASSES, 32, job.backward + (k / 32 * job.strips() + from) * 2 * amx::TILE, strips);
            amx::put(to, 4 * width);
          }
        }
        for (int64_t strip = 0; strip < strips; ++strip)
          for (int64_t k = 0; k < width; k += 32) {
            float* block = weight_sums + (from - begin + strip) * 32 * width + 32 * k;
            if (x == 0) amx::clear();
            else amx::get(block, 128);
            amx::multiply(job.transposed_features + (k / 32 * job.steps() + x / 32) * 2 * amx::TILE, 64, amx::TILE, 2 * amx::TILE,
                          woven + strip * steps * 2 * amx::TILE, steps);
            amx::put(block, 128);
          }
      }
    }
  for (int64_t strip = begin; strip < end; ++strip) write_weights(job, strip, weight_sums + (strip - begin) * 32 * width);
}

// Sum the parts of the features' gradient over all ranges, for 32 tokens.
static void gather(const Problem& job, int64_t step, float*) {
  const int64_t first = step * 32 * job.width, size = job.number * job.width;
  const int64_t last = first + 32 * job.width < size ? first + 32 * job.width : size;
  for (int64_t j = first; j < last; j += 32) {
    __m512 low = _mm512_setzero_ps(), high = _mm512_setzero_ps();
    for (int64_t range = 0; range < job.ranges; ++range) {
      const float* part = job.parts[range] + j;
      low = _mm512_add_ps(low, _mm512_loadu_ps(part));
      high = _mm512_add_ps(high, _mm512_loadu_ps(part + 16));
    }
    const __m512 scale = _mm512_set1_ps(job.scale);
    _mm512_storeu_si512(job.dfeatures + j, amx::to_bfloat16(_mm512_mul_ps(low, scale), _mm512_mul_ps(high, scale)));
  }
}

END_TARGET
#endif

}  // namespace

// losses (number) of features (number, width) in bfloat16, weight (classes, width), bias (classes) or null, and targets below
// `classes`. With `needs_grad`, dfeatures (number, width) in bfloat16, dweight (classes, width) and dbias (classes), zero
// before, become those of the losses' sum times `scale`. The width is a multiple of 32. Returns 0, or 1 if out of memory.
EXPORTED int attent_linear_cross_entropy_amx(const uint16_t* features, const float* weight, const float* bias,
                                             const int64_t* target, float* losses, uint16_t* dfeatures, float* dweight,
                                             float* dbias, int64_t number, int64_t width, int64_t classes, int64_t needs_grad,
                                             float smoothing, float scale, int64_t threads, Parallel parallel, int) {
#ifdef HAS_AMX
  Problem job{features, weight, bias, target, losses, dweight, dbias, dfeatures, number, width, classes, threads > 4 ? threads : 4,
                 smoothing, scale, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
  const int64_t strips = job.strips(), steps = job.steps();
  if (job.ranges > strips) job.ranges = strips;
  Memory memory;
  job.forward = reinterpret_cast<uint16_t*>(memory.allocate(strips * 16 * width));
  job.last_rows = reinterpret_cast<uint16_t*>(memory.allocate(16 * width));
  job.log2_sums = memory.allocate(32 * steps);
  if (needs_grad) job.backward = reinterpret_cast<uint16_t*>(memory.allocate(strips * 16 * width));
  if (needs_grad) job.transposed_features = reinterpret_cast<uint16_t*>(memory.allocate(steps * 16 * width));
  std::vector<Memory> memories(needs_grad ? job.ranges : 0);
  std::vector<float*> parts;
  for (Memory& each : memories) {
    parts.push_back(each.allocate(steps * 32 * width));
    if (each.failed) return 1;
  }
  if (memory.failed) return 1;
  job.parts = parts.data();
  memset(job.last_rows, 0, 64 * width);
  memcpy(job.last_rows, features + number / 32 * 32 * width, 2 * (number % 32) * width);
  for (int64_t i = number; i < 32 * steps; ++i) job.log2_sums[i] = 0;
  if (run(job, pack_strip, strips, 32 * width, threads, parallel)) return 1;
  if (run(job, sum_exponentials, (number + CHUNK - 1) / CHUNK, 32 * CLASSES + (STATE + 1) * CHUNK, threads, parallel)) return 1;
  if (!needs_grad) return 0;
  if (run(job, transpose_rows, steps, 0, threads, parallel)) return 1;
  const int64_t range = (strips + job.ranges - 1) / job.ranges;
  if (run(job, gradients, job.ranges, 32 * CLASSES + range * 32 * width + 16 * CLASSES + CHUNK * CLASSES / 2, threads, parallel)) return 1;
  return run(job, gather, steps, 0, threads, parallel);
#else
  return 1;
#endif
}
