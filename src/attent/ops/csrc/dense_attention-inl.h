// The loops of dense_attention.cpp for one width of vector registers (LANES floats). foreach_target.h includes this file for each width.

#include "simd.h"

#include "bfloat16.h"
#include "dense_product-inl.h"
#include "dense_strip-inl.h"

// What the forward holds of a strip: its queries, and the running maximum, sum and unnormalised context.
struct Running {
  Strip strip;
  Vector maxima[2], sums[2];
  float *transposed, *context;
  bool is_empty;
};

// Replace products of keys [from, end) by e^(score − maximum), after dropout, and correct the sums for the larger maximum.
template <int N>
static inline void exponentials(const Problem& job, Running& running, int64_t from, int64_t end, float* scores, int64_t value_line) {
  const Strip& strip = running.strip;
  Vector maxima[N], shifts[N], factors[N], sums[N];
  for (int n = 0; n < N; ++n) maxima[n] = running.maxima[n];
  for (int64_t j = from; j < end; ++j)
    for (int n = 0; n < N; ++n) {
      float* position = scores + (j - from) * STRIP + n * LANES;
      const Vector score = score_of(job, strip, j, n, position);
      store(position, score);
      maxima[n] = score > maxima[n] ? score : maxima[n];
    }
  float scales[N * LANES];
  for (int n = 0; n < N; ++n) {
    // a row that sees nothing yet keeps zeros
    shifts[n] = maxima[n] == broadcast(-INFINITY) ? Vector{} : maxima[n];
    factors[n] = exponential_or_zero(running.maxima[n] - shifts[n]);
    sums[n] = Vector{};
    running.maxima[n] = maxima[n];
    store(scales + n * LANES, factors[n]);
  }
  for (int64_t i = 0; !running.is_empty && i < strip.count; ++i) {
    if (scales[i] == 1.0f) continue;
    float* context = running.context + i * value_line;
    for (int64_t c = 0; c < job.shape.value_width; c += LANES) store(context + c, load(context + c) * scales[i]);
  }
  for (int64_t j = from; j < end; ++j)
    for (int n = 0; n < N; ++n) {
      float* position = scores + (j - from) * STRIP + n * LANES;
      const Vector power = exponential_or_zero(load(position) - shifts[n]);
      sums[n] += power;
      store(position, power);
    }
  for (int n = 0; n < N; ++n) running.sums[n] = running.sums[n] * factors[n] + sums[n];
  for (int64_t j = from; job.threshold && j < end; ++j)
    for (int n = 0; n < N; ++n) {
      float* weight = scores + (j - from) * STRIP + n * LANES;
      store(weight, load(weight) * dropout_factor(job, strip, j, n));
    }
}

template <int N>
static void attend_tile(const Problem& job, const Tile& tile, Running& running, float* scores) {
  const Shape& shape = job.shape;
  const Strip& strip = running.strip;
  const int64_t first = strip.from > tile.from ? strip.from : tile.from, end = strip.end < tile.end ? strip.end : tile.end;
  if (first >= end) return;
  // a pair of keys is the same in every strip
  const int64_t from = first / PACK * PACK, skipped = from - tile.from, number = end - from, packs = (number + PACK - 1) / PACK;
  const float *keys = tile.keys + skipped * tile.line, *values = tile.values + skipped / PACK * tile.value_line;
  blocks<N, true, false>(keys, tile.line, running.transposed, STRIP, scores, STRIP, number, (shape.width + PACK - 1) / PACK);
  exponentials<N>(job, running, from, end, scores, tile.value_line);
#ifdef PAIRS
  pack_weights(scores, number);
#endif
  if (running.is_empty)
    product<false, false>(scores, STRIP, values, tile.value_line, shape.value_width, running.context, strip.count, packs);
  else
    product<false, true>(scores, STRIP, values, tile.value_line, shape.value_width, running.context, strip.count, packs);
  running.is_empty = false;
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
  if (running.is_empty) fill_zero(job.context, shape.is_context_half, offset, strip.count, width, stride);
  else put(running.context, value_line, strip.count, width, inverses, job.context, shape.is_context_half, offset, stride);
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
    load_transposed(job.query, shape.is_query_half, shape.query.to(b, strip.h, strip.row), shape.query.row, strip, shape.width, lines,
                    tile.line, running.transposed);
  }
  // tiles begin at multiples of their length, so that no neighbour moves the place where a row's maximum changes
  for (int64_t begin = from / TILE * TILE; begin < end; begin += TILE) {
    tile.from = from > begin ? from / PACK * PACK : begin, tile.end = end < begin + TILE ? end : begin + TILE;
    memset(tile.counts, 0, 4 * (TILE + 1));
    for (int64_t s = 0; s < number; ++s) count_queries(job, parts_of[s].strip, tile.from, tile.end, tile.counts);
    load_tile(job, b, group, tile);
    for (int64_t s = 0; s < number; ++s) {
      if (parts_of[s].strip.registers() == 2) attend_tile<2>(job, tile, parts_of[s], scores);
      else attend_tile<1>(job, tile, parts_of[s], scores);
    }
  }
  for (int64_t s = 0; s < number; ++s) finish(job, parts_of[s], tile.value_line);
}

#include "dense_gradients-inl.h"
