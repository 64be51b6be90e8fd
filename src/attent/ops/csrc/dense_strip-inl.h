// Strips of queries and tiles of keys. Included after dense_product-inl.h, inside the namespace of one target.

// Copy the caller's rows to lines, with zeros for keys that no query attends to.
template <typename T>
static void gather(const T* from, int64_t step, int64_t rows, int64_t width, const int32_t* counts, float* to, int64_t line) {
  for (int64_t j = 0; j < rows; ++j) {
    if (counts && !counts[j]) memset(to + j * line, 0, 4 * line);
    else read_row(from + j * step, width, to + j * line);
  }
}

static inline void gather(const void* from, int64_t type, int64_t offset, int64_t step, int64_t rows, int64_t width,
                          const int32_t* counts, float* to, int64_t line) {
  if (type == FLOAT32) gather(static_cast<const float*>(from) + offset, step, rows, width, counts, to, line);
  else if (type == BFLOAT16) gather(static_cast<const uint16_t*>(from) + offset, step, rows, width, counts, to, line);
  else gather(static_cast<const Float16*>(from) + offset, step, rows, width, counts, to, line);
}

// Write lines to rows `step` apart, times the factors.
template <typename T>
static void put(const float* from, int64_t line, int64_t rows, int64_t width, const float* factors, T* to, int64_t step) {
  for (int64_t i = 0; i < rows; ++i) write_row(from + i * line, factors ? factors[i] : 1.0f, width, to + i * step);
}

static inline void put(const float* from, int64_t line, int64_t rows, int64_t width, const float* factors, void* to, int64_t type,
                       int64_t offset, int64_t step) {
  if (type == FLOAT32) put(from, line, rows, width, factors, static_cast<float*>(to) + offset, step);
  else if (type == BFLOAT16) put(from, line, rows, width, factors, static_cast<uint16_t*>(to) + offset, step);
  else put(from, line, rows, width, factors, static_cast<Float16*>(to) + offset, step);
}

static void fill_zero(void* to, int64_t type, int64_t offset, int64_t rows, int64_t width, int64_t step) {
  const int64_t size = type == FLOAT32 ? 4 : 2;
  for (int64_t i = 0; width && i < rows; ++i) memset(static_cast<char*>(to) + size * (offset + i * step), 0, size * width);
}

// The hash of hash.h, for a register.
static inline Words lowbias32_vector(Words bits) {
  bits = (bits ^ (bits >> 16)) * 0x7FEB352Du;
  bits = (bits ^ (bits >> 15)) * 0x846CA68Bu;
  return bits ^ (bits >> 16);
}

// A strip of queries of one head: the range of keys of any of them, and the first key and number of keys of each.
struct Strip {
  int64_t b, h, row, count, from, end;
  Words begin[2], lengths[2], row_hash[2];

  int64_t registers() const { return count > LANES ? 2 : 1; }
  // The offset of the strip's first row in a contiguous (B, Tq, H, width).
  int64_t offset(const Shape& shape, int64_t width) const { return ((b * shape.queries + row) * shape.heads + h) * width; }
};

// The bias of a strip's row i, whose keys are shape.bias_key apart.
static inline const float* bias_row(const Problem& job, const Strip& strip, int64_t i) {
  return job.bias + job.shape.bias.to(strip.b, strip.h, strip.row + i);
}

// The bias by offset of a strip's first row and key j; the next row's stands after it, the next key's before it.
static inline const float* offset_bias(const Problem& job, const Strip& strip, int64_t j) {
  return job.offset_bias + strip.h * job.shape.offset_head + strip.row + job.shape.keys - 1 - j;
}

// Return whether a strip's row i sees key j by the biases.
static inline bool is_visible(const Problem& job, const Strip& strip, int64_t i, int64_t j) {
  if (job.bias && bias_row(job, strip, i)[j * job.shape.bias_key] == -INFINITY) return false;
  return !job.shape.offsets_hide || offset_bias(job, strip, j)[i] != -INFINITY;
}

// Mark in `visible` the keys [from, end) that a strip's row i sees by the biases.
static inline void mark_visible(const Problem& job, const Strip& strip, int64_t i, int64_t from, int64_t end, int32_t* visible) {
  if (job.bias && job.shape.bias_key == 1 && !job.shape.offsets_hide) {
    const float* row = bias_row(job, strip, i) + from;
    for (int64_t j = 0; j < end - from; ++j) visible[j] |= row[j] != -INFINITY;
  } else {
    for (int64_t j = from; j < end; ++j) visible[j - from] |= is_visible(job, strip, i, j);
  }
}

// Return whether a strip's biases hide all of the keys [from, end), 64 at most.
static inline bool is_hidden(const Problem& job, const Strip& strip, int64_t from, int64_t end) {
  int32_t visible[64] = {}, any = 0;
  const int64_t rows = job.shape.offsets_hide || job.shape.bias.row ? strip.count : 1;
  for (int64_t i = 0; i < rows; ++i) mark_visible(job, strip, i, from, end, visible);
  for (int64_t j = 0; j < end - from; ++j) any |= visible[j];
  return !any;
}

// Leave out the keys at both ends of a strip's range that its biases hide.
static inline void trim(const Problem& job, Strip& strip) {
  for (const int64_t step : {64, 1}) {
    while (strip.end - strip.from >= step && is_hidden(job, strip, strip.end - step, strip.end)) strip.end -= step;
    while (strip.end - strip.from >= step && is_hidden(job, strip, strip.from, strip.from + step)) strip.from += step;
  }
}

// Make the strip of this index in a group of heads, as far as to its range of keys.
static inline Strip make_strip(const Problem& job, int64_t b, int64_t group, int64_t index) {
  const Shape& shape = job.shape;
  const int64_t strips = strips_of(shape, STRIP), row = index % strips * STRIP;
  Strip strip{b, group * (shape.heads / shape.groups) + index / strips, row, 0, 0, shape.keys, {}, {}, {}};
  strip.count = shape.queries - row < STRIP ? shape.queries - row : STRIP;
  if (job.begin) {
    const int64_t *begin = job.begin + shape.begin.to(b, strip.h, row), *end = job.end + shape.end.to(b, strip.h, row);
    strip.from = shape.keys, strip.end = 0;
    for (int64_t i = 0; i < strip.count; ++i) {
      const int64_t row_begin = begin[i * shape.begin.row], row_end = end[i * shape.end.row];
      if (row_begin >= row_end) continue;
      strip.from = row_begin < strip.from ? row_begin : strip.from, strip.end = row_end > strip.end ? row_end : strip.end;
    }
    strip.from = strip.from > 0 ? strip.from : 0, strip.end = strip.end < shape.keys ? strip.end : shape.keys;
  }
  if (job.has_hidden_pairs()) trim(job, strip);
  return strip;
}

// The strip of this index in a group of heads, by its range if that was noted.
static inline Strip strip_of(const Problem& job, int64_t b, int64_t group, int64_t index) {
  if (!job.strip_ranges) return make_strip(job, b, group, index);
  const Shape& shape = job.shape;
  const int64_t strips = strips_of(shape, STRIP), heads = shape.heads / shape.groups, row = index % strips * STRIP;
  const int64_t* range = job.strip_ranges + 2 * ((b * shape.groups + group) * strips * heads + index);
  return {b, group * heads + index / strips, row, shape.queries - row < STRIP ? shape.queries - row : STRIP, range[0], range[1], {}, {}, {}};
}

// Set the range of each row, and its hash.
static inline void set_rows(const Problem& job, Strip& strip) {
  const Shape& shape = job.shape;
  uint32_t begin[STRIP] = {}, lengths[STRIP], rows[STRIP];
  for (int64_t i = 0; i < STRIP; ++i) {
    lengths[i] = i < strip.count ? static_cast<uint32_t>(shape.keys) : 0;
    rows[i] = OF_ROW * static_cast<uint32_t>(strip.row + i);
  }
  for (int64_t i = 0; job.begin && i < strip.count; ++i) {
    const int64_t row_begin = job.begin[shape.begin.to(strip.b, strip.h, strip.row + i)];
    const int64_t end = job.end[shape.end.to(strip.b, strip.h, strip.row + i)], clamped_begin = row_begin > 0 ? row_begin : 0;
    begin[i] = static_cast<uint32_t>(clamped_begin), lengths[i] = clamped_begin < end ? static_cast<uint32_t>(end - clamped_begin) : 0;
  }
  memcpy(strip.begin, begin, sizeof begin), memcpy(strip.lengths, lengths, sizeof lengths), memcpy(strip.row_hash, rows, sizeof rows);
  const uint32_t head = job.seed_hash + OF_SEQUENCE * static_cast<uint32_t>(strip.b) + OF_HEAD * static_cast<uint32_t>(strip.h);
  for (Words& hash : strip.row_hash) hash = lowbias32_vector(hash + head);
}

// Count at each key where queries that see it begin, less those that end there: for each query by its range, or where a bias hides pairs
// once for the strip.
static inline void count_queries(const Problem& job, const Strip& strip, int64_t from, int64_t end, int32_t* counts) {
  const Shape& shape = job.shape;
  const bool has_hidden_pairs = job.has_hidden_pairs(), is_same = !job.begin && !shape.offsets_hide && !shape.bias.row;
  int32_t visible[TILE];
  if (has_hidden_pairs) memset(visible, 0, sizeof visible);
  for (int64_t i = 0; (job.begin || has_hidden_pairs) && i < (is_same ? 1 : strip.count); ++i) {
    const int64_t row_begin = job.begin ? job.begin[shape.begin.to(strip.b, strip.h, strip.row + i)] : 0;
    const int64_t row_end = job.begin ? job.end[shape.end.to(strip.b, strip.h, strip.row + i)] : shape.keys;
    const int64_t first = row_begin > from ? row_begin : from, last = row_end < end ? row_end : end;
    if (first >= last) continue;
    if (has_hidden_pairs) mark_visible(job, strip, i, first, last, visible + first - from);
    else ++counts[first - from], --counts[last - from];
  }
  for (int64_t j = 0; has_hidden_pairs && j < end - from; ++j) counts[j] += visible[j], counts[j + 1] -= visible[j];
}

// Return whether every query of a strip sees all keys [from, end) by its range. Pairs are not scaled before, and what a product is scaled
// to has to be rounded alike forward and backward.
static inline bool sees_all(const Problem& job, const Strip& strip, int64_t from, int64_t end) {
  bool is_visible = PACK == 1;
  for (int64_t i = 0; is_visible && job.begin && i < strip.count; ++i) {
    const int64_t begin = strip.begin[i / LANES][i % LANES], length = strip.lengths[i / LANES][i % LANES];
    is_visible = begin <= from && end <= begin + length;
  }
  return is_visible;
}

// The score of a register of queries with key j, of which none is hidden if IS_PLAIN: what `add_terms` left, which only pairs of bfloat16
// are yet to be multiplied by `scale` for. Other queries are scaled when they are loaded.
template <bool IS_PLAIN>
static inline Vector score_of(const Strip& strip, int64_t j, int n, const float* product, float scale) {
  const Vector score = PACK > 1 ? load(product) * scale : load(product);
  if (IS_PLAIN) return score;
  return static_cast<uint32_t>(j) - strip.begin[n] < strip.lengths[n] ? score : broadcast(-INFINITY);
}

// The factor of a weight: 0 if dropped.
static inline Vector dropout_factor(const Problem& job, const Strip& strip, int64_t j, int n) {
  const Words bits = lowbias32_vector(strip.row_hash[n] + lowbias32(OF_COLUMN + static_cast<uint32_t>(j)));
  return bits >= job.threshold ? broadcast(job.factor) : Vector{};
}

// Transpose the lines of a strip, (STRIP, line), to (width, STRIP), times a factor, with zeros for rows that are not there.
static void transpose_strip(const Strip& strip, float* lines, int64_t line, int64_t width, float factor, float* to) {
  const int64_t rows = strip.registers() * LANES;
  memset(lines + strip.count * line, 0, 4 * (rows - strip.count) * line);
  for (int64_t c = 0; c < width; c += LANES)
    for (int64_t r = 0; r < rows; r += LANES) transpose(lines + r * line + c, line, to + c * STRIP + r, STRIP);
  for (int64_t i = 0; factor != 1.0f && i < width * STRIP; i += LANES) store(to + i, load(to + i) * factor);
}

#ifdef PAIRS
// Copy bfloat16 rows to lines of pairs of neighbouring numbers, with zeros for keys that no query attends to.
static void gather_pairs(const uint16_t* from, int64_t step, int64_t rows, int64_t width, const int32_t* counts, float* to, int64_t line) {
  for (int64_t j = 0; j < rows; ++j) {
    memset(to + j * line, 0, 4 * line);
    if (!counts || counts[j]) memcpy(to + j * line, from + j * step, 2 * width);
  }
}

// Pair each number of a row with that of the next row, for every second row.
static void gather_row_pairs(const uint16_t* from, int64_t step, int64_t rows, int64_t width, const int32_t* counts, float* to,
                             int64_t line) {
  for (int64_t j = 0; j < rows; j += 2)
    for (int64_t c = 0; c < width; c += LANES) {
      const bool has_first = !counts || counts[j], has_second = j + 1 < rows && (!counts || counts[j + 1]);
      Words first{}, second{};
      // a bfloat16 number is the upper half of a float
      if (has_first) first = (Words)load_some(from + j * step + c, width - c) >> 16;
      if (has_second) second = (Words)load_some(from + (j + 1) * step + c, width - c);
      store(to + j / 2 * line + c, (Vector)(first | second));
    }
}

// Round the weights of each two keys to pairs, in place.
static inline void pack_weights(float* weights, int64_t number) {
  for (int64_t j = 0; j < number; j += 2)
    for (int64_t n = 0; n < STRIP; n += LANES) {
      const Vector first = load(weights + j * STRIP + n), second = j + 1 < number ? load(weights + (j + 1) * STRIP + n) : Vector{};
      const Words halves = (Words)_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)first));
      const Words others = (Words)_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)second));
      store(weights + j / 2 * STRIP + n, (Vector)(halves | others << 16));
    }
}
// Round rows of STRIP weights to pairs of neighbours, (number, STRIP / 2).
static inline void pack_rows(const float* weights, int64_t number, float* to) {
  for (int64_t i = 0; i < number * STRIP; i += LANES) {
    const __m256i numbers = (__m256i)_mm512_cvtneps_pbh((__m512)load(weights + i));
    memcpy(to + i / 2, &numbers, sizeof numbers);
  }
}
#endif

// Load queries, or their gradients, as lines (STRIP, line) and transposed (line, STRIP), times the factor where they are no pairs.
static void load_transposed(const void* from, int64_t type, int64_t offset, int64_t step, const Strip& strip, int64_t width, float factor,
                            float* lines, int64_t line, float* to) {
#ifdef PAIRS
  gather_pairs(static_cast<const uint16_t*>(from) + offset, step, strip.count, width, nullptr, lines, line);
  factor = 1.0f;
#else
  gather(from, type, offset, step, strip.count, width, nullptr, lines, line);
#endif
  transpose_strip(strip, lines, line, (width + PACK - 1) / PACK, factor, to);
}

// The keys and values of a tile that lie in [from, end).
struct Tile {
  int64_t line, value_line, from, end;
  float *keys, *values;
  int32_t* counts;
};

// Take memory for a tile.
static Tile tile_of(const Shape& shape, float*& scratch) {
  Tile tile{line_of(shape.width), line_of(shape.value_width), 0, 0, nullptr, nullptr, nullptr};
  tile.keys = scratch, tile.values = tile.keys + TILE * tile.line, scratch = tile.values + TILE * tile.value_line;
  tile.counts = reinterpret_cast<int32_t*>(scratch), scratch += TILE + MAX_LANES;
  return tile;
}

// Load keys and values, with zeros for those that have no count, if counts are given. `key_pairs`, if given, receives pairs of rows of
// keys; the values are then lines as the keys are, and pairs of rows otherwise.
static void load_lines(const Problem& job, int64_t b, int64_t group, Tile& tile, const int32_t* counts, [[maybe_unused]] float* key_pairs) {
  const Shape& shape = job.shape;
  const int64_t number = tile.end - tile.from, key_offset = shape.key.to(b, group, tile.from);
  const int64_t value_offset = shape.value.to(b, group, tile.from), value_width = shape.value_width;
#ifdef PAIRS
  const uint16_t* keys = static_cast<const uint16_t*>(job.key) + key_offset;
  const uint16_t* values = static_cast<const uint16_t*>(job.value) + value_offset;
  gather_pairs(keys, shape.key.row, number, shape.width, counts, tile.keys, tile.line);
  if (key_pairs) {
    gather_row_pairs(keys, shape.key.row, number, shape.width, counts, key_pairs, tile.line);
    gather_pairs(values, shape.value.row, number, value_width, counts, tile.values, tile.value_line);
  } else {
    gather_row_pairs(values, shape.value.row, number, value_width, counts, tile.values, tile.value_line);
  }
#else
  gather(job.key, shape.key_type, key_offset, shape.key.row, number, shape.width, counts, tile.keys, tile.line);
  gather(job.value, shape.value_type, value_offset, shape.value.row, number, value_width, counts, tile.values, tile.value_line);
#endif
}

// Return whether a number of a tile's lines is so large that its product with another might overflow, or is no finite one.
static bool has_large_numbers(const Shape& shape, const Tile& tile, const float* key_pairs) {
  const int64_t number = tile.end - tile.from;
  Words any{};
  const auto look = [&any](const float* lines, int64_t rows, int64_t width, int64_t line) {
    for (int64_t j = 0; j < rows; ++j)
      for (int64_t c = 0; c < width; c += LANES) {
        const Words bits = (Words)load(lines + j * line + c);
        // beyond 2^50, by the exponents
        any |= (Words)((bits >> 23 & 0xff) > 176) | (PACK > 1 ? (Words)((bits >> 7 & 0xff) > 176) : Words{});
      }
  };
  look(tile.keys, number, (shape.width + PACK - 1) / PACK, tile.line);
  if (PACK > 1 && !key_pairs) look(tile.values, (number + 1) / 2, shape.value_width, tile.value_line);
  else look(tile.values, number, (shape.value_width + PACK - 1) / PACK, tile.value_line);
  uint32_t large = 0;
  for (int lane = 0; lane < LANES; ++lane) large |= any[lane];
  return large;
}

// Load keys and values, with zeros for those that no query sees, which `count` counts. Where a bias hides pairs, that is asked only if a
// weight of zero is not enough.
template <typename Count>
static void load_tile(const Problem& job, int64_t b, int64_t group, Tile& tile, float* key_pairs, Count count) {
  if (!job.begin || job.has_hidden_pairs()) {
    load_lines(job, b, group, tile, nullptr, key_pairs);
    if (!job.has_hidden_pairs() || !has_large_numbers(job.shape, tile, key_pairs)) return;
  }
  memset(tile.counts, 0, 4 * (TILE + 1));
  count();
  for (int64_t j = 1; j < tile.end - tile.from; ++j) tile.counts[j] += tile.counts[j - 1];
  load_lines(job, b, group, tile, tile.counts, key_pairs);
}
