// The loops of short.cpp for one width of vector registers, LANES. Included once for each, inside a namespace of its own and under that
// width's compiler target.

#include "simd.h"

#include "bfloat16.h"

// Queries of a strip lie side by side: one register of them, or two.
constexpr int64_t STRIP = 2 * LANES;

#if defined(__clang__) || __GNUC__ >= 12
// Of two registers the first halves, or the second, number by number in turn.
template <int FROM, int... I>
static inline Vector in_turn(Vector one, Vector other, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(one, other, (FROM + I / 2 + I % 2 * LANES)...);
}

// LANES rows as LANES columns.
static inline void transpose(const float* from, int64_t line, float* to, int64_t apart) {
  constexpr std::make_integer_sequence<int, LANES> lanes{};
  Vector rows[LANES], turned[LANES];
  for (int r = 0; r < LANES; ++r) rows[r] = load(from + r * line);
  // each step moves a bit of a number's place from its row to its column
  for (int step = 1; step < LANES; step *= 2) {
    for (int r = 0; r < LANES / 2; ++r) {
      turned[2 * r] = in_turn<0>(rows[r], rows[r + LANES / 2], lanes);
      turned[2 * r + 1] = in_turn<LANES / 2>(rows[r], rows[r + LANES / 2], lanes);
    }
    for (int r = 0; r < LANES; ++r) rows[r] = turned[r];
  }
  for (int r = 0; r < LANES; ++r) store(to + r * apart, rows[r]);
}
#else
static inline void transpose(const float* from, int64_t line, float* to, int64_t apart) {
  for (int r = 0; r < LANES; ++r)
    for (int c = 0; c < LANES; ++c) to[c * apart + r] = from[r * line + c];
}
#endif

// R rows and N registers of  to = Σ_s weight(r, s) · from[s]  or, if ADD, with that added. Weights of a row lie beside each other if ALONG,
// else those of all rows do; `apart` is the other distance.
template <int R, int N, bool ALONG, bool ADD>
static inline void block(const float* weights, int64_t apart, const float* from, int64_t line, float* to, int64_t to_line, int64_t number) {
  // unrolled, as the sums would otherwise begin and end on the stack
  Vector sums[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) sums[r][n] = ADD ? load(to + r * to_line + n * LANES) : Vector{};
  for (int64_t s = 0; s < number; ++s) {
    Vector row[N];
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) row[n] = load(from + s * line + n * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float weight = ALONG ? weights[r * apart + s] : weights[s * apart + r];
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) sums[r][n] += weight * row[n];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) store(to + r * to_line + n * LANES, sums[r][n]);
}

template <int N, bool ALONG, bool ADD>
static inline void blocks(const float* weights, int64_t apart, const float* from, int64_t line, float* to, int64_t to_line, int64_t rows,
                          int64_t number) {
  // as many sums as there are registers for
  constexpr int R = LANES == 16 || N == 1 ? 8 : 4;
  const int64_t across = ALONG ? apart : 1;
  int64_t r = 0;
  for (; r + R <= rows; r += R) block<R, N, ALONG, ADD>(weights + r * across, apart, from, line, to + r * to_line, to_line, number);
  if (R > 4 && r + 4 <= rows) {
    block<4, N, ALONG, ADD>(weights + r * across, apart, from, line, to + r * to_line, to_line, number);
    r += 4;
  }
  if (r + 2 <= rows) {
    block<2, N, ALONG, ADD>(weights + r * across, apart, from, line, to + r * to_line, to_line, number);
    r += 2;
  }
  if (r < rows) block<1, N, ALONG, ADD>(weights + r * across, apart, from, line, to + r * to_line, to_line, number);
}

// The same for rows of any width.
template <bool ALONG, bool ADD>
static void product(const float* weights, int64_t apart, const float* from, int64_t line, int64_t width, float* to, int64_t rows,
                    int64_t number) {
  int64_t c = 0;
  for (; c + LANES < width; c += 2 * LANES) blocks<2, ALONG, ADD>(weights, apart, from + c, line, to + c, line, rows, number);
  if (c < width) blocks<1, ALONG, ADD>(weights, apart, from + c, line, to + c, line, rows, number);
}

// Rows that lie as the caller has them as lines, those of keys that nobody sees empty.
template <typename T>
static void gather(const T* from, int64_t step, int64_t rows, int64_t width, const int32_t* seen, float* to, int64_t line) {
  for (int64_t j = 0; j < rows; ++j) {
    if (seen && !seen[j]) memset(to + j * line, 0, 4 * line);
    else read_row(from + j * step, width, to + j * line);
  }
}

static inline void gather(const void* from, bool half, int64_t place, int64_t step, int64_t rows, int64_t width, const int32_t* seen,
                          float* to, int64_t line) {
  if (half) gather(static_cast<const uint16_t*>(from) + place, step, rows, width, seen, to, line);
  else gather(static_cast<const float*>(from) + place, step, rows, width, seen, to, line);
}

// Lines as rows `step` apart, each multiplied.
template <typename T>
static void put(const float* from, int64_t line, int64_t rows, int64_t width, const float* factors, T* to, int64_t step) {
  for (int64_t i = 0; i < rows; ++i) write_row(from + i * line, factors ? factors[i] : 1.0f, width, to + i * step);
}

static inline void put(const float* from, int64_t line, int64_t rows, int64_t width, const float* factors, void* to, bool half,
                       int64_t place, int64_t step) {
  if (half) put(from, line, rows, width, factors, static_cast<uint16_t*>(to) + place, step);
  else put(from, line, rows, width, factors, static_cast<float*>(to) + place, step);
}

static void empty(void* to, bool half, int64_t place, int64_t rows, int64_t width, int64_t step) {
  const int64_t size = half ? 2 : 4;
  for (int64_t i = 0; width && i < rows; ++i) memset(static_cast<char*>(to) + size * (place + i * step), 0, size * width);
}

// The hash of hash.h.
static inline Words mixed_all(Words bits) {
  bits = (bits ^ (bits >> 16)) * 0x7FEB352Du;
  bits = (bits ^ (bits >> 15)) * 0x846CA68Bu;
  return bits ^ (bits >> 16);
}

// Some queries of one head: which keys any of them sees, and of each register's the first, and how many from there on.
template <int N>
struct Strip {
  int64_t b, h, row, count, from, behind;
  Words first[N], many[N], hashed[N];
};

template <int N>
static inline Strip<N> strip_of(const Short& job, const Reach& reach, int64_t b, int64_t h, int64_t row, int64_t count) {
  const Shape& shape = job.shape;
  Strip<N> strip{b, h, row, count, reach.first, reach.behind, {}, {}, {}};
  uint32_t first[N * LANES] = {}, many[N * LANES] = {}, rows[N * LANES];
  for (int64_t i = 0; i < N * LANES; ++i) {
    first[i] = static_cast<uint32_t>(reach.first), many[i] = static_cast<uint32_t>(reach.behind - reach.first);
    rows[i] = OF_ROW * static_cast<uint32_t>(row + i);
  }
  if (job.first) {
    strip.from = shape.keys, strip.behind = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t own = job.first[shape.first.to(b, h, row + i)], end = job.behind[shape.behind.to(b, h, row + i)];
      const int64_t begin = own > 0 ? own : 0, behind = end < shape.keys ? end : shape.keys;
      first[i] = static_cast<uint32_t>(begin), many[i] = begin < behind ? static_cast<uint32_t>(behind - begin) : 0;
      if (begin >= behind) continue;
      strip.from = begin < strip.from ? begin : strip.from, strip.behind = behind > strip.behind ? behind : strip.behind;
    }
  }
  memcpy(strip.first, first, sizeof first), memcpy(strip.many, many, sizeof many), memcpy(strip.hashed, rows, sizeof rows);
  const uint32_t head = job.start + OF_SEQUENCE * static_cast<uint32_t>(b) + OF_HEAD * static_cast<uint32_t>(h);
  for (int n = 0; n < N; ++n) strip.hashed[n] = mixed_all(strip.hashed[n] + head);
  return strip;
}

// What is added to the scores of a register's queries with key j.
template <int N>
static inline Vector term_of(const Short& job, const Strip<N>& strip, int64_t j, int n) {
  const float* row = job.term + job.shape.term.to(strip.b, strip.h, j);
  if (!job.shape.term_along) return all(*row);
  const int64_t left = strip.count - n * LANES;
  row += strip.row + n * LANES;
  if (left >= LANES) return load(row);
  float some[LANES] = {};
  memcpy(some, row, 4 * left);
  return load(some);
}

// Scores (keys, STRIP) without their scale, made e^(score − largest); the sums over the keys are returned.
template <int N>
static inline void exponentials(const Short& job, const Strip<N>& strip, float* scores, Vector (&sums)[N]) {
  const float scale = job.scale;
  const bool added = job.term != nullptr;
  Vector most[N];
  for (int n = 0; n < N; ++n) most[n] = all(-INFINITY), sums[n] = Vector{};
  for (int64_t j = strip.from; j < strip.behind; ++j)
    for (int n = 0; n < N; ++n) {
      float* place = scores + (j - strip.from) * STRIP + n * LANES;
      Vector score = load(place) * scale;
      if (added) score += term_of(job, strip, j, n);
      score = static_cast<uint32_t>(j) - strip.first[n] < strip.many[n] ? score : all(-INFINITY);
      store(place, score);
      most[n] = score > most[n] ? score : most[n];
    }
  // a row that may see nothing has only zeros then
  for (int n = 0; n < N; ++n) most[n] = most[n] == all(-INFINITY) ? Vector{} : most[n];
  for (int64_t j = strip.from; j < strip.behind; ++j)
    for (int n = 0; n < N; ++n) {
      float* place = scores + (j - strip.from) * STRIP + n * LANES;
      const Vector power = exponential_or_zero(load(place) - most[n]);
      sums[n] += power;
      store(place, power);
    }
}

// What a weight is multiplied with: 0 where it goes.
template <int N>
static inline Vector stays(const Short& job, const Strip<N>& strip, int64_t j, int n) {
  return mixed_all(strip.hashed[n] + mixed(OF_COLUMN + static_cast<uint32_t>(j))) >= job.threshold ? all(job.factor) : Vector{};
}

template <int N>
static void inverses(const Vector (&sums)[N], Vector (&found)[N]) {
  for (int n = 0; n < N; ++n) found[n] = sums[n] == Vector{} ? Vector{} : 1.0f / sums[n];
}

// Queries, or what comes back to them, as lines and standing: (STRIP, line) and (line, STRIP).
template <int N>
static void standing(const void* from, bool half, int64_t place, int64_t step, int64_t count, int64_t width, float* lines, int64_t line,
                     float* to) {
  gather(from, half, place, step, count, width, nullptr, lines, line);
  memset(lines + count * line, 0, 4 * (N * LANES - count) * line);
  for (int64_t c = 0; c < width; c += LANES)
    for (int n = 0; n < N; ++n) transpose(lines + n * LANES * line + c, line, to + c * STRIP + n * LANES, STRIP);
}

// What is made of one sequence's queries, keys and values.
struct Room {
  int64_t line, value_line;
  float *keys, *values, *dkeys, *dvalues, *queries, *above, *contexts, *gradient_above, *scores, *slopes, *dropped;
  int32_t* seen;
};

static Room room_of(const Shape& shape, float* scratch, bool gradients) {
  Room room{};
  const auto take = [&scratch](int64_t numbers) { return (scratch += numbers) - numbers; };
  room.line = line_of(shape.width), room.value_line = line_of(shape.value_width);
  room.keys = take(shape.keys * room.line), room.values = take(shape.keys * room.value_line);
  room.queries = take(STRIP * room.line), room.above = take(STRIP * room.line);
  room.contexts = take(STRIP * room.value_line), room.scores = take(STRIP * shape.keys);
  if (gradients) {
    room.dkeys = take(shape.keys * room.line), room.dvalues = take(shape.keys * room.value_line);
    room.gradient_above = take(STRIP * (room.value_line > room.line ? room.value_line : room.line));
    room.slopes = take(STRIP * shape.keys), room.dropped = take(STRIP * shape.keys);
  }
  room.seen = reinterpret_cast<int32_t*>(take(shape.keys + 1));
  return room;
}

// The keys and values that are seen, from the first of them on.
static Reach prepare(const Short& job, int64_t b, int64_t group, const Room& room) {
  const Shape& shape = job.shape;
  const Reach reach = reach_of(job, b, group, room.seen);
  const int64_t number = reach.behind - reach.first;
  const int32_t* seen = reach.seen ? reach.seen + reach.first : nullptr;
  gather(job.key, shape.key_half, shape.key.to(b, group, reach.first), shape.key.row, number, shape.width, seen, room.keys, room.line);
  gather(job.value, shape.value_half, shape.value.to(b, group, reach.first), shape.value.row, number, shape.value_width, seen, room.values,
         room.value_line);
  return reach;
}

template <int N>
static void attend_strip(const Short& job, const Reach& reach, const Room& room, int64_t b, int64_t h, int64_t row, int64_t count) {
  const Shape& shape = job.shape;
  const Strip<N> strip = strip_of<N>(job, reach, b, h, row, count);
  const int64_t number = strip.behind - strip.from, skipped = strip.from - reach.first, width = shape.value_width;
  const int64_t place = ((b * shape.queries + row) * shape.heads + h) * width, apart = shape.heads * width;
  if (number <= 0) {
    empty(job.context, shape.context_half, place, count, width, apart);
    return;
  }
  standing<N>(job.query, shape.query_half, shape.query.to(b, h, row), shape.query.row, count, shape.width, room.queries, room.line,
              room.above);
  blocks<N, true, false>(room.keys + skipped * room.line, room.line, room.above, STRIP, room.scores, STRIP, number, shape.width);
  Vector sums[N], inverse[N];
  exponentials(job, strip, room.scores, sums);
  for (int64_t j = 0; job.threshold && j < number; ++j)
    for (int n = 0; n < N; ++n) {
      float* weight = room.scores + j * STRIP + n * LANES;
      store(weight, load(weight) * stays(job, strip, strip.from + j, n));
    }
  product<false, false>(room.scores, STRIP, room.values + skipped * room.value_line, room.value_line, width, room.contexts, count, number);
  inverses(sums, inverse);
  float factors[N * LANES];
  memcpy(factors, inverse, sizeof factors);
  put(room.contexts, room.value_line, count, width, factors, job.context, shape.context_half, place, apart);
}

// Of exponentials and, in `slopes`, of the gradients of the weights after dropout: the weights after dropout, in `dropped`, and the
// gradients of the scores.
template <int N>
static void slopes_of(const Short& job, const Strip<N>& strip, const Vector (&sums)[N], float* weights, float* slopes, float* dropped) {
  Vector inverse[N], mean[N];
  inverses(sums, inverse);
  for (int n = 0; n < N; ++n) mean[n] = Vector{};
  const int64_t number = strip.behind - strip.from;
  for (int64_t j = 0; j < number; ++j)
    for (int n = 0; n < N; ++n) {
      const int64_t place = j * STRIP + n * LANES;
      const Vector weight = load(weights + place) * inverse[n];
      const Vector after = job.threshold ? weight * stays(job, strip, strip.from + j, n) : weight;
      const Vector slope = after * load(slopes + place);
      mean[n] += slope;
      store(weights + place, weight), store(dropped + place, after), store(slopes + place, slope);
    }
  for (int64_t j = 0; j < number; ++j)
    for (int n = 0; n < N; ++n) {
      const int64_t place = j * STRIP + n * LANES;
      store(slopes + place, (load(slopes + place) - load(weights + place) * mean[n]) * job.scale);
    }
}

template <int N>
static void gradients_strip(const Short& job, const Reach& reach, const Room& room, int64_t b, int64_t h, int64_t row, int64_t count) {
  const Shape& shape = job.shape;
  const Strip<N> strip = strip_of<N>(job, reach, b, h, row, count);
  const int64_t number = strip.behind - strip.from, skipped = strip.from - reach.first, width = shape.width;
  const int64_t place = ((b * shape.queries + row) * shape.heads + h) * width, apart = shape.heads * width;
  if (number <= 0) {
    empty(job.dquery, shape.query_half, place, count, width, apart);
    return;
  }
  const float *keys = room.keys + skipped * room.line, *values = room.values + skipped * room.value_line;
  standing<N>(job.query, shape.query_half, shape.query.to(b, h, row), shape.query.row, count, width, room.queries, room.line, room.above);
  blocks<N, true, false>(keys, room.line, room.above, STRIP, room.scores, STRIP, number, width);
  Vector sums[N];
  exponentials(job, strip, room.scores, sums);
  standing<N>(job.gradient, shape.context_half, shape.gradient.to(b, h, row), shape.gradient.row, count, shape.value_width, room.contexts,
              room.value_line, room.gradient_above);
  blocks<N, true, false>(values, room.value_line, room.gradient_above, STRIP, room.slopes, STRIP, number, shape.value_width);
  slopes_of(job, strip, sums, room.scores, room.slopes, room.dropped);
  product<true, true>(room.dropped, STRIP, room.contexts, room.value_line, shape.value_width, room.dvalues + skipped * room.value_line,
                      number, count);
  product<true, true>(room.slopes, STRIP, room.queries, room.line, width, room.dkeys + skipped * room.line, number, count);
  // where the gradients stood there is room now
  product<false, false>(room.slopes, STRIP, keys, room.line, width, room.gradient_above, count, number);
  put(room.gradient_above, room.line, count, width, nullptr, job.dquery, shape.query_half, place, apart);
}

// What keys have of gradients, and zero for those that nobody sees.
static void put_keys(const Shape& shape, const Reach& reach, const float* from, int64_t line, void* to, bool half, int64_t b,
                     int64_t group, int64_t width) {
  const int64_t place = (b * shape.keys * shape.groups + group) * width, step = shape.groups * width;
  empty(to, half, place, reach.first, width, step);
  put(from, line, reach.behind - reach.first, width, nullptr, to, half, place + reach.first * step, step);
  empty(to, half, place + reach.behind * step, shape.keys - reach.behind, width, step);
}

// One sequence's heads that share their keys and values.
static void attend(const Short& job, int64_t task, float* scratch) {
  const Shape& shape = job.shape;
  const int64_t b = task / shape.groups, group = task % shape.groups, share = shape.heads / shape.groups;
  const Room room = room_of(shape, scratch, false);
  const Reach reach = prepare(job, b, group, room);
  for (int64_t h = group * share; h < (group + 1) * share; ++h)
    for (int64_t row = 0; row < shape.queries; row += STRIP) {
      const int64_t left = shape.queries - row;
      if (left > LANES) attend_strip<2>(job, reach, room, b, h, row, left < STRIP ? left : STRIP);
      else attend_strip<1>(job, reach, room, b, h, row, left);
    }
}

static void gradients(const Short& job, int64_t task, float* scratch) {
  const Shape& shape = job.shape;
  const int64_t b = task / shape.groups, group = task % shape.groups, share = shape.heads / shape.groups;
  const Room room = room_of(shape, scratch, true);
  const Reach reach = prepare(job, b, group, room);
  memset(room.dkeys, 0, 4 * (reach.behind - reach.first) * room.line);
  memset(room.dvalues, 0, 4 * (reach.behind - reach.first) * room.value_line);
  for (int64_t h = group * share; h < (group + 1) * share; ++h)
    for (int64_t row = 0; row < shape.queries; row += STRIP) {
      const int64_t left = shape.queries - row;
      if (left > LANES) gradients_strip<2>(job, reach, room, b, h, row, left < STRIP ? left : STRIP);
      else gradients_strip<1>(job, reach, room, b, h, row, left);
    }
  put_keys(shape, reach, room.dkeys, room.line, job.dkey, shape.key_half, b, group, shape.width);
  put_keys(shape, reach, room.dvalues, room.value_line, job.dvalue, shape.value_half, b, group, shape.value_width);
}
