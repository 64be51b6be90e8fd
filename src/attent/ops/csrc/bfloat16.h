// bfloat16 read and written as registers of float32. Included after lanes.h, inside the namespace of one width of vector registers; on x86
// the file that includes it has <immintrin.h>.

typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

// GCC splits these conversions of the widest registers, unless told.
static inline Vector wide(Halves halves) {
#if LANES == 16
  const Words words = (Words)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)halves) << 16;
#elif LANES == 8
  const Words words = (Words)_mm256_cvtepu16_epi32((__m128i)halves) << 16;
#else
  const Words words = __builtin_convertvector(halves, Words) << 16;
#endif
  Vector vector;
  memcpy(&vector, &words, sizeof vector);
  return vector;
}

// To the nearest, ties to even; NaN stays NaN.
static inline Halves narrow(Vector vector) {
  Words words;
  memcpy(&words, &vector, sizeof words);
  const Words rounded = (words + 0x7fff + ((words >> 16) & 1)) >> 16, number = (Words)(vector == vector);
  const Words bits = (rounded & number) | (0x7fc0 & ~number);
#if LANES == 16
  return (Halves)_mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)bits);
#else
  return __builtin_convertvector(bits, Halves);
#endif
}

static inline Vector load(const uint16_t* from) {
  Halves halves;
  memcpy(&halves, from, sizeof halves);
  return wide(halves);
}

static inline void store(uint16_t* to, Vector vector) {
  const Halves halves = narrow(vector);
  memcpy(to, &halves, sizeof halves);
}

// The numbers from `from` on, `count` of them or a whole register; behind them zeros.
template <typename T>
static inline Vector load_some(const T* from, int64_t count) {
  if (count >= LANES) return load(from);
  T some[LANES] = {};
  memcpy(some, from, sizeof(T) * count);
  return load(some);
}

template <typename T>
static inline void store_some(T* to, int64_t count, Vector vector) {
  if (count >= LANES) return store(to, vector);
  T some[LANES];
  store(some, vector);
  memcpy(to, some, sizeof(T) * count);
}

// The same where the type is known only when it runs.
static inline Vector get(const void* from, bool half, int64_t at, int64_t count) {
  if (half) return load_some(static_cast<const uint16_t*>(from) + at, count);
  return load_some(static_cast<const float*>(from) + at, count);
}

static inline void put(void* to, bool half, int64_t at, int64_t count, Vector vector) {
  if (half) return store_some(static_cast<uint16_t*>(to) + at, count, vector);
  store_some(static_cast<float*>(to) + at, count, vector);
}

// A row as a line of floats that ends with a whole register, zero behind the row's end.
template <typename T>
static inline void read_row(const T* from, int64_t width, float* line) {
  for (int64_t j = 0; j < width; j += LANES) store(line + j, load_some(from + j, width - j));
}

template <typename T>
static inline void write_row(const float* line, float factor, int64_t width, T* to) {
  for (int64_t j = 0; j < width; j += LANES) store_some(to + j, width - j, load(line + j) * factor);
}
