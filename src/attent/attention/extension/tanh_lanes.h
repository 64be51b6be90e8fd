// The loops of tanh_cpu.cpp for one width of vector registers. Included once for each, inside a namespace of its own and
// under that width's compiler target, with
//   LANES          floats in a register
//   RECIPROCAL(y)  1 / y of a register
//   LESS_ONE(y)    1 / y − 1 of a register
//
// With A = e^2q' / 2 and B = e^2k', y = AB + 1/2 is (1 + e^2(q' + k')) / 2, and 1 / y − 1 = −tanh(q' + k').

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef int32_t Integers __attribute__((vector_size(4 * LANES)));

// Rows that share what is loaded of the keys.
constexpr int64_t ROWS = 4, REGISTERS = BLOCK / LANES;

static inline Vector load(const float* from) {
  Vector vector;
  memcpy(&vector, from, sizeof vector);
  return vector;
}

static inline void store(float* to, Vector vector) { memcpy(to, &vector, sizeof vector); }

static inline Vector all(float number) { return number - Vector{}; }

// e^x for |x| <= 88, to about one unit in the last place: 2^n · e^r, r = x − n·ln 2 within ±ln 2 / 2, and e^r by its series.
static inline Vector exponential(Vector x) {
  const float magic = 12582912.0f;  // 1.5 · 2^23: adding it rounds to a whole number
  const Vector n = (x * 1.44269504088896341f + magic) - magic;
  const Vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vector series = r * (1.0f / 5040) + (1.0f / 720);
  series = series * r + (1.0f / 120);
  series = series * r + (1.0f / 24);
  series = series * r + (1.0f / 6);
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const Integers bits = (__builtin_convertvector(n, Integers) + 127) << 23;
  Vector power;
  memcpy(&power, &bits, sizeof power);
  return series * power;
}

// e^2(a + b) / 2 where the product of e^2a and e^2b might overflow; NaN stays NaN.
static inline Vector exponential_of_sum(Vector a, Vector b) {
  Vector x = 2.0f * (a + b);
  x = x > all(80.0f) ? all(80.0f) : x;
  x = x < all(-80.0f) ? all(-80.0f) : x;
  return 0.5f * exponential(x);
}

// factor · e^2x
static void exponentials(const float* from, float* to, int64_t count, float factor) {
  for (int64_t i = 0; i < count; i += LANES) {
    float some[LANES] = {0};
    const int64_t here = count - i < LANES ? count - i : LANES;
    memcpy(some, from + i, 4 * here);
    Vector x = 2.0f * load(some);
    x = x > all(2 * ONE) ? all(2 * ONE) : x;  // those beyond are not used
    x = x < all(-2 * ONE) ? all(-2 * ONE) : x;
    store(some, factor * exponential(x));
    memcpy(to + i, some, 4 * here);
  }
}

// ---- scores: a vector's lanes are keys ----

// R rows against one block: Σ v·tanh of each pair. NARROW: all products of four y are finite, and four features share one reciprocal,
//     v1/y1 + v2/y2 + v3/y3 + v4/y4 = ((v1·y2 + v2·y1)·y3·y4 + (v3·y4 + v4·y3)·y1·y2) / (y1·y2·y3·y4).
template <int64_t R, Range RANGE>
static void score_rows(const float* query, const float* keys, const float* v, int64_t width, float* scores, int64_t stride,
                       int64_t columns) {
  Vector sums[R][REGISTERS] = {};
  int64_t d = 0;
  if (RANGE == NARROW) {
    for (; d + 4 <= width; d += 4) {
      const float *theirs = keys + d * BLOCK, *ours = query + d;
      const Vector v1 = all(v[d]), v2 = all(v[d + 1]), v3 = all(v[d + 2]), v4 = all(v[d + 3]);
      for (int64_t c = 0; c < REGISTERS; ++c) {
        const Vector k1 = load(theirs + c * LANES), k2 = load(theirs + BLOCK + c * LANES);
        const Vector k3 = load(theirs + 2 * BLOCK + c * LANES), k4 = load(theirs + 3 * BLOCK + c * LANES);
        for (int64_t r = 0; r < R; ++r) {
          const float* row = ours + r * width;
          const Vector y1 = k1 * row[0] + 0.5f, y2 = k2 * row[1] + 0.5f, y3 = k3 * row[2] + 0.5f, y4 = k4 * row[3] + 0.5f;
          const Vector front = y1 * y2, back = y3 * y4;
          const Vector above = (v1 * y2 + v2 * y1) * back + (v3 * y4 + v4 * y3) * front;
          sums[r][c] += above * RECIPROCAL(front * back);
        }
      }
    }
    float total = 0;
    for (int64_t one = 0; one < d; ++one) total += v[one];
    for (int64_t r = 0; r < R; ++r)
      for (int64_t c = 0; c < REGISTERS; ++c) sums[r][c] = total - sums[r][c];
  }
  for (; d < width; ++d) {
    const Vector direction = all(v[d]);
    for (int64_t c = 0; c < REGISTERS; ++c) {
      const Vector key = load(keys + d * BLOCK + c * LANES);
      for (int64_t r = 0; r < R; ++r) {
        const Vector ours = all(query[r * width + d]);
        const Vector product = RANGE == ANY ? exponential_of_sum(ours, key) : ours * key;
        sums[r][c] -= direction * LESS_ONE(product + 0.5f);
      }
    }
  }
  for (int64_t r = 0; r < R; ++r) {
    float row[BLOCK];
    for (int64_t c = 0; c < REGISTERS; ++c) store(row + c * LANES, sums[r][c]);
    memcpy(scores + r * stride, row, 4 * columns);
  }
}

template <Range RANGE>
static void score_block(const Scores& job, const float* query, const float* keys, const float* v, int64_t rows, float* scores,
                        int64_t columns) {
  int64_t r = 0;
  for (; r + ROWS <= rows; r += ROWS)
    score_rows<ROWS, RANGE>(query + r * job.width, keys, v, job.width, scores + r * job.keys, job.keys, columns);
  for (; r < rows; ++r)
    score_rows<1, RANGE>(query + r * job.width, keys, v, job.width, scores + r * job.keys, job.keys, columns);
}

// The keys of a block, one feature after another; e^2k or k itself.
static void stand(const float* key, int64_t columns, int64_t width, bool exponents, float* line, float* block) {
  memset(block, 0, 4 * width * BLOCK);
  for (int64_t j = 0; j < columns; ++j) {
    if (exponents) exponentials(key + j * width, line, width, 1.0f);
    else memcpy(line, key + j * width, 4 * width);
    for (int64_t d = 0; d < width; ++d) block[d * BLOCK + j] = line[d];
  }
}

// A few blocks of keys against all the rows: (group, blocks) is the task.
static void scores_task(const Scores& job, int64_t task, float* scratch) {
  const int64_t across = job.span * BLOCK, per_group = (job.keys + across - 1) / across, group = task / per_group, width = job.width;
  const int64_t first = task % per_group * across, last = first + across < job.keys ? first + across : job.keys;
  const float* key = job.key + group * job.keys * width;
  const float* query = job.query + group * job.queries * width;
  const float* v = job.v + group % job.directions * width;
  float *line = scratch, *ours = line + width, *raw = ours + width * CHUNK, *blocks = raw + width * BLOCK;
  float most[MOST_BLOCKS];
  for (int64_t j = first, number = 0; j < last; j += BLOCK, ++number) {
    const int64_t columns = last - j < BLOCK ? last - j : BLOCK;
    most[number] = largest(key + j * width, columns * width);
    stand(key + j * width, columns, width, true, line, blocks + number * width * BLOCK);
  }
  for (int64_t i = 0; i < job.queries; i += CHUNK) {
    const int64_t rows = job.queries - i < CHUNK ? job.queries - i : CHUNK;
    const float* here = query + i * width;
    const float size = largest(here, rows * width);
    exponentials(here, ours, rows * width, 0.5f);
    for (int64_t j = first, number = 0; j < last; j += BLOCK, ++number) {
      const int64_t columns = last - j < BLOCK ? last - j : BLOCK;
      float* out = job.scores + (group * job.queries + i) * job.keys + j;
      const float* block = blocks + number * width * BLOCK;
      const float larger = size > most[number] ? size : most[number];
      if (larger <= FOUR) {
        score_block<NARROW>(job, ours, block, v, rows, out, columns);
      } else if (larger <= ONE) {
        score_block<MIDDLING>(job, ours, block, v, rows, out, columns);
      } else {
        stand(key + j * width, columns, width, false, line, raw);
        score_block<ANY>(job, here, raw, v, rows, out, columns);
      }
    }
  }
}

// ---- gradients: a vector's lanes are features ----

// `count` keys against R rows, for LANES features: adds to dq (R rows, LANES apart) and to dk (keys, LANES apart), returns Σ g·tanh, negated.
template <int64_t R, bool SAFE>
static Vector gradient_rows(const float* query, int64_t width, const float* keys, const float* gradient, int64_t stride, int64_t count,
                            float* dq, float* dk) {
  // of several sums, for one alone would wait for itself
  Vector ours[R], sums[R], shares[2] = {}, slopes[2];
  for (int64_t r = 0; r < R; ++r) ours[r] = load(query + r * width), sums[r] = load(dq + r * width);
  for (int64_t j = 0; j < count; ++j) {
    const Vector key = load(keys + j * LANES);
    slopes[0] = load(dk + j * LANES), slopes[1] = Vector{};
    for (int64_t r = 0; r < R; ++r) {
      const Vector product = SAFE ? ours[r] * key : exponential_of_sum(ours[r], key);
      const Vector level = LESS_ONE(product + 0.5f), weighted = level * gradient[r * stride + j];
      const Vector slope = gradient[r * stride + j] - weighted * level;
      shares[r % 2] += weighted;
      sums[r] += slope;
      slopes[r % 2] += slope;
    }
    store(dk + j * LANES, slopes[0] + slopes[1]);
  }
  for (int64_t r = 0; r < R; ++r) store(dq + r * width, sums[r]);
  return shares[0] + shares[1];
}

template <bool SAFE>
static void gradient_block(const float* query, int64_t width, const float* keys, const float* gradient, int64_t stride, int64_t rows,
                           int64_t count, float* dq, float* dk, float* shares) {
  for (int64_t d = 0; d < width; d += LANES) {
    Vector sum = load(shares + d);
    int64_t r = 0;
    for (; r + ROWS <= rows; r += ROWS)
      sum += gradient_rows<ROWS, SAFE>(query + r * width + d, width, keys + d * BLOCK, gradient + r * stride, stride, count,
                                       dq + r * width + d, dk + d * BLOCK);
    for (; r < rows; ++r)
      sum += gradient_rows<1, SAFE>(query + r * width + d, width, keys + d * BLOCK, gradient + r * stride, stride, count,
                                    dq + r * width + d, dk + d * BLOCK);
    store(shares + d, sum);
  }
}

// Features padded to whole registers, either factor · e^2x or x itself (factor 0); rows LANES apart within a register's features if `packed`.
static void lay(const float* from, int64_t count, int64_t width, int64_t padded, float factor, bool packed, float* line, float* to) {
  for (int64_t j = 0; j < count; ++j) {
    if (factor) exponentials(from + j * width, line, width, factor);
    else memcpy(line, from + j * width, 4 * width);
    for (int64_t d = width; d < padded; ++d) line[d] = 0;
    if (!packed) memcpy(to + j * padded, line, 4 * padded);
    else
      for (int64_t d = 0; d < padded; d += LANES) memcpy(to + d * BLOCK + j * LANES, line + d, 4 * LANES);
  }
}

// A slab of rows against every key: (group, slab) is the task; its part of dk and dv goes to a place of its own, to be summed in order.
static void gradients_task(const Gradients& job, int64_t task, float* scratch) {
  const int64_t group = task / job.slabs, slab = task % job.slabs, width = job.width, padded = (width + LANES - 1) / LANES * LANES;
  const int64_t per_slab = (job.queries + job.slabs - 1) / job.slabs, start = slab * per_slab;
  const int64_t end = start + per_slab < job.queries ? start + per_slab : job.queries;
  const float* query = job.query + group * job.queries * width;
  const float* v = job.v + group % job.directions * width;
  float *line = scratch, *shares = line + padded, *ours = shares + padded, *dq = ours + CHUNK * padded, *theirs = dq + CHUNK * padded,
        *dk = theirs + BLOCK * padded;
  memset(shares, 0, 4 * padded);
  float* dk_of_slab = job.dk + (group * job.slabs + slab) * job.keys * width;
  float* dv = job.dv + (group * job.slabs + slab) * width;
  memset(dk_of_slab, 0, 4 * job.keys * width);
  for (int64_t i = start; i < end; i += CHUNK) {
    const int64_t rows = end - i < CHUNK ? end - i : CHUNK;
    int laid = -1;  // whether the rows lie ready as exponentials
    const bool narrow = largest(query + i * width, rows * width) <= ONE;
    memset(dq, 0, 4 * rows * padded);
    for (int64_t first = 0; first < job.keys; first += BLOCK) {
      const int64_t count = job.keys - first < BLOCK ? job.keys - first : BLOCK;
      const float* key = job.key + (group * job.keys + first) * width;
      const float* gradient = job.gradient + (group * job.queries + i) * job.keys + first;
      const bool safe = narrow && largest(key, count * width) <= ONE;
      if (laid != safe) lay(query + i * width, rows, width, padded, safe ? 0.5f : 0.0f, false, line, ours), laid = safe;
      lay(key, count, width, padded, safe ? 1.0f : 0.0f, true, line, theirs);
      memset(dk, 0, 4 * BLOCK * padded);
      if (safe) gradient_block<true>(ours, padded, theirs, gradient, job.keys, rows, count, dq, dk, shares);
      else gradient_block<false>(ours, padded, theirs, gradient, job.keys, rows, count, dq, dk, shares);
      for (int64_t j = 0; j < count; ++j)
        for (int64_t d = 0; d < width; ++d)
          dk_of_slab[(first + j) * width + d] += v[d] * dk[d / LANES * LANES * BLOCK + j * LANES + d % LANES];
    }
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t d = 0; d < width; ++d) job.dq[(group * job.queries + i + r) * width + d] = v[d] * dq[r * padded + d];
  }
  for (int64_t d = 0; d < width; ++d) dv[d] = -shares[d];
}
