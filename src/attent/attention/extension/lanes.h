// What the loops for each width of vector registers share: LANES floats side by side. Included by them, inside their namespaces.

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef int32_t Integers __attribute__((vector_size(4 * LANES)));

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
