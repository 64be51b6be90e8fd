// The gradients of dense attention. Included by dense_attention-inl.h.

// The buffers of the gradients of a tile of keys.
struct Gradients {
  float *dkeys, *dvalues, *queries, *transposed, *outputs, *transposed_gradient, *contexts, *dqueries, *scores, *dscores, *dropped;
  // of neighbouring rows, where dot products take pairs
  float *key_pairs, *query_pairs, *output_pairs;
  // the slopes of the soft cap, and sums of a head's gradients of a bias that queries share, and of one by offset
  float *slopes, *bias_sums, *offset_sums;
};

static Gradients gradients_of(const Shape& shape, const Tile& tile, float* scratch) {
  const auto take = [&scratch](int64_t numbers) { return (scratch += numbers) - numbers; };
  Gradients of{};
  of.dkeys = take(TILE * tile.line), of.dvalues = take(TILE * tile.value_line);
  of.queries = take(STRIP * tile.line), of.transposed = take(STRIP * tile.line), of.dqueries = take(STRIP * tile.line);
  of.outputs = take(STRIP * tile.value_line), of.transposed_gradient = take(STRIP * tile.value_line);
  of.contexts = take(STRIP * tile.value_line);
  of.scores = take(TILE * STRIP), of.dscores = take(TILE * STRIP), of.dropped = take(TILE * STRIP);
  of.key_pairs = take(TILE / 2 * tile.line), of.query_pairs = take(STRIP / 2 * tile.line);
  of.output_pairs = take(STRIP / 2 * tile.value_line);
  of.slopes = take(TILE * STRIP), of.bias_sums = take(TILE), of.offset_sums = take(shape.queries + TILE);
  return of;
}

#include "dense_row_sums-inl.h"

// Wait until as many tasks as `order` had their turn. Whose turn is earlier began earlier, and waits for none of the later ones.
static inline void wait_for(const std::atomic<int32_t>& turn, int64_t order) {
  while (turn.load(std::memory_order_acquire) != order) std::this_thread::yield();
}

static inline void pass_on(std::atomic<int32_t>& turn) { turn.store(turn.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

#include "dense_term_gradients-inl.h"

// Add a tile's part of the gradients of a strip's queries, tile after tile: the last one writes them.
static void add_dqueries(const Problem& job, const Strip& strip, int64_t tile, int64_t turn, const float* from, int64_t line) {
  const Shape& shape = job.shape;
  const int64_t offset = strip.offset(shape, shape.width), stride = shape.heads * shape.width;
  const int64_t first = strip.from / TILE, last = (strip.end - 1) / TILE;
  if (first == last) {
    put(from, line, strip.count, shape.width, nullptr, job.dquery, shape.query_type, offset, stride);
    return;
  }
  wait_for(job.turns[turn], tile - first);
  for (int64_t i = 0; i < strip.count; ++i)
    for (int64_t c = 0; c < shape.width; c += LANES) {
      float* sums = job.dquery_sums + offset + i * stride + c;
      const Vector own = load(from + i * line + c), sum = tile == first ? own : load_some(sums, shape.width - c) + own;
      store_some(sums, shape.width - c, sum);
    }
  if (tile == last && shape.query_type != FLOAT32)
    put(job.dquery_sums + offset, stride, strip.count, shape.width, nullptr, job.dquery, shape.query_type, offset, stride);
  pass_on(job.turns[turn]);
}

template <int N>
static void gradients_strip(const Problem& job, const Tile& tile, const Gradients& of, Strip& strip, int64_t turn) {
  const Shape& shape = job.shape;
  const int64_t first = strip.from > tile.from ? strip.from : tile.from, end = strip.end < tile.end ? strip.end : tile.end;
  const int64_t from = first / PACK * PACK, skipped = from - tile.from, number = end - from;
  const int64_t width = shape.width, value_width = shape.value_width;
  float *dkeys = of.dkeys + skipped * tile.line, *dvalues = of.dvalues + skipped * tile.value_line;
  set_rows(job, strip);
  Vector sums[N] = {};
  strip_weights<N>(job, tile, of, strip, from, end, sums);
  for (int n = 0; n < N && !has_one_tile(strip); ++n) sums[n] = load_some(row_sums_of(job, strip) + n * LANES, strip.count - n * LANES);
  const float factor = job.has_term_gradients() ? 1.0f : job.scale;
  // a weight of 1 has a gradient of exactly 0
  for (int64_t j = 0; j < number; ++j)
    for (int n = 0; n < N; ++n) {
      float* dscore = of.dscores + j * STRIP + n * LANES;
      store(dscore, (load(dscore) - sums[n]) * (load(of.scores + j * STRIP + n * LANES) * factor));
    }
  if (job.has_term_gradients()) term_gradients<N>(job, tile, of, strip, from, end);
  const float* dropped = job.threshold ? of.dropped : of.scores;
#ifdef PAIRS
  const uint16_t* query = static_cast<const uint16_t*>(job.query) + shape.query.to(strip.b, strip.h, strip.row);
  const uint16_t* output = static_cast<const uint16_t*>(job.gradient) + shape.gradient.to(strip.b, strip.h, strip.row);
  gather_row_pairs(query, shape.query.row, strip.count, width, nullptr, of.query_pairs, tile.line);
  gather_row_pairs(output, shape.gradient.row, strip.count, value_width, nullptr, of.output_pairs, tile.value_line);
  const int64_t rows = (strip.count + 1) / 2;
  pack_rows(dropped, number, of.scores);
  product<true, true>(of.scores, STRIP / 2, of.output_pairs, tile.value_line, value_width, dvalues, number, rows);
  pack_rows(of.dscores, number, of.scores);
  product<true, true>(of.scores, STRIP / 2, of.query_pairs, tile.line, width, dkeys, number, rows);
  pack_weights(of.dscores, number);
  product_of_keys(of.dscores, of.key_pairs + skipped / 2 * tile.line, tile.line, width, of.dqueries, strip.count,
                         (number + 1) / 2);
#else
  product<true, true>(dropped, STRIP, of.outputs, tile.value_line, value_width, dvalues, number, strip.count);
  product<true, true>(of.dscores, STRIP, of.queries, tile.line, width, dkeys, number, strip.count);
  product_of_keys(of.dscores, tile.keys + skipped * tile.line, tile.line, width, of.dqueries, strip.count, number);
#endif
  add_dqueries(job, strip, tile.from / TILE, turn, of.dqueries, tile.line);
}

// One tile of the keys of one sequence's group of heads. Neighbouring tasks are other groups: they do not wait for each other.
static void gradients(const Problem& job, int64_t task, float* scratch) {
  const Shape& shape = job.shape;
  const int64_t groups = shape.batch * shape.groups, b = task % groups / shape.groups, group = task % shape.groups;
  const int64_t strips = strips_of(shape, STRIP) * (shape.heads / shape.groups), first_turn = task % groups * strips;
  Tile tile = tile_of(shape, scratch);
  const Gradients of = gradients_of(shape, tile, scratch);
  tile.from = task / groups * TILE, tile.end = shape.keys < tile.from + TILE ? shape.keys : tile.from + TILE;
  const int64_t number = tile.end - tile.from;
  const auto sees_tile = [&tile](const Strip& strip) { return strip.from < tile.end && strip.end > tile.from; };
  load_tile(job, b, group, tile, of.key_pairs, [&] {
    for (int64_t s = 0; s < strips; ++s) {
      const Strip strip = strip_of(job, b, group, s);
      if (strip.from < strip.end && sees_tile(strip)) count_queries(job, strip, tile.from, tile.end, tile.counts);
    }
  });
  memset(of.dkeys, 0, 4 * number * tile.line);
  memset(of.dvalues, 0, 4 * number * tile.value_line);
  for (int64_t s = 0; s < strips; ++s) {
    Strip strip = strip_of(job, b, group, s);
    const int64_t heads = shape.heads / shape.groups;
    if (!strip.row) begin_head(job, of);
    if (strip.from >= strip.end && !tile.from)
      fill_zero(job.dquery, shape.query_type, strip.offset(shape, shape.width), strip.count, shape.width, shape.heads * shape.width);
    if (strip.from >= strip.end || !sees_tile(strip)) add_dbias(job, tile, strip, nullptr, tile.end, tile.end);
    else if (strip.registers() == 2) gradients_strip<2>(job, tile, of, strip, first_turn + s);
    else gradients_strip<1>(job, tile, of, strip, first_turn + s);
    if (strip.row + strip.count == shape.queries) finish_head(job, of, tile, strip, task * heads + strip.h % heads);
  }
  const int64_t offset = (b * shape.keys + tile.from) * shape.groups + group;
  put(of.dkeys, tile.line, number, shape.width, nullptr, job.dkey, shape.key_type, offset * shape.width, shape.groups * shape.width);
  put(of.dvalues, tile.value_line, number, shape.value_width, nullptr, job.dvalue, shape.value_type, offset * shape.value_width,
      shape.groups * shape.value_width);
}
