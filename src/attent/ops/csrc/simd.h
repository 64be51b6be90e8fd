// Vectors of LANES floats. Included by each *-inl.h, inside the namespace of its target.

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef int32_t Integers __attribute__((vector_size(4 * LANES)));

static inline Vector load(const float* from) {
  Vector vector;
  memcpy(&vector, from, sizeof vector);
  return vector;
}

static inline void store(float* to, Vector vector) { memcpy(to, &vector, sizeof vector); }

// Hide that a number is a product: the compiler may not fuse it with a sum, which some processors could and others could not.
static inline Vector rounded(Vector product) {
#if defined(__x86_64__)
  asm("" : "+x"(product));
#elif defined(__aarch64__)
  asm("" : "+w"(product));
#else
  asm("" : "+m"(product));
#endif
  return product;
}

static inline Vector broadcast(float number) { return number - Vector{}; }

// e^x for |x| <= 88, to about one unit in the last place: 2^n · e^r, r = x − n·ln 2 within ±ln 2 / 2, and e^r by its series.
static inline Vector exponential(Vector x) {
  const float magic = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer
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

// log x for normal x > 0, to about one unit in the last place: x = 2^n · (1 + r), r within [√½ − 1, √2 − 1], and log (1 + r) by Cephes'
// polynomial.
static inline Vector logarithm(Vector x) {
  Integers bits;
  memcpy(&bits, &x, sizeof bits);
  // halves of mantissas above √2 go with the next power of 2
  const Integers power = (bits - 0x3f3504f3) >> 23;
  bits -= power << 23;
  Vector r;
  memcpy(&r, &bits, sizeof r);
  r -= 1.0f;
  const Vector n = __builtin_convertvector(power, Vector), square = r * r;
  Vector series = r * 7.0376836292e-2f - 1.1514610310e-1f;
  series = series * r + 1.1676998740e-1f;
  series = series * r - 1.2420140846e-1f;
  series = series * r + 1.4249322787e-1f;
  series = series * r - 1.6668057665e-1f;
  series = series * r + 2.0000714765e-1f;
  series = series * r - 2.4999993993e-1f;
  series = series * r + 3.3333331174e-1f;
  return r + (series * r * square - n * 2.12194440e-4f - 0.5f * square) + n * 0.693359375f;
}

// e^x for x <= 0, to about one unit in the last place, and 0 below the normal numbers: 2^n · e^r, r = x − n·ln 2 within ±ln 2 / 2,
// and e^r by a polynomial that is off by 2e-9. NaN stays NaN.
static inline Vector exponential_or_zero(Vector x) {
  const float magic = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer, held in the lowest bits
  const Vector shifted = x * 1.44269504088896341f + magic, n = shifted - magic;
  const Vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vector series = r * 0.00138367934f + 0.00837485678f;
  series = series * r + 0.0416682288f;
  series = series * r + 0.166664198f;
  series = series * r + 0.499999911f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  Words power, bits;
  memcpy(&power, &shifted, sizeof power);
  memcpy(&bits, &series, sizeof bits);
  bits += power << 23;
  Vector result;
  memcpy(&result, &bits, sizeof result);
  return x < broadcast(-87.0f) ? Vector{} : result;
}
