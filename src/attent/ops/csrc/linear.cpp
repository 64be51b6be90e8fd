// Linear layers in bfloat16 by matrix tiles: y = x Wᵀ + b of one x and up to three W, and their gradients. Weights and biases are float32,
// x and y bfloat16, and sums float32. All arrays are contiguous, all widths multiples of 32. What is summed over tokens is summed in an
// order that the shapes alone decide.

#include "native.h"

#include "amx.h"

#ifdef HAS_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

// Tokens that make a task of a product, those of a weight's gradient, and of these so many as the second cache holds.
constexpr int64_t ROWS = 128, TOKENS = 1024, SOME = 256;

struct Product {
  const uint16_t* from[3];
  int64_t inner[3];
  // of each output its weights as tiles, a strip of 32 columns after the other
  const uint16_t* packed[3];
  const float* bias[3];
  uint16_t* to[3];
  int64_t outer[3];
  // where it is not above zero, what comes out is zero; or none
  const uint16_t* above;
  int64_t number;
  bool relu;
};

struct Gradient {
  const uint16_t *slopes, *from;
  // of each task those of the weight as tiles, and those of the bias
  float* sums;
  int64_t number, outer, inner;
};

#ifdef HAS_AMX
FOR_AMX

// 32 rows of 32 sums, with their bias, as `count` rows of an output.
static inline void finish(const Product& job, const float* sums, int output, int64_t row, int64_t column, int64_t count) {
  const int64_t outer = job.outer[output];
  const float* bias = job.bias[output];
  const __m512 one = bias ? _mm512_loadu_ps(bias + column) : _mm512_setzero_ps();
  const __m512 other = bias ? _mm512_loadu_ps(bias + column + 16) : _mm512_setzero_ps();
  const int64_t place = row * outer + column;
  for (int64_t i = 0; i < count; ++i) {
    __m512 low = _mm512_add_ps(_mm512_loadu_ps(sums + 32 * i), one), high = _mm512_add_ps(_mm512_loadu_ps(sums + 32 * i + 16), other);
    // the second operand where one is NaN
    if (job.relu) low = _mm512_max_ps(_mm512_setzero_ps(), low), high = _mm512_max_ps(_mm512_setzero_ps(), high);
    __m512i line = amx::narrowed(low, high);
    if (job.above) {
      const __m512i gate = _mm512_loadu_si512(job.above + place + i * outer);
      line = _mm512_maskz_mov_epi16(_mm512_cmpgt_epi16_mask(gate, _mm512_setzero_si512()), line);
    }
    _mm512_storeu_si512(job.to[output] + place + i * outer, line);
  }
}

static void multiply_rows(const Product& job, int64_t task, float* scratch) {
  const amx::Tiles tiles;
  float* sums = scratch;
  uint16_t* last_rows = reinterpret_cast<uint16_t*>(scratch + 1024);
  const int64_t first = task * ROWS, end = first + ROWS < job.number ? first + ROWS : job.number;
  const uint16_t* from[3][ROWS / 32] = {};
  for (int source = 0; source < 3 && job.from[source]; ++source) {
    const int64_t inner = job.inner[source];
    for (int64_t row = first; row < end; row += 32) {
      from[source][(row - first) / 32] = job.from[source] + row * inner;
      if (end - row >= 32) continue;
      memset(last_rows, 0, 64 * inner);
      memcpy(last_rows, job.from[source] + row * inner, 2 * inner * (end - row));
      from[source][(row - first) / 32] = last_rows;
      last_rows += 32 * inner;
    }
  }
  for (int output = 0; output < 3 && job.to[output]; ++output) {
    const uint16_t* strip = job.packed[output];
    for (int64_t column = 0, size = 0; column < job.outer[output]; column += 32, strip += size) {
      for (int64_t row = first; row < end; row += 32) {
        amx::clear();
        size = 0;
        for (int source = 0; source < 3 && job.from[source]; ++source) {
          const int64_t inner = job.inner[source];
          amx::multiply(from[source][(row - first) / 32], 2 * inner, 16 * inner, 32, strip + size, inner / 32);
          size += 32 * inner;
        }
        amx::put(sums, 128);
        finish(job, sums, output, row, column, end - row < 32 ? end - row : 32);
      }
    }
  }
}

// W (outer, inner) for a product with Wᵀ.
static void pack_forward(const float* weight, int64_t outer, int64_t inner, uint16_t* to) {
  for (int64_t column = 0; column < outer; column += 32)
    for (int64_t k = 0; k < inner; k += 32, to += 2 * amx::TILE) {
      amx::pack_transposed(weight + column * inner + k, inner, to);
      amx::pack_transposed(weight + (column + 16) * inner + k, inner, to + amx::TILE);
    }
}

// Several W (inner, outer), one under the other, for a product with them.
static void pack_backward(const float* const* weights, const int64_t* inner, int64_t outer, uint16_t* to) {
  for (int64_t column = 0; column < outer; column += 32)
    for (int source = 0; source < 3 && weights[source]; ++source)
      for (int64_t k = 0; k < inner[source]; k += 32, to += 2 * amx::TILE) amx::pack(weights[source] + k * outer + column, outer, to);
}

static inline void add(const __m512i (&pairs)[16], float* sums) {
  __m512 even = _mm512_setzero_ps(), odd = _mm512_loadu_ps(sums);
  for (int p = 0; p < 16; ++p) {
    even = _mm512_add_ps(even, _mm512_castsi512_ps(_mm512_slli_epi32(pairs[p], 16)));
    odd = _mm512_add_ps(odd, _mm512_castsi512_ps(_mm512_and_si512(pairs[p], _mm512_set1_epi32(0xffff0000))));
  }
  _mm512_storeu_ps(sums, _mm512_add_ps(even, odd));
}

// What some tokens add to the gradients of weight and bias: slopes woven and turned make the left side, features woven the right.
static void add_tokens(const Gradient& job, int64_t task, float* scratch) {
  const amx::Tiles tiles;
  const int64_t outer = job.outer, inner = job.inner, size = outer * inner;
  const int64_t end = (task + 1) * TOKENS < job.number ? (task + 1) * TOKENS : job.number;
  float *sums = job.sums + task * (size + outer), *of_bias = sums + size;
  uint16_t *left = reinterpret_cast<uint16_t*>(scratch), *right = left + SOME * outer;
  memset(of_bias, 0, 4 * outer);
  for (int64_t first = task * TOKENS; first < end; first += SOME) {
    const int64_t tokens = end - first < SOME ? end - first : SOME, steps = (tokens + 31) / 32;
    for (int64_t s = 0; s < steps; ++s) {
      __m512i low[16], high[16];
      const int64_t row = first + 32 * s, rows = end - row;
      for (int64_t m = 0; m < outer; m += 32) {
        amx::weave(job.slopes + row * outer + m, outer, rows, low, high);
        add(low, of_bias + m);
        add(high, of_bias + m + 16);
        uint16_t* to = left + (m / 32 * steps + s) * 2 * amx::TILE;
        amx::transpose(low);
        amx::write(low, to);
        amx::transpose(high);
        amx::write(high, to + amx::TILE);
      }
      for (int64_t k = 0; k < inner; k += 32) {
        amx::weave(job.from + row * inner + k, inner, rows, low, high);
        uint16_t* to = right + (k / 32 * steps + s) * 2 * amx::TILE;
        amx::write(low, to);
        amx::write(high, to + amx::TILE);
      }
    }
    float* block = sums;
    for (int64_t m = 0; m < outer; m += 32)
      for (int64_t k = 0; k < inner; k += 32, block += 1024) {
        if (first == task * TOKENS) amx::clear();
        else amx::get(block, 128);
        amx::multiply(left + m * steps * 32, 64, amx::TILE, 2 * amx::TILE, right + k * steps * 32, steps);
        amx::put(block, 128);
      }
  }
}

// The sums of all tasks, rows and columns in their own order.
static void gather(const Gradient& job, int64_t tasks, float* dweight, float* dbias) {
  const int64_t outer = job.outer, inner = job.inner, stride = outer * inner + outer;
  for (int64_t m = 0; m < outer; m += 32) {
    const float* block = job.sums + m * inner;
    for (int64_t k = 0; k < inner; k += 32, block += 1024)
      for (int64_t i = 0; i < 32; ++i) {
        __m512 low = _mm512_loadu_ps(block + 32 * i), high = _mm512_loadu_ps(block + 32 * i + 16);
        for (int64_t task = 1; task < tasks; ++task) {
          low = _mm512_add_ps(low, _mm512_loadu_ps(block + task * stride + 32 * i));
          high = _mm512_add_ps(high, _mm512_loadu_ps(block + task * stride + 32 * i + 16));
        }
        amx::unweave(low, high, dweight + (m + amx::woven(i)) * inner + k);
      }
    if (!dbias) continue;
    const float* of_bias = job.sums + outer * inner + m;
    __m512 low = _mm512_loadu_ps(of_bias), high = _mm512_loadu_ps(of_bias + 16);
    for (int64_t task = 1; task < tasks; ++task) {
      low = _mm512_add_ps(low, _mm512_loadu_ps(of_bias + task * stride));
      high = _mm512_add_ps(high, _mm512_loadu_ps(of_bias + task * stride + 16));
    }
    amx::unweave(low, high, dbias + m);
  }
}

FOR_ANY
#endif

int multiply(const Product& job, int64_t inner, int64_t threads, Parallel parallel) {
#ifdef HAS_AMX
  return run(job, multiply_rows, (job.number + ROWS - 1) / ROWS, 1024 + 16 * inner, threads, parallel);
#else
  return 1;
#endif
}

}  // namespace

// Whether the processor has tiles of bfloat16 and the system lets this process use them.
EXPORTED int attent_has_amx() {
#ifdef HAS_AMX
  unsigned a, b, c, d, extended, b1, c1, d1;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !__get_cpuid_count(7, 1, &extended, &b1, &c1, &d1)) return 0;
  // tiles, their products of bfloat16, and AVX-512's conversion to it
  if (!(d >> 24 & 1) || !(d >> 22 & 1) || !(extended >> 5 & 1)) return 0;
  constexpr int ASK = 0x1023, TILE_DATA = 18;
  return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
#else
  return 0;
#endif
}

// Of x (number, inner) and up to three weights (outer, inner) with biases (outer) or none: y (number, outer) = x Wᵀ + b, above zero only
// where `relu`. Returns 0, or 1 where memory ran out.
EXPORTED int attent_linear(const uint16_t* x, const float* weight0, const float* bias0, uint16_t* y0, const float* weight1,
                           const float* bias1, uint16_t* y1, const float* weight2, const float* bias2, uint16_t* y2, int64_t number,
                           int64_t inner, int64_t outer0, int64_t outer1, int64_t outer2, int64_t relu, int64_t threads,
                           Parallel parallel, int) {
#ifdef HAS_AMX
  const float* weights[] = {weight0, weight1, weight2};
  Product job{{x}, {inner}, {}, {bias0, bias1, bias2}, {y0, y1, y2}, {outer0, outer1, outer2}, nullptr, number, relu != 0};
  Memory memory;
  for (int output = 0; output < 3 && weights[output]; ++output) {
    uint16_t* packed = reinterpret_cast<uint16_t*>(memory.ask(job.outer[output] * inner / 2));
    if (memory.failed) return 1;
    pack_forward(weights[output], job.outer[output], inner, packed);
    job.packed[output] = packed;
  }
  return multiply(job, inner, threads, parallel);
#else
  return 1;
#endif
}

// Of up to three dy (number, inner) and weights (inner, outer): dx (number, outer) = Σ dy W, zero where `above` (number, outer) is given
// and not above zero. Returns 0, or 1 where memory ran out.
EXPORTED int attent_linear_input_gradients(const uint16_t* dy0, const float* weight0, const uint16_t* dy1, const float* weight1,
                                           const uint16_t* dy2, const float* weight2, const uint16_t* above, uint16_t* dx,
                                           int64_t number, int64_t inner0, int64_t inner1, int64_t inner2, int64_t outer,
                                           int64_t threads, Parallel parallel, int) {
#ifdef HAS_AMX
  const float* weights[] = {weight0, weight1, weight2};
  const int64_t inner = inner0 + inner1 + inner2;
  Memory memory;
  uint16_t* packed = reinterpret_cast<uint16_t*>(memory.ask(inner * outer / 2));
  if (memory.failed) return 1;
  const Product job{{dy0, dy1, dy2}, {inner0, inner1, inner2}, {packed}, {}, {dx}, {outer}, above, number, false};
  pack_backward(weights, job.inner, outer, packed);
  return multiply(job, inner, threads, parallel);
#else
  return 1;
#endif
}

// dweight (outer, inner) = dyᵀ x and dbias (outer), or none, of dy (number, outer) and x (number, inner). Returns 0, or 1 where memory
// ran out.
EXPORTED int attent_linear_weight_gradients(const uint16_t* dy, const uint16_t* x, float* dweight, float* dbias, int64_t number,
                                            int64_t outer, int64_t inner, int64_t threads, Parallel parallel, int) {
#ifdef HAS_AMX
  const int64_t tasks = (number + TOKENS - 1) / TOKENS;
  Memory memory;
  float* sums = memory.ask(tasks * (outer * inner + outer));
  if (memory.failed) return 1;
  const Gradient job{dy, x, sums, number, outer, inner};
  if (run(job, add_tokens, tasks, SOME * (outer + inner) / 2, threads, parallel)) return 1;
  gather(job, tasks, dweight, dbias);
  return 0;
#else
  return 1;
#endif
}
