// The scores v·tanh(q' + k') of every query and key, and their gradients, on a CPU. docs/design.md derives the inner loop: with e^2q'
// and e^2k' computed once a token, a tanh is one multiply-add and one reciprocal, and a division serves several.
//
// All arrays are contiguous float32: query (groups, queries, width), key (groups, keys, width), v (directions, width), of which
// group g has row g % directions. Every result is summed in an order that depends on the shapes alone, never on the threads.

#include "native.h"

#include <cmath>
#include <cstring>

namespace {

// Up to here e^2q' and e^2k' stay far from overflow, and so does their product; beyond, a tile takes e^2(q' + k').
constexpr float ONE = 20.0f;
// What a tile of gradients allows: to share a division between rows, to divide for each, or only e^2(q' + k').
enum Range { NARROW, MIDDLING, ANY };
// Scores are sums of 1 / z with z = (1 + e^2(q' + k')) · SMALLEST · max|v| / v. Up to eight features share one division,
//     1/z1 + 1/z2 + … = above / below with above ← above · z + below and below ← below · z,
// as long as no product is larger than MOST_PRODUCT: `above` is at most 8 / SMALLEST times that, and `below` at least SMALLEST^8.
// A share v / max|v| is taken for no smaller than LEAST_SHARE.
constexpr float SMALLEST = 0x1p-14f, LEAST_SHARE = 0x1p-30f, MOST_PRODUCT = 0x1p108f;
// For gradients four y share one, each times SMALL: while the largest q' and k' together do not exceed BOTH, neither their product
// nor its inverse leaves the range of normal numbers.
constexpr float SMALL = 0x1p-28f, BOTH = 18.0f;
// Keys that lie side by side, rows (for gradients, keys) that are prepared at a time, and for gradients rows and features of a tile.
constexpr int64_t BLOCK = 32, CHUNK = 64, ROWS = 4, FEATURES = 16;

struct Scores {
  const float *query, *key, *v;
  float* scores;
  int64_t groups, directions, queries, keys, width, chunks, blocks;
  // of each direction SMALLEST · max|v| / v, Σ v and what 1 / z is to be multiplied with
  float *inverse, *totals;
  // e^2q' · inverse; of blocks e^2k', feature by feature; the largest magnitudes of both, and the largest exponential of each feature
  float *rows, *standing, *most_of_rows, *most_of_keys, *largest_of_rows, *largest_of_keys;
};

struct Gradients {
  const float *query, *key, *v, *gradient;
  float *dq, *dk, *dv;
  int64_t groups, directions, queries, keys, width, slabs, per_slab, chunks, blocks;
  // Σ g of each tile: (groups, chunks, blocks, CHUNK) of the rows, (groups, chunks, keys) of the keys
  float *sums_of_rows, *sums_of_keys;
};

// Where a tile's numbers begin, and how many there are.
struct Tile {
  const float *query, *key, *gradient, *sums_of_rows;
  int64_t rows, count, features;
};

#define LOOPS "tanh_score-inl.h"
#include "foreach_target.h"

// `inverse` and `totals` of one direction.
void prepare_direction(const float* v, int64_t width, float* inverse, float* totals) {
  const float most = baseline::largest(v, width), unit = most > 0 ? most : 1.0f;
  float total = 0;
  for (int64_t d = 0; d < width; ++d) {
    total += v[d];
    const float share = v[d] / unit, size = std::fabs(share) > LEAST_SHARE ? std::fabs(share) : LEAST_SHARE;
    inverse[d] = std::copysign(SMALLEST / size, share);
  }
  // where this is not finite, neither are products with it: NaN keeps tiles from it
  if (!(most <= 0x1p100f) || (most > 0 && most < 0x1p-100f)) inverse[0] = NAN;
  totals[0] = total, totals[1] = 2 * SMALLEST * most;
}

}  // namespace

// scores (groups, queries, keys). Returns 0, or 1 where memory ran out.
EXPORTED int attent_tanh_score(const float* query, const float* key, const float* v, float* scores, int64_t groups,
                               int64_t directions, int64_t queries, int64_t keys, int64_t width, int64_t threads, Parallel parallel,
                               int level) {
  const int64_t chunks = (queries + CHUNK - 1) / CHUNK, blocks = (keys + BLOCK - 1) / BLOCK;
  Memory memory;
  const Scores job{query, key, v, scores, groups, directions, queries, keys, width, chunks, blocks,
                   memory.ask(directions * width), memory.ask(2 * directions),
                   memory.ask(groups * queries * width), memory.ask(groups * blocks * BLOCK * width), memory.ask(groups * chunks),
                   memory.ask(groups * blocks), memory.ask(groups * chunks * width), memory.ask(groups * blocks * width)};
  if (memory.failed) return 1;
  for (int64_t one = 0; one < directions; ++one) prepare_direction(v + one * width, width, job.inverse + one * width, job.totals + 2 * one);
  const auto prepare = CHOSEN(scores_preparation, level), task = CHOSEN(scores_task, level);
  return run(job, prepare, groups * (chunks + blocks), width, threads, parallel) ||
         run(job, task, groups * blocks, width * BLOCK, threads, parallel);
}

// gradient (groups, queries, keys) → dq (groups, queries, width), and of each slab of rows dk (groups, slabs, keys, width) and
// dv (groups, slabs, width). Returns 0, or 1 where memory ran out.
EXPORTED int attent_tanh_score_gradients(const float* query, const float* key, const float* v, const float* gradient, float* dq,
                                         float* dk, float* dv, int64_t groups, int64_t directions, int64_t queries, int64_t keys,
                                         int64_t width, int64_t slabs, int64_t threads, Parallel parallel, int level) {
  const int64_t chunks = (queries + CHUNK - 1) / CHUNK, blocks = (keys + CHUNK - 1) / CHUNK, parts = (width + FEATURES - 1) / FEATURES;
  // whole chunks
  const int64_t per_slab = (chunks + slabs - 1) / slabs * CHUNK;
  Memory memory;
  const Gradients job{query, key, v, gradient, dq, dk, dv, groups, directions, queries, keys, width, slabs, per_slab, chunks, blocks,
                      memory.ask(groups * chunks * blocks * CHUNK), memory.ask(groups * chunks * keys)};
  if (memory.failed) return 1;
  const auto prepare = CHOSEN(gradients_preparation, level), task = CHOSEN(gradients_task, level);
  const int64_t scratch = (4 * CHUNK + ROWS + 1 + 2 * per_slab) * FEATURES + per_slab;
  return run(job, prepare, groups * chunks, 0, threads, parallel) || run(job, task, groups * slabs * parts, scratch, threads, parallel);
}
