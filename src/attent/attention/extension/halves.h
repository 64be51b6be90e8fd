// bfloat16 read and written as registers of float32. Included after lanes.h, inside the namespace of one width of vector registers.

typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

// GCC splits these conversions of the widest registers, unless told.
static inline Vector load(const uint16_t* from) {
  Halves halves;
  memcpy(&halves, from, sizeof halves);
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
static inline void store(uint16_t* to, Vector vector) {
  Words words;
  memcpy(&words, &vector, sizeof words);
  const Words rounded = (words + 0x7fff + ((words >> 16) & 1)) >> 16, number = (Words)(vector == vector);
  words = (rounded & number) | (0x7fc0 & ~number);
#if LANES == 16
  const Halves halves = (Halves)_mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)words);
#else
  const Halves halves = __builtin_convertvector(words, Halves);
#endif
  memcpy(to, &halves, sizeof halves);
}

// A row as a line of floats that ends with a whole register, zero behind the row's end.
template <typename T>
static inline void read_row(const T* from, int64_t width, float* line) {
  int64_t j = 0;
  for (; j + LANES <= width; j += LANES) store(line + j, load(from + j));
  if (j == width) return;
  T some[LANES] = {};
  memcpy(some, from + j, sizeof(T) * (width - j));
  store(line + j, load(some));
}

template <typename T>
static inline void write_row(const float* line, float factor, int64_t width, T* to) {
  int64_t j = 0;
  for (; j + LANES <= width; j += LANES) store(to + j, load(line + j) * factor);
  if (j == width) return;
  T some[LANES];
  store(some, load(line + j) * factor);
  memcpy(to + j, some, sizeof(T) * (width - j));
}
