// The output layer in bfloat16, its cross entropy and their gradients by matrix tiles: no logit leaves the cache. A first sweep over
// features and weights finds how large each token's exponentials are together; a second computes the logits again, bit for bit, makes
// slopes of them, and adds what these give to the gradients. The first is cut by tokens, the second by ranges of classes.

#include "native.h"

#include "amx.h"

#include <cmath>

namespace {

// Tokens that make a task of the first sweep and whose slopes are held in the second; tokens after which the second goes on to the next
// classes; classes that are looked at side by side.
constexpr int64_t SOME = 512, GROUP = 1024, CLASSES = 256;
// What the first sweep knows of a token: three registers.
constexpr int64_t STATE = 48;

struct OutputLoss {
  const uint16_t* features;
  const float *weight, *bias;
  const int64_t* target;
  float* losses;
  float *dweight, *dbias;
  uint16_t* dfeatures;
  int64_t number, width, classes, ranges;
  float smoothing, scale;
  // as right sides: Wᵀ, a strip of 32 classes after the other, and W, a strip of 32 features after the other; as left side features turned
  uint16_t *forward, *backward, *turned;
  // features padded to whole tiles; of each token the logarithm to base 2 of its exponentials' sum
  uint16_t* last_rows;
  float* whole;
  // of each range of classes the gradient of the features
  float* const* parts;

  int64_t strips() const { return (classes + 31) / 32; }
  int64_t steps() const { return (number + 31) / 32; }
  // 32 rows of features, zero behind the last
  const uint16_t* rows(int64_t first) const { return first + 32 <= number ? features + first * width : last_rows; }
};

#ifdef HAS_AMX
FOR_AMX

// Less than any logit, and a number still when it is multiplied.
constexpr float TO_BASE_2 = 1.44269504088896341f, LEAST = -1e38f;

// 2^y for y <= 0 to about one unit in the last place, and no less than the least normal number; NaN stays NaN.
static inline __m512 power(__m512 y) {
  // the second operand where one is NaN
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

// The right sides of one strip of classes, zero behind the last class.
static void pack_strip(const OutputLoss& job, int64_t strip, float* lines) {
  const int64_t width = job.width, first = 32 * strip, count = job.classes - first < 32 ? job.classes - first : 32;
  const float* from = job.weight + first * width;
  if (count < 32) {
    memset(lines, 0, 128 * width);
    memcpy(lines, from, 4 * count * width);
    from = lines;
  }
  for (int64_t k = 0; k < width; k += 32) {
    uint16_t* to = job.forward + (strip * (width / 32) + k / 32) * 2 * amx::TILE;
    amx::pack_transposed(from + k, width, to);
    amx::pack_transposed(from + 16 * width + k, width, to + amx::TILE);
    if (job.backward) amx::pack(from + k, width, job.backward + (k / 32 * job.strips() + strip) * 2 * amx::TILE);
  }
}

// Features as left side of the product with slopes: a strip of 32 features after the other.
static void turn_rows(const OutputLoss& job, int64_t step, float*) {
  __m512i low[16], high[16];
  for (int64_t k = 0; k < job.width; k += 32) {
    amx::weave(job.rows(32 * step) + k, job.width, 32, low, high);
    uint16_t* to = job.turned + (k / 32 * job.steps() + step) * 2 * amx::TILE;
    amx::transpose(low);
    amx::write(low, to);
    amx::transpose(high);
    amx::write(high, to + amx::TILE);
  }
}

// Logits of 32 tokens and some classes, CLASSES numbers a row, −∞ behind the last class.
static inline void logits(const OutputLoss& job, int64_t row, int64_t first, int64_t strips, float* to) {
  const uint16_t* left = job.rows(row);
  for (int64_t strip = 0; strip < strips; ++strip) {
    amx::clear();
    amx::multiply(left, 2 * job.width, 16 * job.width, 32, job.forward + (first / 32 + strip) * 32 * job.width, job.width / 32);
    amx::put(to + 32 * strip, 4 * CLASSES);
  }
  const int64_t known = job.classes - first < 32 * strips ? job.classes - first : 32 * strips;
  if (job.bias)
    for (int64_t i = 0; i < 32; ++i)
      for (int64_t j = 0; j < known; ++j) to[i * CLASSES + j] += job.bias[first + j];
  for (int64_t i = 0; i < 32; ++i)
    for (int64_t j = known; j < 32 * strips; ++j) to[i * CLASSES + j] = -INFINITY;
}

// `known` logits of two tokens, CLASSES numbers a row and −∞ behind them, added to their states: in each lane the largest so far, relative
// to it the sum of exponentials, and the sum of the logits. Two at a time, for one alone would wait for itself.
static inline void add_two(const float* line, int64_t known, float* states) {
  const int64_t count = (known + 31) / 32 * 32;
  const __m512 base = _mm512_set1_ps(TO_BASE_2);
  __m512 most[2][2], sums[2][2] = {}, totals[2][2] = {}, shifts[2];
  for (int t = 0; t < 2; ++t) most[t][0] = most[t][1] = _mm512_loadu_ps(states + STATE * t);
  // NaN is passed over, and shows in the sum
  for (int64_t j = 0; j < count; j += 32) {
    const __mmask32 there = known - j < 32 ? (1u << (known - j)) - 1 : ~0u;
    for (int t = 0; t < 2; ++t)
      for (int half = 0; half < 2; ++half) {
        const __m512 some = _mm512_loadu_ps(line + t * CLASSES + j + 16 * half);
        most[t][half] = _mm512_max_ps(some, most[t][half]);
        totals[t][half] = _mm512_mask_add_ps(totals[t][half], static_cast<__mmask16>(there >> 16 * half), totals[t][half], some);
      }
  }
  for (int t = 0; t < 2; ++t) shifts[t] = _mm512_mul_ps(most[t][0] = _mm512_max_ps(most[t][0], most[t][1]), base);
  for (int64_t j = 0; j < count; j += 32)
    for (int t = 0; t < 2; ++t)
      for (int half = 0; half < 2; ++half) {
        const __m512 some = _mm512_loadu_ps(line + t * CLASSES + j + 16 * half);
        sums[t][half] = _mm512_add_ps(sums[t][half], power(_mm512_fmsub_ps(some, base, shifts[t])));
      }
  for (int t = 0; t < 2; ++t, states += STATE) {
    const __m512 factor = power(_mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(states), most[t][0]), base));
    _mm512_storeu_ps(states, most[t][0]);
    _mm512_storeu_ps(states + 16, _mm512_fmadd_ps(_mm512_loadu_ps(states + 16), factor, _mm512_add_ps(sums[t][0], sums[t][1])));
    _mm512_storeu_ps(states + 32, _mm512_add_ps(_mm512_loadu_ps(states + 32), _mm512_add_ps(totals[t][0], totals[t][1])));
  }
}

// The losses of some tokens.
static void sum_exponentials(const OutputLoss& job, int64_t task, float* scratch) {
  const amx::Tiles tiles;
  const int64_t first = task * SOME, end = first + SOME < job.number ? first + SOME : job.number;
  float *sums = scratch, *states = sums + 32 * CLASSES, *told = states + STATE * SOME;
  for (int64_t i = 0; i < SOME; ++i) {
    _mm512_storeu_ps(states + STATE * i, _mm512_set1_ps(LEAST));
    _mm512_storeu_ps(states + STATE * i + 16, _mm512_setzero_ps());
    _mm512_storeu_ps(states + STATE * i + 32, _mm512_setzero_ps());
    told[i] = 0;
  }
  for (int64_t at = 0; at < job.classes; at += CLASSES) {
    const int64_t known = job.classes - at < CLASSES ? job.classes - at : CLASSES, strips = (known + 31) / 32;
    for (int64_t row = first; row < end; row += 32) {
      logits(job, row, at, strips, sums);
      for (int64_t i = 0; i < 32; i += 2) add_two(sums + i * CLASSES, known, states + STATE * (row - first + i));
      for (int64_t i = row; i < row + 32 && i < end; ++i) {
        const int64_t place = job.target[i] - at;
        if (place >= 0 && place < known) told[i - first] = sums[(i - row) * CLASSES + place];
      }
    }
  }
  for (int64_t i = first; i < end; ++i) {
    const float* state = states + STATE * (i - first);
    const __m512 largest = _mm512_loadu_ps(state);
    const float peak = _mm512_reduce_max_ps(largest);
    const __m512 factor = power(_mm512_mul_ps(_mm512_sub_ps(largest, _mm512_set1_ps(peak)), _mm512_set1_ps(TO_BASE_2)));
    const float sum = _mm512_reduce_add_ps(_mm512_mul_ps(_mm512_loadu_ps(state + 16), factor));
    const float log = peak > LEAST ? peak + std::log(sum) : NAN;
    // 0 · ∞ is no number
    const float even = job.smoothing > 0 ? job.smoothing * (log - _mm512_reduce_add_ps(_mm512_loadu_ps(state + 32)) / job.classes) : 0.0f;
    job.losses[i] = (1.0f - job.smoothing) * (log - told[i - first]) + even;
    job.whole[i] = peak > LEAST ? peak * TO_BASE_2 + std::log2(sum) : NAN;
  }
}

// Slopes of 32 tokens, softmax − smoothing / V less 1 − smoothing at the target, from their logits: as left side, CLASSES numbers a row,
// and woven, as right side of which a strip of 32 classes takes `strip` numbers.
static inline void slopes(const OutputLoss& job, int64_t row, int64_t first, int64_t strips, const float* sums, uint16_t* lines,
                          uint16_t* woven, int64_t strip) {
  const __m512 base = _mm512_set1_ps(TO_BASE_2), shift = _mm512_set1_ps(job.smoothing / job.classes);
  for (int64_t i = 0; i < 32; i += 2) {
    const float *even = sums + i * CLASSES, *odd = even + CLASSES;
    const __m512 of_even = _mm512_set1_ps(job.whole[row + i]), of_odd = _mm512_set1_ps(job.whole[row + i + 1]);
    for (int64_t j = 0; j < 32 * strips; j += 32) {
      const auto slope = [&](const float* from, __m512 whole) {
        return _mm512_sub_ps(power(_mm512_fmsub_ps(_mm512_loadu_ps(from + j), base, whole)), shift);
      };
      const __m512 a = slope(even, of_even), b = slope(even + 16, of_even), c = slope(odd, of_odd), d = slope(odd + 16, of_odd);
      const __m512i one = amx::narrowed(a, b), other = amx::narrowed(c, d);
      _mm512_storeu_si512(lines + i * CLASSES + j, one);
      _mm512_storeu_si512(lines + (i + 1) * CLASSES + j, other);
      uint16_t* to = woven + j / 32 * strip + 16 * i;
      _mm512_storeu_si512(to, _mm512_unpacklo_epi16(one, other));
      _mm512_storeu_si512(to + amx::TILE, _mm512_unpackhi_epi16(one, other));
    }
    for (int64_t of = i; of < i + 2 && row + of < job.number; ++of) {
      const int64_t place = job.target[row + of] - first, column = place % 32;
      if (place < 0 || place >= 32 * strips) continue;
      const __m512 y = _mm512_set1_ps(sums[of * CLASSES + place] * TO_BASE_2 - job.whole[row + of]);
      const __m512 told = _mm512_sub_ps(_mm512_sub_ps(power(y), shift), _mm512_set1_ps(1.0f - job.smoothing));
      const uint16_t number = static_cast<uint16_t>(_mm_cvtsi128_si32(_mm512_castsi512_si128(amx::narrowed(told, told))));
      lines[of * CLASSES + place] = number;
      woven[place / 32 * strip + column % 8 / 4 * amx::TILE + 16 * i + (column / 8 * 4 + column % 4) * 2 + of - i] = number;
    }
  }
}

// What slopes of 32 tokens in bfloat16 give to the bias.
static inline void add_to_bias(const OutputLoss& job, int64_t row, int64_t first, int64_t strips, const uint16_t* lines) {
  for (int64_t i = 0; i < 32 && row + i < job.number; ++i)
    for (int64_t j = 0; j < 32 * strips && first + j < job.classes; ++j) {
      const uint32_t bits = static_cast<uint32_t>(lines[i * CLASSES + j]) << 16;
      float number;
      memcpy(&number, &bits, sizeof number);
      job.dbias[first + j] += number * job.scale;
    }
}

// A range of classes' gradient, turned back and in order.
static void write_weights(const OutputLoss& job, int64_t strip, const float* block) {
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
        const int64_t one = 32 * strip + amx::woven(16 * half + j);
        if (one >= job.classes) continue;
        amx::unweave(_mm512_mul_ps(_mm512_castsi512_ps(low[j]), scale), _mm512_mul_ps(_mm512_castsi512_ps(high[j]), scale),
                     job.dweight + one * job.width + k);
      }
    }
}

// The gradients of a range of classes, and what it gives to those of the features.
static void gradients(const OutputLoss& job, int64_t range, float* scratch) {
  const amx::Tiles tiles;
  const int64_t width = job.width, begin = job.strips() * range / job.ranges, end = job.strips() * (range + 1) / job.ranges;
  float *sums = scratch, *of_weights = sums + 32 * CLASSES, *of_features = job.parts[range];
  uint16_t *lines = reinterpret_cast<uint16_t*>(of_weights + (end - begin) * 32 * width), *woven = lines + 32 * CLASSES;
  for (int64_t group = 0; group < job.number; group += GROUP)
    for (int64_t from = begin; from < end; from += CLASSES / 32) {
      const int64_t strips = end - from < CLASSES / 32 ? end - from : CLASSES / 32;
      for (int64_t some = group; some < group + GROUP && some < job.number; some += SOME) {
        const int64_t steps = job.number - some < SOME ? (job.number - some + 31) / 32 : SOME / 32;
        for (int64_t step = 0; step < steps; ++step) {
          const int64_t row = some + 32 * step;
          logits(job, row, 32 * from, strips, sums);
          slopes(job, row, 32 * from, strips, sums, lines, woven + step * 2 * amx::TILE, steps * 2 * amx::TILE);
          if (job.dbias) add_to_bias(job, row, 32 * from, strips, lines);
          for (int64_t k = 0; k < width; k += 32) {
            float* to = of_features + row * width + k;
            if (from == begin) amx::clear();
            else amx::get(to, 4 * width);
            amx::multiply(lines, 2 * CLASSES, 16 * CLASSES, 32, job.backward + (k / 32 * job.strips() + from) * 2 * amx::TILE, strips);
            amx::put(to, 4 * width);
          }
        }
        for (int64_t strip = 0; strip < strips; ++strip)
          for (int64_t k = 0; k < width; k += 32) {
            float* block = of_weights + (from - begin + strip) * 32 * width + 32 * k;
            if (some == 0) amx::clear();
            else amx::get(block, 128);
            amx::multiply(job.turned + (k / 32 * job.steps() + some / 32) * 2 * amx::TILE, 64, amx::TILE, 2 * amx::TILE,
                          woven + strip * steps * 2 * amx::TILE, steps);
            amx::put(block, 128);
          }
      }
    }
  for (int64_t strip = begin; strip < end; ++strip) write_weights(job, strip, of_weights + (strip - begin) * 32 * width);
}

// The features' gradient from those of all ranges, for 32 tokens.
static void gather(const OutputLoss& job, int64_t step, float*) {
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
    _mm512_storeu_si512(job.dfeatures + j, amx::narrowed(_mm512_mul_ps(low, scale), _mm512_mul_ps(high, scale)));
  }
}

FOR_ANY
#endif

}  // namespace

// losses (number) of features (number, width) in bfloat16, weight (classes, width), bias (classes) or none, and targets that lie within
// the classes. Where the gradients are wanted, dfeatures (number, width) in bfloat16, dweight (classes, width) and dbias (classes), zero
// before, become those of the losses' sum times `scale`. The width is a multiple of 32. Returns 0, or 1 where memory ran out.
EXPORTED int attent_linear_cross_entropy_amx(const uint16_t* features, const float* weight, const float* bias,
                                             const int64_t* target, float* losses, uint16_t* dfeatures, float* dweight,
                                             float* dbias, int64_t number, int64_t width, int64_t classes, int64_t wanted,
                                             float smoothing, float scale, int64_t threads, Parallel parallel, int) {
#ifdef HAS_AMX
  OutputLoss job{features, weight, bias, target, losses, dweight, dbias, dfeatures, number, width, classes, threads > 4 ? threads : 4,
                 smoothing, scale, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
  const int64_t strips = job.strips(), steps = job.steps();
  if (job.ranges > strips) job.ranges = strips;
  Memory memory;
  job.forward = reinterpret_cast<uint16_t*>(memory.ask(strips * 16 * width));
  job.last_rows = reinterpret_cast<uint16_t*>(memory.ask(16 * width));
  job.whole = memory.ask(32 * steps);
  if (wanted) job.backward = reinterpret_cast<uint16_t*>(memory.ask(strips * 16 * width));
  if (wanted) job.turned = reinterpret_cast<uint16_t*>(memory.ask(steps * 16 * width));
  std::vector<Memory> memories(wanted ? job.ranges : 0);
  std::vector<float*> parts;
  for (Memory& each : memories) {
    parts.push_back(each.ask(steps * 32 * width));
    if (each.failed) return 1;
  }
  if (memory.failed) return 1;
  job.parts = parts.data();
  memset(job.last_rows, 0, 64 * width);
  memcpy(job.last_rows, features + number / 32 * 32 * width, 2 * (number % 32) * width);
  for (int64_t i = number; i < 32 * steps; ++i) job.whole[i] = 0;
  if (run(job, pack_strip, strips, 32 * width, threads, parallel)) return 1;
  if (run(job, sum_exponentials, (number + SOME - 1) / SOME, 32 * CLASSES + (STATE + 1) * SOME, threads, parallel)) return 1;
  if (!wanted) return 0;
  if (run(job, turn_rows, steps, 0, threads, parallel)) return 1;
  const int64_t range = (strips + job.ranges - 1) / job.ranges;
  if (run(job, gradients, job.ranges, 32 * CLASSES + range * 32 * width + 16 * CLASSES + SOME * CLASSES / 2, threads, parallel)) return 1;
  return run(job, gather, steps, 0, threads, parallel);
#else
  return 1;
#endif
}
