// The scores v·tanh(q' + k') of every query and key, and their gradients, on a CPU. docs/design.md derives the inner loop: with e^2q'
// and e^2k' computed once a token, a tanh is one multiply-add and one reciprocal.
//
// All arrays are contiguous float32: query (groups, queries, width), key (groups, keys, width), v (directions, width), of which
// group g has row g % directions. Every result is summed in an order that depends on the shapes alone, never on the threads.

#include "extension.h"

#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// Up to here e^2q'·e^2k' stays far from overflow, and so does the product of four of them; beyond, a tile takes e^2(q' + k').
constexpr float ONE = 20.0f, FOUR = 5.0f;
enum Range { NARROW, MIDDLING, ANY };
// Keys that lie side by side, and rows that are prepared at a time.
constexpr int64_t BLOCK = 32, CHUNK = 64, MOST_BLOCKS = 4;

struct Scores {
  const float *query, *key, *v;
  float* scores;
  int64_t groups, directions, queries, keys, width, span;
};

struct Gradients {
  const float *query, *key, *v, *gradient;
  float *dq, *dk, *dv;
  int64_t groups, directions, queries, keys, width, slabs;
};

// The largest magnitude, infinite if there is a NaN.
float largest(const float* numbers, int64_t count) {
  float most = 0;
  bool ordered = true;
  for (int64_t i = 0; i < count; ++i) {
    const float size = std::fabs(numbers[i]);
    ordered &= size == size;
    most = size > most ? size : most;
  }
  return ordered ? most : INFINITY;
}

namespace baseline {
#define LANES 4
#define RECIPROCAL(y) (1.0f / (y))
#define LESS_ONE(y) (1.0f / (y) - 1.0f)
#include "tanh_lanes.h"
#undef LANES
#undef RECIPROCAL
#undef LESS_ONE
}  // namespace baseline

#if defined(__x86_64__)
FOR_AVX2
namespace avx2 {
#define LANES 8
#define RECIPROCAL(y) (1.0f / (y))
#define LESS_ONE(y) (1.0f / (y) - 1.0f)
#include "tanh_lanes.h"
#undef LANES
#undef RECIPROCAL
#undef LESS_ONE
}  // namespace avx2
FOR_ANY
FOR_AVX512
namespace avx512 {
// A reciprocal to 14 bits and one step of Newton's, sooner done than a division.
static inline __m512 reciprocal(__m512 y) {
  const __m512 guess = _mm512_maskz_rcp14_ps(0xffff, y);
  return _mm512_mul_ps(guess, _mm512_fnmadd_ps(y, guess, _mm512_set1_ps(2.0f)));
}
static inline __m512 less_one(__m512 y) {
  const __m512 guess = _mm512_maskz_rcp14_ps(0xffff, y);
  return _mm512_fmsub_ps(guess, _mm512_fnmadd_ps(y, guess, _mm512_set1_ps(2.0f)), _mm512_set1_ps(1.0f));
}
#define LANES 16
#define RECIPROCAL(y) ((Vector)reciprocal((__m512)(y)))
#define LESS_ONE(y) ((Vector)less_one((__m512)(y)))
#include "tanh_lanes.h"
#undef LANES
#undef RECIPROCAL
#undef LESS_ONE
}  // namespace avx512
FOR_ANY
#endif

}  // namespace

// scores (groups, queries, keys). Returns 0, or 1 where memory ran out.
EXPORTED int attent_tanh_scores(const float* query, const float* key, const float* v, float* scores, int64_t groups, int64_t directions,
                                int64_t queries, int64_t keys, int64_t width, int64_t threads, Parallel parallel, int level) {
  // What is prepared of the rows serves several blocks of keys, as long as there are tasks enough.
  const int64_t blocks = (keys + BLOCK - 1) / BLOCK;
  int64_t span = groups * blocks / (4 * threads);
  span = span < 1 ? 1 : span > MOST_BLOCKS ? MOST_BLOCKS : span;
  const Scores job{query, key, v, scores, groups, directions, queries, keys, width, span};
  const int64_t tasks = groups * ((blocks + span - 1) / span), scratch = width * (BLOCK * (span + 1) + 1 + CHUNK);
  auto task = baseline::scores_task;
#if defined(__x86_64__)
  if (level == 2) task = avx512::scores_task;
  if (level == 1) task = avx2::scores_task;
#endif
  return run(job, task, tasks, scratch, threads, parallel);
}

// gradient (groups, queries, keys) → dq (groups, queries, width), and of each slab of rows dk (groups, slabs, keys, width) and
// dv (groups, slabs, width). Returns 0, or 1 where memory ran out.
EXPORTED int attent_tanh_gradients(const float* query, const float* key, const float* v, const float* gradient, float* dq, float* dk,
                                   float* dv, int64_t groups, int64_t directions, int64_t queries, int64_t keys, int64_t width,
                                   int64_t slabs, int64_t threads, Parallel parallel, int level) {
  const Gradients job{query, key, v, gradient, dq, dk, dv, groups, directions, queries, keys, width, slabs};
  const int64_t padded = (width + 15) / 16 * 16, scratch = padded * (2 + 2 * CHUNK + 2 * BLOCK);
  auto task = baseline::gradients_task;
#if defined(__x86_64__)
  if (level == 2) task = avx512::gradients_task;
  if (level == 1) task = avx2::gradients_task;
#endif
  return run(job, task, groups * slabs, scratch, threads, parallel);
}
