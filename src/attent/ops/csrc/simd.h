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
