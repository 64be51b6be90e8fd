// The loops of dense_attention.cpp for one width of vector registers (LANES floats). foreach_target.h includes this file for each width.

#include "simd.h"

#include "bfloat16.h"
#include "float16.h"
#include "dense_product-inl.h"
#include "dense_strip-inl.h"
#include "dense_terms-inl.h"

// What the forward holds of a strip: its queries, and the running maximum, sum and unnormalised context.
struct Running {
  Strip strip;
  Vector maxima[2], sums[2];
  float *transposed, *context;
  bool is_empty;
};

// Turn products of keys [from, end) into scores, in place, and raise the maxima to theirs.
template <int N, bool IS_PLAIN>
static inline void to_scores(const Strip& strip, int64_t from, int64_t end, float* scores, float scale,
                             Vector (&maxima)[N]) {
  for (int64_t j = from; j < end; ++j)
    for (int n = 0; n < N; ++n) {
      float* position = scores + (j - from) * STRIP + n * LANES;
      const Vector score = score_of<IS_PLAIN>(strip, j, n, position, scale);
      if (!IS_PLAIN) store(position, score);
      maxima[n] = score > maxima[n] ? score : maxima[n];
    }
}

// Replace products of keys [from, end) by e^(score − maximum), after dropout, and correct the sums for the larger maximum.
template <int N>
static inline void exponentials(const Problem& job, Running& running, int64_t from, int64_t end, float* scores, float scale,
                                int64_t value_line) {
  const Strip& strip = running.strip;
  Vector maxima[N], shifts[N], factors[N];
  for (int n = 0; n < N; ++n) maxima[n] = running.maxima[n];
  if (sees_all(job, strip, from, end)) to_scores<N, true>(strip, from, end, scores, scale, maxima);
  else to_scores<N, false>(strip, from, end, scores, scale, maxima);
  float scales[N * LANES];
  for (int n = 0; n < N; ++n) {
    // a row that sees nothing yet keeps zeros
    shifts[n] = maxima[n] == broadcast(-INFINITY) ? Vector{} : maxima[n];
    factors[n] = exponential_or_zero(running.maxima[n] - shifts[n]);
    running.maxima[n] = maxima[n];
    store(scales + n * LANES, factors[n]);
  }
  for (int64_t i = 0; !running.is_empty && i < strip.count; ++i) {
    if (scales[i] == 1.0f) continue;
    float* context = running.context + i * value_line;
    for (int64_t c = 0; c < job.shape.value_width; c += LANES) store(context + c, load(context + c) * scales[i]);
  }
  // register by register: the constants of the exponential take most of the others
  for (int n = 0; n < N; ++n) {
    const Vector shift = shifts[n];
    Vector sum{};
    for (int64_t j = 0; j < end - from; ++j) {
      float* position = scores + j * STRIP + n * LANES;
      const Vector power = exponential_or_zero(load(position) - shift);
      sum += power;
      store(position, power);
    }
    running.sums[n] = running.sums[n] * factors[n] + sum;
  }
  for (int64_t j = from; job.threshold && j < end; ++j)
    for (int n = 0; n < N; ++n) {
      float* weight = scores + (j - from) * STRIP + n * LANES;
      store(weight, load(weight) * dropout_factor(job, strip, j, n));
    }
}

// Attend to the keys [first, end) of a tile.
template <int N>
static void attend_block(const Problem& job, const Tile& tile, Running& running, int64_t first, int64_t end, float* scores) {
  const Shape& shape = job.shape;
  const int64_t count = running.strip.count, width = shape.value_width;
  // a pair of keys is the same in every strip
  const int64_t from = first / PACK * PACK, skipped = from - tile.from, number = end - from, packs = (number + PACK - 1) / PACK;
  const float *keys = tile.keys + skipped * tile.line, *values = tile.values + skipped / PACK * tile.value_line;
  blocks<N, true, false>(keys, tile.line, running.transposed, STRIP, scores, STRIP, number, (shape.width + PACK - 1) / PACK);
  const float scale = add_terms<N>(job, running.strip, from, end, scores, nullptr);
  exponentials<N>(job, running, from, end, scores, scale, tile.value_line);
#ifdef PAIRS
  pack_weights(scores, number);
#endif
  if (running.is_empty) product<false, false>(scores, STRIP, values, tile.value_line, width, running.context, count, packs);
  else product<false, true>(scores, STRIP, values, tile.value_line, width, running.context, count, packs);
  running.is_empty = false;
}

// Attend to a tile, block by block: their scores lie in the nearest cache, and sums of sums lose fewer bits than one long sum.
template <int N>
static void attend_tile(const Problem& job, const Tile& tile, Running& running, float* scores) {
  const Strip& strip = running.strip;
  const int64_t from = strip.from > tile.from ? strip.from : tile.from, end = strip.end < tile.end ? strip.end : tile.end;
  for (int64_t first = from, last; first < end; first = last) {
    last = (first / BLOCK + 1) * BLOCK < end ? (first / BLOCK + 1) * BLOCK : end;
    attend_block<N>(job, tile, running, first, last, scores);
  }
}

// Write the context of a strip, and the statistics of its softmax for the gradients.
static void finish(const Problem& job, const Running& running, int64_t value_line) {
  const Shape& shape = job.shape;
  const Strip& strip = running.strip;
  const int64_t width = shape.value_width, offset = strip.offset(shape, width), stride = shape.heads * width;
  float maxima[STRIP], inverses[STRIP];
  for (int64_t n = 0; n < strip.registers(); ++n) {
    const Vector sum = running.sums[n];
    store(maxima + n * LANES, running.maxima[n] == broadcast(-INFINITY) ? Vector{} : running.maxima[n]);
    store(inverses + n * LANES, sum == Vector{} ? Vector{} : 1.0f / sum);
  }
  if (running.is_empty) fill_zero(job.context, shape.context_type, offset, strip.count, width, stride);
  else put(running.context, value_line, strip.count, width, inverses, job.context, shape.context_type, offset, stride);
  if (!job.statistics) return;
  const int64_t first = (strip.b * shape.heads + strip.h) * shape.queries + strip.row;
  memcpy(job.statistics + first, maxima, 4 * strip.count);
  memcpy(job.statistics + shape.batch * shape.heads * shape.queries + first, inverses, 4 * strip.count);
}

// A few strips of one sequence's group of heads, which share keys and values.
static void attend(const Problem& job, int64_t task, float* scratch) {
  const Shape& shape = job.shape;
  const int64_t strips = strips_of(shape, STRIP) * (shape.heads / shape.groups), parts = (strips + job.part - 1) / job.part;
  const int64_t b = task / parts / shape.groups, group = task / parts % shape.groups, first = task % parts * job.part;
  const int64_t number = strips - first < job.part ? strips - first : job.part;
  Tile tile = tile_of(shape, scratch);
  float* scores = scratch;
  float* lines = scores + TILE * STRIP;
  scratch = lines + STRIP * tile.line;
  Running parts_of[MAX_PART];
  int64_t from = shape.keys, end = 0;
  for (int64_t s = 0; s < number; ++s) {
    Running& running = parts_of[s];
    Strip& strip = running.strip = strip_of(job, b, group, first + s);
    running.is_empty = true, running.transposed = scratch, running.context = scratch + STRIP * tile.line;
    scratch = running.context + STRIP * tile.value_line;
    for (int n = 0; n < 2; ++n) running.maxima[n] = broadcast(-INFINITY), running.sums[n] = Vector{};
    if (strip.from >= strip.end) continue;
    set_rows(job, strip);
    from = strip.from < from ? strip.from : from, end = strip.end > end ? strip.end : end;
    load_transposed(job.query, shape.query_type, shape.query.to(b, strip.h, strip.row), shape.query.row, strip, shape.width,
                    job.scale, lines, tile.line, running.transposed);
  }
  // tiles begin at multiples of their length, so that no neighbour moves the place where a row's maximum changes
  for (int64_t begin = from / TILE * TILE; begin < end; begin += TILE) {
    tile.from = from > begin ? from / PACK * PACK : begin, tile.end = end < begin + TILE ? end : begin + TILE;
    load_tile(job, b, group, tile, nullptr, [&] {
      for (int64_t s = 0; s < number; ++s) count_queries(job, parts_of[s].strip, tile.from, tile.end, tile.counts);
    });
    for (int64_t s = 0; s < number; ++s) {
      if (parts_of[s].strip.registers() == 2) attend_tile<2>(job, tile, parts_of[s], scores);
      else attend_tile<1>(job, tile, parts_of[s], scores);
    }
  }
  for (int64_t s = 0; s < number; ++s) finish(job, parts_of[s], tile.value_line);
}

#include "dense_gradients-inl.h"
