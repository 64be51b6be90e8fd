// Strips of queries and tiles of keys. Included after dense_product-inl.h, inside the namespace of one target.

// Copy the caller's rows to lines, with zeros for keys that no query attends to.
template <typename T>
static void gather(const T* from, int64_t step, int64_t rows, int64_t width, const int32_t* counts, float* to, int64_t line) {
  for (int64_t j = 0; j < rows; ++j) {
    if (counts && !counts[j]) memset(to + j * line, 0, 4 * line);
    else read_row(from + j * step, width, to + j * line);
  }
}

static inline void gather(const void* from, bool is_half, int64_t offset, int64_t step, int64_t rows, int64_t width,
                          const int32_t* counts, float* to, int64_t line) {
  if (is_half) gather(static_cast<const uint16_t*>(from) + offset, step, rows, width, counts, to, line);
  else gather(static_cast<const float*>(from) + offset, step, rows, width, counts, to, line);
}

// Write lines to rows `step` apart, times the factors.
template <typename T>
static void put(const float* from, int64_t line, int64_t rows, int64_t width, const float* factors, T* to, int64_t step) {
  for (int64_t i = 0; i < rows; ++i) write_row(from + i * line, factors ? factors[i] : 1.0f, width, to + i * step);
}

static inline void put(const float* from, int64_t line, int64_t rows, int64_t width, const float* factors, void* to, bool is_half,
                       int64_t offset, int64_t step) {
  if (is_half) put(from, line, rows, width, factors, static_cast<uint16_t*>(to) + offset, step);
  else put(from, line, rows, width, factors, static_cast<float*>(to) + offset, step);
}

static void fill_zero(void* to, bool is_half, int64_t offset, int64_t rows, int64_t width, int64_t step) {
  const int64_t size = is_half ? 2 : 4;
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

// Return whether any query of a strip sees key j by the bias.
static inline bool is_visible(const Problem& job, const Strip& strip, int64_t j) {
  const float* row = job.bias + job.shape.bias.to(strip.b, strip.h, j);
  if (!job.shape.has_query_bias) return *row != -INFINITY;
  bool visible = false;
  for (int64_t i = strip.row; i < strip.row + strip.count; ++i) visible |= row[i] != -INFINITY;
  return visible;
}

// The strip of this index in a group of heads, as far as to its range of keys.
static inline Strip strip_of(const Problem& job, int64_t b, int64_t group, int64_t index) {
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
  if (job.bias) {
    while (strip.end > strip.from && !is_visible(job, strip, strip.end - 1)) --strip.end;
    while (strip.from < strip.end && !is_visible(job, strip, strip.from)) ++strip.from;
  }
  return strip;
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

// Count at each key where a range of queries begins, less those that end there.
static inline void count_queries(const Problem& job, const Strip& strip, int64_t from, int64_t end, int32_t* counts) {
  const Shape& shape = job.shape;
  for (int64_t i = 0; job.begin && i < strip.count; ++i) {
    const int64_t row_begin = job.begin[shape.begin.to(strip.b, strip.h, strip.row + i)];
    const int64_t row_end = job.end[shape.end.to(strip.b, strip.h, strip.row + i)];
    const int64_t first = row_begin > from ? row_begin : from, last = row_end < end ? row_end : end;
    if (first < last) ++counts[first - from], --counts[last - from];
  }
  for (int64_t j = from; job.bias && j < end; ++j)
    if (is_visible(job, strip, j)) ++counts[j - from], --counts[j + 1 - from];
}

// The bias of a register of queries with key j.
static inline Vector bias_of(const Problem& job, const Strip& strip, int64_t j, int n) {
  const float* row = job.bias + job.shape.bias.to(strip.b, strip.h, j);
  if (!job.shape.has_query_bias) return broadcast(*row);
  return load_some(row + strip.row + n * LANES, strip.count - n * LANES);
}

// The score of a register of queries with key j, from the product of features.
static inline Vector score_of(const Problem& job, const Strip& strip, int64_t j, int n, const float* product) {
  Vector score = load(product) * job.scale;
  if (job.bias) score += bias_of(job, strip, j, n);
  return static_cast<uint32_t>(j) - strip.begin[n] < strip.lengths[n] ? score : broadcast(-INFINITY);
}

// The factor of a weight: 0 if dropped.
static inline Vector dropout_factor(const Problem& job, const Strip& strip, int64_t j, int n) {
  const Words bits = lowbias32_vector(strip.row_hash[n] + lowbias32(OF_COLUMN + static_cast<uint32_t>(j)));
  return bits >= job.threshold ? broadcast(job.factor) : Vector{};
}

// Transpose the lines of a strip, (STRIP, line), to (width, STRIP), with zeros for rows that are not there.
static void transpose_strip(const Strip& strip, float* lines, int64_t line, int64_t width, float* to) {
  const int64_t rows = strip.registers() * LANES;
  memset(lines + strip.count * line, 0, 4 * (rows - strip.count) * line);
  for (int64_t c = 0; c < width; c += LANES)
    for (int64_t r = 0; r < rows; r += LANES) transpose(lines + r * line + c, line, to + c * STRIP + r, STRIP);
}

#ifdef PAIRS
// Numbers that a 32-bit word holds.
constexpr int64_t PACK = 2;

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
#else
constexpr int64_t PACK = 1;
#endif

// Load queries, or their gradients, as lines (STRIP, line) and transposed (line, STRIP).
static void load_transposed(const void* from, bool is_half, int64_t offset, int64_t step, const Strip& strip, int64_t width, float* lines,
                            int64_t line, float* to) {
#ifdef PAIRS
  gather_pairs(static_cast<const uint16_t*>(from) + offset, step, strip.count, width, nullptr, lines, line);
#else
  gather(from, is_half, offset, step, strip.count, width, nullptr, lines, line);
#endif
  transpose_strip(strip, lines, line, (width + PACK - 1) / PACK, to);
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

// Load keys and values, with zeros for those that no query counted sees. `key_pairs`, if given, receives pairs of rows of keys; the
// values are then lines as the keys are, and pairs of rows otherwise.
static void load_tile(const Problem& job, int64_t b, int64_t group, Tile& tile, [[maybe_unused]] float* key_pairs = nullptr) {
  const Shape& shape = job.shape;
  const int64_t number = tile.end - tile.from, key_offset = shape.key.to(b, group, tile.from);
  const int64_t value_offset = shape.value.to(b, group, tile.from), value_width = shape.value_width;
  const int32_t* counts = job.begin || job.bias ? tile.counts : nullptr;
  for (int64_t j = 1; counts && j < number; ++j) tile.counts[j] += tile.counts[j - 1];
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
  gather(job.key, shape.is_key_half, key_offset, shape.key.row, number, shape.width, counts, tile.keys, tile.line);
  gather(job.value, shape.is_value_half, value_offset, shape.value.row, number, value_width, counts, tile.values, tile.value_line);
#endif
}
