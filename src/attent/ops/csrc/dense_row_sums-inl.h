// What the gradients of a row's scores have in common, Σ_j w_ij · dw_ij. Included by dense_gradients-inl.h.

// Turn products into weights, and the gradients of the weights after dropout into those before; add to the sums. With dropout, `dropped`
// receives the weights after it.
template <int N, bool IS_PLAIN>
static inline void to_weights(const Problem& job, const Strip& strip, int64_t from, int64_t end, float* products, float* dweights,
                              float* dropped, float scale, Vector (&sums)[N]) {
  const Shape& shape = job.shape;
  const float* statistics = job.statistics + (strip.b * shape.heads + strip.h) * shape.queries + strip.row;
  for (int n = 0; n < N; ++n) {
    const Vector maximum = load_some(statistics + n * LANES, strip.count - n * LANES);
    const Vector inverse = load_some(statistics + shape.batch * shape.heads * shape.queries + n * LANES, strip.count - n * LANES);
    Vector sum{};
    for (int64_t j = from; j < end; ++j) {
      const int64_t offset = (j - from) * STRIP + n * LANES;
      const Vector weight = exponential_or_zero(score_of<IS_PLAIN>(strip, j, n, products + offset, scale) - maximum) * inverse;
      Vector dweight = load(dweights + offset);
      store(products + offset, weight);
      if (job.threshold) {
        const Vector factor = dropout_factor(job, strip, j, n);
        dweight *= factor;
        store(dropped + offset, weight * factor);
        store(dweights + offset, dweight);
      }
      sum += weight * dweight;
      // sums of sums lose fewer bits than one long sum
      if (j % BLOCK == BLOCK - 1) sums[n] += sum, sum = Vector{};
    }
    sums[n] += sum;
  }
}

// Compute the weights of a strip's queries for keys [from, end) of a tile, those after dropout and the gradients, and add to the sums.
template <int N>
static void strip_weights(const Problem& job, const Tile& tile, const Gradients& of, const Strip& strip, int64_t from, int64_t end,
                          Vector (&sums)[N]) {
  const Shape& shape = job.shape;
  const int64_t width = shape.width, value_width = shape.value_width, skipped = from - tile.from, number = end - from;
  load_transposed(job.query, shape.query_type, shape.query.to(strip.b, strip.h, strip.row), shape.query.row, strip, width, job.scale,
                  of.queries, tile.line, of.transposed);
  blocks<N, true, false>(tile.keys + skipped * tile.line, tile.line, of.transposed, STRIP, of.scores, STRIP, number,
                         (width + PACK - 1) / PACK);
  load_transposed(job.gradient, shape.context_type, shape.gradient.to(strip.b, strip.h, strip.row), shape.gradient.row, strip,
                  value_width, 1.0f, of.outputs, tile.value_line, of.transposed_gradient);
  blocks<N, true, false>(tile.values + skipped * tile.value_line, tile.value_line, of.transposed_gradient, STRIP, of.dscores, STRIP, number,
                         (value_width + PACK - 1) / PACK);
  const float scale = add_terms<N>(job, strip, from, end, of.scores, of.slopes);
  if (sees_all(job, strip, from, end)) to_weights<N, true>(job, strip, from, end, of.scores, of.dscores, of.dropped, scale, sums);
  else to_weights<N, false>(job, strip, from, end, of.scores, of.dscores, of.dropped, scale, sums);
}

// Return whether all keys of a strip lie in one tile, whose weights give the sums.
static inline bool has_one_tile(const Strip& strip) { return strip.from / TILE == (strip.end - 1) / TILE; }

// The place of a strip's sums.
static inline float* row_sums_of(const Problem& job, const Strip& strip) {
  return job.row_sums + (strip.b * job.shape.heads + strip.h) * job.shape.queries + strip.row;
}

// Sum a strip's weights times their gradients over all its tiles.
template <int N>
static void sum_over_tiles(const Problem& job, const Strip& strip, int64_t group, Tile& tile, const Gradients& of, float* to) {
  Vector sums[N] = {};
  for (int64_t begin = strip.from / TILE * TILE; begin < strip.end; begin += TILE) {
    tile.from = strip.from > begin ? strip.from / PACK * PACK : begin, tile.end = strip.end < begin + TILE ? strip.end : begin + TILE;
    load_tile(job, strip.b, group, tile, of.key_pairs, [&] { count_queries(job, strip, tile.from, tile.end, tile.counts); });
    strip_weights<N>(job, tile, of, strip, tile.from, tile.end, sums);
  }
  for (int n = 0; n < N; ++n) store(to + n * LANES, sums[n]);
}

// Compute the sums of a strip of several tiles before these: from the context, Σ_c o_ic · do_ic, but from the weights in rows of large
// scores, where large keys would multiply the rounding of the context.
static void row_sums(const Problem& job, int64_t task, float* scratch) {
  const Shape& shape = job.shape;
  const int64_t strips = strips_of(shape, STRIP) * (shape.heads / shape.groups), b = task / strips / shape.groups;
  const int64_t group = task / strips % shape.groups, width = shape.value_width;
  Strip strip = make_strip(job, b, group, task % strips);
  if (job.strip_ranges) job.strip_ranges[2 * task] = strip.from, job.strip_ranges[2 * task + 1] = strip.end;
  if (strip.from >= strip.end || has_one_tile(strip)) return;
  Tile tile = tile_of(shape, scratch);
  const Gradients of = gradients_of(shape, tile, scratch);
  gather(job.context, shape.context_type, strip.offset(shape, width), shape.heads * width, strip.count, width, nullptr, of.contexts,
         tile.value_line);
  gather(job.gradient, shape.context_type, shape.gradient.to(b, strip.h, strip.row), shape.gradient.row, strip.count, width, nullptr,
         of.outputs, tile.value_line);
  float *sums = row_sums_of(job, strip), of_weights[STRIP];
  const float* maxima = job.statistics + (sums - job.row_sums);
  bool has_large = false;
  for (int64_t i = 0; i < strip.count; ++i) {
    Vector products{};
    const float *output = of.outputs + i * tile.value_line, *context = of.contexts + i * tile.value_line;
    for (int64_t c = 0; c < width; c += LANES) products += load(output + c) * load(context + c);
    sums[i] = 0.0f;
    for (int lane = 0; lane < LANES; ++lane) sums[i] += products[lane];
    has_large |= std::fabs(maxima[i]) > LARGE_SCORE;
  }
  if (!has_large) return;
  set_rows(job, strip);
  if (strip.registers() == 2) sum_over_tiles<2>(job, strip, group, tile, of, of_weights);
  else sum_over_tiles<1>(job, strip, group, tile, of, of_weights);
  for (int64_t i = 0; i < strip.count; ++i)
    if (std::fabs(maxima[i]) > LARGE_SCORE) sums[i] = of_weights[i];
}
