// The gradients of dense attention. Included by dense_attention-inl.h.

// The buffers of the gradients of a tile of keys.
struct Gradients {
  float *dkeys, *dvalues, *queries, *transposed, *outputs, *transposed_gradient, *contexts, *dqueries, *scores, *dscores, *dropped;
  // of neighbouring rows, where dot products take pairs
  float *key_pairs, *query_pairs, *output_pairs;
};

static Gradients gradients_of(const Tile& tile, float* scratch) {
  const auto take = [&scratch](int64_t numbers) { return (scratch += numbers) - numbers; };
  Gradients of{};
  of.dkeys = take(TILE * tile.line), of.dvalues = take(TILE * tile.value_line);
  of.queries = take(STRIP * tile.line), of.transposed = take(STRIP * tile.line), of.dqueries = take(STRIP * tile.line);
  of.outputs = take(STRIP * tile.value_line), of.transposed_gradient = take(STRIP * tile.value_line);
  of.contexts = take(STRIP * tile.value_line);
  of.scores = take(TILE * STRIP), of.dscores = take(TILE * STRIP), of.dropped = take(TILE * STRIP);
  of.key_pairs = take(TILE / 2 * tile.line), of.query_pairs = take(STRIP / 2 * tile.line);
  of.output_pairs = take(STRIP / 2 * tile.value_line);
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
  const int64_t first = strip.from > tile.from ? strip.from : tile.from, end = strip.end < tile.end ? strip.end : tile.end;
  const int64_t from = first / PACK * PACK, skipped = from - tile.from, number = end - from;
  const int64_t width = shape.width, value_width = shape.value_width, query_offset = shape.query.to(strip.b, strip.h, strip.row);
  const int64_t output_offset = shape.gradient.to(strip.b, strip.h, strip.row), context_offset = strip.offset(shape, value_width);
  const float *keys = tile.keys + skipped * tile.line, *values = tile.values + skipped * tile.value_line;
  float *dkeys = of.dkeys + skipped * tile.line, *dvalues = of.dvalues + skipped * tile.value_line;
  set_rows(job, strip);
  load_transposed(job.query, shape.is_query_half, query_offset, shape.query.row, strip, width, of.queries, tile.line, of.transposed);
  blocks<N, true, false>(keys, tile.line, of.transposed, STRIP, of.scores, STRIP, number, (width + PACK - 1) / PACK);
  load_transposed(job.gradient, shape.is_context_half, output_offset, shape.gradient.row, strip, value_width, of.outputs, tile.value_line,
                  of.transposed_gradient);
  blocks<N, true, false>(values, tile.value_line, of.transposed_gradient, STRIP, of.dscores, STRIP, number,
                         (value_width + PACK - 1) / PACK);
#ifdef PAIRS
  gather(job.gradient, true, output_offset, shape.gradient.row, strip.count, value_width, nullptr, of.outputs, tile.value_line);
#endif
  gather(job.context, shape.is_context_half, context_offset, shape.heads * value_width, strip.count, value_width, nullptr, of.contexts,
         tile.value_line);
  memset(of.contexts + strip.count * tile.value_line, 0, 4 * (STRIP - strip.count) * tile.value_line);
  Vector mean[N];
  row_products<N>(of.outputs, of.contexts, tile.value_line, value_width, mean);
  score_gradients<N>(job, strip, from, end, mean, of.scores, of.dscores, of.dropped);
#ifdef PAIRS
  const uint16_t* query = static_cast<const uint16_t*>(job.query) + query_offset;
  const uint16_t* output = static_cast<const uint16_t*>(job.gradient) + output_offset;
  gather_row_pairs(query, shape.query.row, strip.count, width, nullptr, of.query_pairs, tile.line);
  gather_row_pairs(output, shape.gradient.row, strip.count, value_width, nullptr, of.output_pairs, tile.value_line);
  const int64_t rows = (strip.count + 1) / 2;
  pack_rows(of.dropped, number, of.scores);
  product<true, true>(of.scores, STRIP / 2, of.output_pairs, tile.value_line, value_width, dvalues, number, rows);
  pack_rows(of.dscores, number, of.scores);
  product<true, true>(of.scores, STRIP / 2, of.query_pairs, tile.line, width, dkeys, number, rows);
  pack_weights(of.dscores, number);
  product<false, false>(of.dscores, STRIP, of.key_pairs + skipped / 2 * tile.line, tile.line, width, of.dqueries, strip.count,
                        (number + 1) / 2);
#else
  product<true, true>(of.dropped, STRIP, of.outputs, tile.value_line, value_width, dvalues, number, strip.count);
  product<true, true>(of.dscores, STRIP, of.queries, tile.line, width, dkeys, number, strip.count);
  product<false, false>(of.dscores, STRIP, keys, tile.line, width, of.dqueries, strip.count, number);
#endif
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
  load_tile(job, b, group, tile, of.key_pairs);
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
