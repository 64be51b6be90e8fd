// The gradients of the soft cap and of the biases. Included by dense_gradients-inl.h.
//
// Sequences and heads that share a number of a bias add to it in their order, so that the number of threads changes no bit.

// The turn of a head in adding to the gradient of the bias's rows from `row` on.
struct Turn {
  std::atomic<int32_t>& count;
  int64_t order;
};

static inline Turn bias_turn(const Problem& job, const Tile& tile, const Strip& strip, int64_t row) {
  const Shape& shape = job.shape;
  const int64_t b = shape.dbias.sequence ? strip.b : 0, h = shape.dbias.head ? strip.h : 0, strips = strips_of(shape, STRIP);
  const int64_t index = ((b * shape.heads + h) * strips + row / STRIP) * tiles_of(shape) + tile.from / TILE;
  const int64_t sequences = shape.dbias.sequence ? 0 : strip.b;
  return {job.bias_turns[index], shape.dbias.head ? sequences : sequences * shape.heads + strip.h};
}

// Write the gradient of a bias of pairs, or add to it: `dscores` of keys [from, end), and zero for the other keys of the tile.
static void add_dbias(const Problem& job, const Tile& tile, const Strip& strip, const float* dscores, int64_t from, int64_t end) {
  const Shape& shape = job.shape;
  if (!job.dbias || !shape.dbias.row) return;
  const Turn turn = bias_turn(job, tile, strip, strip.row);
  float* dbias = job.dbias + shape.dbias.to(strip.b, strip.h, strip.row);
  float lines[LANES * LANES];
  wait_for(turn.count, turn.order);
  for (int64_t i = 0; !turn.order && i < strip.count; ++i) {
    memset(dbias + i * shape.dbias.row + tile.from, 0, 4 * (from - tile.from));
    memset(dbias + i * shape.dbias.row + end, 0, 4 * (tile.end - end));
  }
  for (int64_t j = from; j < end; j += LANES)
    for (int64_t first = 0; first < strip.count; first += LANES) {
      transpose(dscores + (j - from) * STRIP + first, STRIP, lines, LANES);
      for (int64_t r = 0; r < LANES && first + r < strip.count; ++r) {
        float* to = dbias + (first + r) * shape.dbias.row + j;
        const Vector own = load(lines + r * LANES);
        store_some(to, end - j, turn.order ? load_some(to, end - j) + own : own);
      }
    }
  pass_on(turn.count);
}

// Add up the gradients of so many keys over `count` queries, which share the bias.
static inline void sum_queries(const float* dscores, int64_t number, int64_t count, float* sums) {
  for (int64_t j = 0; j < number; ++j) {
    float sum = 0.0f;
    for (int64_t i = 0; i < count; ++i) sum += dscores[j * STRIP + i];
    sums[j] += sum;
  }
}

// Add up the gradients of so many keys along the diagonals of (key, query); `sums` begins with that of the last key and the first query.
static inline void sum_diagonals(const float* dscores, int64_t number, int64_t count, float* sums) {
  for (int64_t offset = 1 - number; offset < count; ++offset) {
    float sum = 0.0f;
    for (int64_t i = offset > 0 ? offset : 0; i < count && i < number + offset; ++i) sum += dscores[(i - offset) * STRIP + i];
    sums[offset + number - 1] += sum;
  }
}

// Add the gradients of the scores of keys [from, end) to those of the biases, and turn them into those of products.
template <int N>
static inline void term_gradients(const Problem& job, const Tile& tile, const Gradients& of, const Strip& strip, int64_t from, int64_t end) {
  add_dbias(job, tile, strip, of.dscores, from, end);
  if (job.dbias && !job.shape.dbias.row) sum_queries(of.dscores, end - from, strip.count, of.bias_sums + from - tile.from);
  if (job.doffset_bias) sum_diagonals(of.dscores, end - from, strip.count, of.offset_sums + strip.row + tile.end - end);
  for (int64_t j = 0; j < end - from; ++j)
    for (int n = 0; n < N; ++n) {
      const int64_t offset = j * STRIP + n * LANES;
      const Vector gradient = load(of.dscores + offset) * job.scale;
      store(of.dscores + offset, job.soft_cap != 0.0f ? gradient * load(of.slopes + offset) : gradient);
    }
}

static void begin_head(const Problem& job, const Gradients& of) {
  if (job.dbias && !job.shape.dbias.row) memset(of.bias_sums, 0, 4 * TILE);
  if (job.doffset_bias) memset(of.offset_sums, 0, 4 * (job.shape.queries + TILE));
}

// Add the sums of a head; `index` counts the heads of all tasks in their order.
static void finish_head(const Problem& job, const Gradients& of, const Tile& tile, const Strip& strip, int64_t index) {
  const Shape& shape = job.shape;
  const int64_t number = tile.end - tile.from;
  if (job.dbias && !shape.dbias.row) {
    const Turn turn = bias_turn(job, tile, strip, 0);
    float* dbias = job.dbias + shape.dbias.to(strip.b, strip.h, 0) + tile.from;
    wait_for(turn.count, turn.order);
    for (int64_t j = 0; j < number; ++j) dbias[j] = of.bias_sums[j] + (turn.order ? dbias[j] : 0.0f);
    pass_on(turn.count);
  }
  if (job.doffset_bias) {
    std::atomic<int32_t>& turn = job.offset_turns[shape.offset_head ? strip.h : 0];
    float* sums = job.doffset_bias + strip.h * shape.offset_head + shape.keys - tile.end;
    wait_for(turn, shape.offset_head ? tile.from / TILE * shape.batch + strip.b : index);
    for (int64_t k = 0; k < shape.queries + number - 1; ++k) sums[k] += of.offset_sums[k];
    pass_on(turn);
  }
}
