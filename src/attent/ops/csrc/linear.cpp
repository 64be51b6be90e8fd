// Linear layers in bfloat16 by matrix tiles: y = x Wᵀ + b of one x and up to three W, and their gradients. Weights, biases and
// sums are float32, x and y bfloat16. All arrays are contiguous, all widths multiples of 32. The order of sums over tokens
// depends on the shapes alone.

#include "native.h"

#include "amx.h"

#ifdef HAS_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

// Tokens of a product's task, of a task of the weight's gradient, and of a part of it that fits the second-level cache.
constexpr int64_t ROWS = 128, TOKENS = 1024, CACHE_TOKENS = 256;

struct Product {
  const uint16_t* from[3];
  int64_t inner[3];
  // of each output, its weights as tiles, in strips of 32 columns
  const uint16_t* packed[3];
  const float* bias[3];
  uint16_t* to[3];
  int64_t outer[3];
  // the output is zero where this is not positive; or null
  const uint16_t* relu_output;
  int64_t number;
  bool relu;
};

struct Gradient {
  const uint16_t *doutput, *from;
  // of each task, the weight's gradient as tiles, and the bias's
  float* sums;
  int64_t number, outer, inner;
};

#ifdef HAS_AMX
FOR_AMX

// 32 rows of 32 sums, with their bias, as `count` rows of an output.
static inline void finish(const Product& job, const float* sums, int output, int64_t row, int64_t column, int64_t count) {
  const int64_t outer = job.outer[output];
  const float* bias = job.bias[output];
  const __m512 low_bias = bias ? _mm512_loadu_ps(bias + column) : _mm512_setzero_ps();
  const __m512 high_bias = bias ? _mm512_loadu_ps(bias + column + 16) : _mm512_setzero_ps();
  const int64_t offset = row * outer + column;
  for (int64_t i = 0; i < count; ++i) {
    __m512 low = _mm512_add_ps(_mm512_loadu_ps(sums + 32 * i), low_bias),
        high = _mm512_add_ps(_mm512_loadu_ps(sums + 32 * i + 16), high_bias);
    // max returns the second operand if one is NaN
    if (job.relu) low = _mm512_max_ps(_mm512_setzero_ps(), low), high = _mm512_max_ps(_mm512_setzero_ps(), high);
    __m512i line = amx::to_bfloat16(low, high);
    if (job.relu_output) {
      const __m512i gate = _mm512_loadu_si512(job.relu_output + offset + i * outer);
      line = _mm512_maskz_mov_epi16(_mm512_cmpgt_epi16_mask(gate, _mm512_setzero_si512()), line);
    }
    _mm512_storeu_si512(job.to[output] + offset + i * outer, line);
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

// W of up to three (inner, outer), stacked, for a product with them.
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

// Add a task's tokens to the gradients of weight and bias: the left side is dy interleaved and transposed, the right x interleaved.
static void add_tokens(const Gradient& job, int64_t task, float* scratch) {
  const amx::Tiles tiles;
  const int64_t outer = job.outer, inner = job.inner, size = outer * inner;
  const int64_t end = (task + 1) * TOKENS < job.number ? (task + 1) * TOKENS : job.number;
  float *sums = job.sums + task * (size + outer), *bias_sums = sums + size;
  uint16_t *left = reinterpret_cast<uint16_t*>(scratch), *right = left + CACHE_TOKENS * outer;
  memset(bias_sums, 0, 4 * outer);
  for (int64_t first = task * TOKENS; first < end; first += CACHE_TOKENS) {
    const int64_t tokens = end - first < CACHE_TOKENS ? end - first : CACHE_TOKENS, steps = (tokens + 31) / 32;
    for (int64_t s = 0; s < steps; ++s) {
      __m512i low[16], high[16];
      const int64_t row = first + 32 * s, rows = end - row;
      for (int64_t m = 0; m < outer; m += 32) {
        amx::weave(job.doutput + row * outer + m, outer, rows, low, high);
        add(low, bias_sums + m);
        add(high, bias_sums + m + 16);
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

// Sum the tasks, and restore the order of rows and columns.
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
    const float* bias_sums = job.sums + outer * inner + m;
    __m512 low = _mm512_loadu_ps(bias_sums), high = _mm512_loadu_ps(bias_sums + 16);
    for (int64_t task = 1; task < tasks; ++task) {
      low = _mm512_add_ps(low, _mm512_loadu_ps(bias_sums + task * stride));
      high = _mm512_add_ps(high, _mm512_loadu_ps(bias_sums + task * stride + 16));
    }
    amx::unweave(low, high, dbias + m);
  }
}

END_TARGET
#endif

int multiply(const Product& job, int64_t inner, int64_t threads, Parallel parallel) {
#ifdef HAS_AMX
  return run(job, multiply_rows, (job.number + ROWS - 1) / ROWS, 1024 + 16 * inner, threads, parallel);
#else
  return 1;
#endif
}

}  // namespace

// 1 if the processor has tiles of bfloat16 and the system lets this process use them.
EXPORTED int attent_has_amx() {
#ifdef HAS_AMX
  unsigned a, b, c, d, extended, b1, c1, d1;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !__get_cpuid_count(7, 1, &extended, &b1, &c1, &d1)) return 0;
  // tiles, their products of bfloat16, and AVX-512's conversion to it
  if (!(d >> 24 & 1) || !(d >> 22 & 1) || !(extended >> 5 & 1)) return 0;
  constexpr int REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
  return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
  return 0;
#endif
}

// y (number, outer) = x Wᵀ + b of x (number, inner) and up to three weights (outer, inner) with biases (outer) or null, through relu if
// `relu`. Returns 0, or 1 if out of memory.
EXPORTED int attent_linear(const uint16_t* x, const float* weight0, const float* bias0, uint16_t* y0, const float* weight1,
                           const float* bias1, uint16_t* y1, const float* weight2, const float* bias2, uint16_t* y2, int64_t number,
                           int64_t inner, int64_t outer0, int64_t outer1, int64_t outer2, int64_t relu, int64_t threads,
                           Parallel parallel, int) {
#ifdef HAS_AMX
  const float* weights[] = {weight0, weight1, weight2};
  Product job{{x}, {inner}, {}, {bias0, bias1, bias2}, {y0, y1, y2}, {outer0, outer1, outer2}, nullptr, number, relu != 0};
  Memory memory;
  for (int output = 0; output < 3 && weights[output]; ++output) {
    uint16_t* packed = reinterpret_cast<uint16_t*>(memory.allocate(job.outer[output] * inner / 2));
    if (memory.failed) return 1;
    pack_forward(weights[output], job.outer[output], inner, packed);
    job.packed[output] = packed;
  }
  return multiply(job, inner, threads, parallel);
#else
  return 1;
#endif
}

// dx (number, outer) = Σ dy W of up to three dy (number, inner) and weights (inner, outer); zero where `relu_output` (number, outer) is
// given and not positive. Returns 0, or 1 if out of memory.
EXPORTED int attent_linear_input_gradients(const uint16_t* dy0, const float* weight0, const uint16_t* dy1, const float* weight1,
                                           const uint16_t* dy2, const float* weight2, const uint16_t* relu_output, uint16_t* dx,
                                           int64_t number, int64_t inner0, int64_t inner1, int64_t inner2, int64_t outer,
                                           int64_t threads, Parallel parallel, int) {
#ifdef HAS_AMX
  const float* weights[] = {weight0, weight1, weight2};
  const int64_t inner = inner0 + inner1 + inner2;
  Memory memory;
  uint16_t* packed = reinterpret_cast<uint16_t*>(memory.allocate(inner * outer / 2));
  if (memory.failed) return 1;
  const Product job{{dy0, dy1, dy2}, {inner0, inner1, inner2}, {packed}, {}, {dx}, {outer}, relu_output, number, false};
  pack_backward(weights, job.inner, outer, packed);
  return multiply(job, inner, threads, parallel);
#else
  return 1;
#endif
}

// dweight (outer, inner) = dyᵀ x and dbias (outer), or null, of dy (number, outer) and x (number, inner).
// Returns 0, or 1 if out of memory.
EXPORTED int attent_linear_weight_gradients(const uint16_t* dy, const uint16_t* x, float* dweight, float* dbias, int64_t number,
                                            int64_t outer, int64_t inner, int64_t threads, Parallel parallel, int) {
#ifdef HAS_AMX
  const int64_t tasks = (number + TOKENS - 1) / TOKENS;
  Memory memory;
  float* sums = memory.allocate(tasks * (outer * inner + outer));
  if (memory.failed) return 1;
  const Gradient job{dy, x, sums, number, outer, inner};
  if (run(job, add_tokens, tasks, CACHE_TOKENS * (outer + inner) / 2, threads, parallel)) return 1;
  gather(job, tasks, dweight, dbias);
  return 0;
#else
  return 1;
#endif
}
