// The scores v·tanh(q' + k') of every query and key, and their gradients, on a CPU. docs/design.md derives the inner loop: with e^2q'
// and e^2k' computed once a token, a tanh is one multiply-add and one reciprocal, and a division serves several.
//
// All arrays are contiguous float32: query (groups, queries, width), key (groups, keys, width), v (directions, width), of which
// group g has row g % directions. The order of every sum depends on the shapes alone, never on the threads.

#include "native.h"

#include <cmath>
#include <cstring>

namespace {

// Largest |q'| or |k'| for which e^2q', e^2k' and their product are far from overflow; beyond it a tile computes e^2(q' + k').
constexpr float MAX_SINGLE = 20.0f;
// How a tile of gradients divides: once for ROWS rows, once for each, or from e^2(q' + k').
enum Range { NARROW, MEDIUM, ANY };
// Scores are sums of 1 / z with z = (1 + e^2(q' + k')) · SMALLEST · max|v| / v. Up to eight features share one division,
//     1/z1 + 1/z2 + … = above / below with above ← above · z + below and below ← below · z,
// as long as no product is larger than MOST_PRODUCT: `above` is at most 8 / SMALLEST times that, and `below` at least SMALLEST^8.
// A share v / max|v| is taken for no smaller than LEAST_SHARE.
constexpr float SMALLEST = 0x1p-14f, LEAST_SHARE = 0x1p-30f, MOST_PRODUCT = 0x1p108f;
// For gradients four y share one, each times SMALL: while the largest q' and k' together do not exceed MAX_SUM, neither their product
// nor its inverse leaves the range of normal numbers.
constexpr float SMALL = 0x1p-28f, MAX_SUM = 18.0f;
// Keys of a block, rows (for gradients, keys) that are prepared at a time, and for gradients rows and features of a tile.
constexpr int64_t BLOCK = 32, CHUNK = 64, ROWS = 4, FEATURES = 16;

struct Scores {
  const float *query, *key, *v;
  float* scores;
  int64_t groups, directions, queries, keys, width, chunks, blocks;
  // of each direction SMALLEST · max|v| / v, Σ v and what 1 / z is to be multiplied with
  float *inverse, *totals;
  // e^2q' · inverse; of blocks e^2k', feature by feature; the largest magnitudes of both, and the largest exponential of each feature
  float *rows, *transposed_keys, *row_maxima, *key_maxima, *row_exp_maxima, *key_exp_maxima;
};

struct Gradients {
  const float *query, *key, *v, *gradient;
  float *dq, *dk, *dv;
  int64_t groups, directions, queries, keys, width, slabs, per_slab, chunks, blocks;
  // Σ g of each tile: (groups, chunks, blocks, CHUNK) of the rows, (groups, chunks, keys) of the keys
  float *sums_of_rows, *sums_of_keys;
};

// Pointers to a tile's numbers, and their counts.
struct Tile {
  const float *query, *key, *gradient, *sums_of_rows;
  int64_t rows, count, features;
};

#define LOOPS "tanh_score-inl.h"
#include "foreach_target.h"

// `inverse` and `totals` of one direction.
void prepare_direction(const float* v, int64_t width, float* inverse, float* totals) {
  const float maximum = baseline::largest(v, width), unit = maximum > 0 ? maximum : 1.0f;
  float total = 0;
  for (int64_t d = 0; d < width; ++d) {
    total += v[d];
    const float share = v[d] / unit, size = std::fabs(share) > LEAST_SHARE ? std::fabs(share) : LEAST_SHARE;
    inverse[d] = std::copysign(SMALLEST / size, share);
  }
  // NaN makes products_fit refuse every tile
  if (!(maximum <= 0x1p100f) || (maximum > 0 && maximum < 0x1p-100f)) inverse[0] = NAN;
  totals[0] = total, totals[1] = 2 * SMALLEST * maximum;
}

}  // namespace

// scores (groups, queries, keys). Returns 0, or 1 if out of memory.
EXPORTED int attent_tanh_score(const float* query, const float* key, const float* v, float* scores, int64_t groups,
                               int64_t directions, int64_t queries, int64_t keys, int64_t width, int64_t threads, Parallel parallel,
                               int level) {
  const int64_t chunks = (queries + CHUNK - 1) / CHUNK, blocks = (keys + BLOCK - 1) / BLOCK;
  Memory memory;
  const Scores job{query, key, v, scores, groups, directions, queries, keys, width, chunks, blocks,
                   memory.allocate(directions * width), memory.allocate(2 * directions),
                   memory.allocate(groups * queries * width), memory.allocate(groups * blocks * BLOCK * width),
                       memory.allocate(groups * chunks),
                   memory.allocate(groups * blocks), memory.allocate(groups * chunks * width), memory.allocate(groups * blocks * width)};
  if (memory.failed) return 1;
  for (int64_t k = 0; k < directions; ++k) prepare_direction(v + k * width, width, job.inverse + k * width, job.totals + 2 * k);
  const auto preparation = DISPATCH(scores_preparation, level), task = DISPATCH(scores_task, level);
  return run(job, preparation, groups * (chunks + blocks), width, threads, parallel) ||
         run(job, task, groups * blocks, width * BLOCK, threads, parallel);
}

// gradient (groups, queries, keys) → dq (groups, queries, width), and of each slab of rows dk (groups, slabs, keys, width) and
// dv (groups, slabs, width). Returns 0, or 1 if out of memory.
EXPORTED int attent_tanh_score_gradients(const float* query, const float* key, const float* v, const float* gradient, float* dq,
                                         float* dk, float* dv, int64_t groups, int64_t directions, int64_t queries, int64_t keys,
                                         int64_t width, int64_t slabs, int64_t threads, Parallel parallel, int level) {
  const int64_t chunks = (queries + CHUNK - 1) / CHUNK, blocks = (keys + CHUNK - 1) / CHUNK, parts = (width + FEATURES - 1) / FEATURES;
  // whole chunks
  const int64_t per_slab = (chunks + slabs - 1) / slabs * CHUNK;
  Memory memory;
  const Gradients job{query, key, v, gradient, dq, dk, dv, groups, directions, queries, keys, width, slabs, per_slab, chunks, blocks,
                      memory.allocate(groups * chunks * blocks * CHUNK), memory.allocate(groups * chunks * keys)};
  if (memory.failed) return 1;
  const auto preparation = DISPATCH(gradients_preparation, level), task = DISPATCH(gradients_task, level);
  const int64_t scratch = (4 * CHUNK + ROWS + 1 + 2 * per_slab) * FEATURES + per_slab;
  return run(job, preparation, groups * chunks, 0, threads, parallel) || run(job, task, groups * slabs * parts, scratch, threads, parallel);
}
