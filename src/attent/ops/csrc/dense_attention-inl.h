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
  const int64_t from = strip.from > tile.from ? strip.from : tile.from, end = strip.end < tile.end ? strip.end : tile.end;
  if (from >= end) return;
  const int64_t skipped = from - tile.from, number = end - from;
  const float *keys = tile.keys + skipped * tile.line, *values = tile.values + skipped * tile.value_line;
  blocks<N, true, false>(keys, tile.line, running.transposed, STRIP, scores, STRIP, number, shape.width);
  exponentials<N>(job, running, from, end, scores, tile.value_line);
  if (running.is_empty)
    product<false, false>(scores, STRIP, values, tile.value_line, shape.value_width, running.context, strip.count, number);
  else
    product<false, true>(scores, STRIP, values, tile.value_line, shape.value_width, running.context, strip.count, number);
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
    tile.from = from > begin ? from : begin, tile.end = end < begin + TILE ? end : begin + TILE;
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

// The buffers of the gradients of a tile of keys.
struct Gradients {
  float *dkeys, *dvalues, *queries, *transposed, *outputs, *transposed_gradient, *contexts, *dqueries, *scores, *dscores, *dropped;
};

static Gradients gradients_of(const Tile& tile, float* scratch) {
  const auto take = [&scratch](int64_t numbers) { return (scratch += numbers) - numbers; };
  Gradients of{};
  of.dkeys = take(TILE * tile.line), of.dvalues = take(TILE * tile.value_line);
  of.queries = take(STRIP * tile.line), of.transposed = take(STRIP * tile.line), of.dqueries = take(STRIP * tile.line);
  of.outputs = take(STRIP * tile.value_line), of.transposed_gradient = take(STRIP * tile.value_line);
  of.contexts = take(STRIP * tile.value_line);
  of.scores = take(TILE * STRIP), of.dscores = take(TILE * STRIP), of.dropped = take(TILE * STRIP);
  return of;
}

// The product of each row of two lines, summed: what the gradients of a row's scores have in common.
template <int N>
static inline void row_products(const float* left, const float* right, int64_t line, int64_t width, Vector (&sums)[N]) {
  float rows[LANES * LANES], columns[LANES * LANES];
  for (int n = 0; n < N; ++n) {
    for (int64_t r = 0; r < LANES; ++r) {
      Vector sum{};
      const int64_t row = (n * LANES + r) * line;
      for (int64_t c = 0; c < width; c += LANES) sum += load(left + row + c) * load(right + row + c);
      store(rows + r * LANES, sum);
    }
    transpose(rows, LANES, columns, LANES);
    sums[n] = Vector{};
    for (int64_t r = 0; r < LANES; ++r) sums[n] += load(columns + r * LANES);
  }
}

// Turn products into weights, and `dscores` from the gradients of the dropped weights into those of the scores; `dropped` receives the
// weights after dropout.
template <int N>
static inline void score_gradients(const Problem& job, const Strip& strip, int64_t from, int64_t end, const Vector (&mean)[N],
                                   const float* products, float* dscores, float* dropped) {
  const Shape& shape = job.shape;
  const float* statistics = job.statistics + (strip.b * shape.heads + strip.h) * shape.queries + strip.row;
  Vector maxima[N], inverses[N];
  for (int n = 0; n < N; ++n) {
    maxima[n] = load_some(statistics + n * LANES, strip.count - n * LANES);
    inverses[n] = load_some(statistics + shape.batch * shape.heads * shape.queries + n * LANES, strip.count - n * LANES);
  }
  for (int64_t j = from; j < end; ++j)
    for (int n = 0; n < N; ++n) {
      const int64_t offset = (j - from) * STRIP + n * LANES;
      const Vector weight = exponential_or_zero(score_of(job, strip, j, n, products + offset) - maxima[n]) * inverses[n];
      const Vector dropped_weight = job.threshold ? weight * dropout_factor(job, strip, j, n) : weight;
      store(dropped + offset, dropped_weight);
      store(dscores + offset, (dropped_weight * load(dscores + offset) - weight * mean[n]) * job.scale);
    }
}

// Add a tile's part of the gradients of a strip's queries, tile after tile: the last one writes them.
static void add_dqueries(const Problem& job, const Strip& strip, int64_t tile, int64_t turn, const float* from, int64_t line) {
  const Shape& shape = job.shape;
  const int64_t offset = strip.offset(shape, shape.width), stride = shape.heads * shape.width;
  const int64_t first = strip.from / TILE, last = (strip.end - 1) / TILE;
  if (first == last) {
    put(from, line, strip.count, shape.width, nullptr, job.dquery, shape.is_query_half, offset, stride);
    return;
  }
  // the thread that has the tile before began with it earlier, and waits for none of the later ones
  while (job.turns[turn].load(std::memory_order_acquire) != tile - first) std::this_thread::yield();
  for (int64_t i = 0; i < strip.count; ++i)
    for (int64_t c = 0; c < shape.width; c += LANES) {
      float* sums = job.dquery_sums + offset + i * stride + c;
      const Vector own = load(from + i * line + c), sum = tile == first ? own : load_some(sums, shape.width - c) + own;
      if (tile == last) put(job.dquery, shape.is_query_half, offset + i * stride + c, shape.width - c, sum);
      else store_some(sums, shape.width - c, sum);
    }
  job.turns[turn].store(static_cast<int32_t>(tile - first + 1), std::memory_order_release);
}

template <int N>
static void gradients_strip(const Problem& job, const Tile& tile, const Gradients& of, Strip& strip, int64_t turn) {
  const Shape& shape = job.shape;
  const int64_t from = strip.from > tile.from ? strip.from : tile.from, end = strip.end < tile.end ? strip.end : tile.end;
  const int64_t skipped = from - tile.from, number = end - from, width = shape.width, value_width = shape.value_width;
  const float *keys = tile.keys + skipped * tile.line, *values = tile.values + skipped * tile.value_line;
  set_rows(job, strip);
  load_transposed(job.query, shape.is_query_half, shape.query.to(strip.b, strip.h, strip.row), shape.query.row, strip, width, of.queries,
                  tile.line, of.transposed);
  blocks<N, true, false>(keys, tile.line, of.transposed, STRIP, of.scores, STRIP, number, width);
  load_transposed(job.gradient, shape.is_context_half, shape.gradient.to(strip.b, strip.h, strip.row), shape.gradient.row, strip,
                  value_width, of.outputs, tile.value_line, of.transposed_gradient);
  blocks<N, true, false>(values, tile.value_line, of.transposed_gradient, STRIP, of.dscores, STRIP, number, value_width);
  gather(job.context, shape.is_context_half, strip.offset(shape, value_width), shape.heads * value_width, strip.count, value_width,
         nullptr, of.contexts, tile.value_line);
  Vector mean[N];
  row_products<N>(of.outputs, of.contexts, tile.value_line, value_width, mean);
  score_gradients<N>(job, strip, from, end, mean, of.scores, of.dscores, of.dropped);
  product<true, true>(of.dropped, STRIP, of.outputs, tile.value_line, value_width, of.dvalues + skipped * tile.value_line, number,
                      strip.count);
  product<true, true>(of.dscores, STRIP, of.queries, tile.line, width, of.dkeys + skipped * tile.line, number, strip.count);
  product<false, false>(of.dscores, STRIP, keys, tile.line, width, of.dqueries, strip.count, number);
  add_dqueries(job, strip, tile.from / TILE, turn, of.dqueries, tile.line);
}

// One tile of the keys of one sequence's group of heads. Neighbouring tasks are other groups: they do not wait for each other.
static void gradients(const Problem& job, int64_t task, float* scratch) {
  const Shape& shape = job.shape;
  const int64_t groups = shape.batch * shape.groups, b = task % groups / shape.groups, group = task % shape.groups;
  const int64_t strips = strips_of(shape, STRIP) * (shape.heads / shape.groups), first_turn = task % groups * strips;
  Tile tile = tile_of(shape, scratch);
  const Gradients of = gradients_of(tile, scratch);
  tile.from = task / groups * TILE, tile.end = shape.keys < tile.from + TILE ? shape.keys : tile.from + TILE;
  const int64_t number = tile.end - tile.from;
  const auto sees_tile = [&tile](const Strip& strip) { return strip.from < tile.end && strip.end > tile.from; };
  memset(tile.counts, 0, 4 * (TILE + 1));
  for (int64_t s = 0; (job.begin || job.bias) && s < strips; ++s) {
    const Strip strip = strip_of(job, b, group, s);
    if (strip.from < strip.end && sees_tile(strip)) count_queries(job, strip, tile.from, tile.end, tile.counts);
    else if (strip.from >= strip.end && !tile.from)
      fill_zero(job.dquery, shape.is_query_half, strip.offset(shape, shape.width), strip.count, shape.width, shape.heads * shape.width);
  }
  load_tile(job, b, group, tile);
  memset(of.dkeys, 0, 4 * number * tile.line);
  memset(of.dvalues, 0, 4 * number * tile.value_line);
  for (int64_t s = 0; s < strips; ++s) {
    Strip strip = strip_of(job, b, group, s);
    if (strip.from >= strip.end || !sees_tile(strip)) continue;
    if (strip.registers() == 2) gradients_strip<2>(job, tile, of, strip, first_turn + s);
    else gradients_strip<1>(job, tile, of, strip, first_turn + s);
  }
  const int64_t offset = (b * shape.keys + tile.from) * shape.groups + group;
  put(of.dkeys, tile.line, number, shape.width, nullptr, job.dkey, shape.is_key_half, offset * shape.width, shape.groups * shape.width);
  put(of.dvalues, tile.value_line, number, shape.value_width, nullptr, job.dvalue, shape.is_value_half, offset * shape.value_width,
      shape.groups * shape.value_width);
}
