// Numbers that are float32 or bfloat16, as registers of floats. Included by the loops for each width, behind lanes.h; on x86 the file
// that includes them has <immintrin.h>.

typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
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

// To the nearest bfloat16, ties to even.
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

// The numbers from `at` on, `count` of them or a whole register; behind them zeros.
static inline Vector get(const void* from, bool half, int64_t at, int64_t count) {
  if (half) {
    const uint16_t* numbers = static_cast<const uint16_t*>(from) + at;
    Halves halves = {};
    if (count >= LANES) memcpy(&halves, numbers, sizeof halves);
    else memcpy(&halves, numbers, 2 * count);
    return wide(halves);
  }
  const float* numbers = static_cast<const float*>(from) + at;
  if (count >= LANES) return load(numbers);
  Vector vector = {};
  memcpy(&vector, numbers, 4 * count);
  return vector;
}

static inline void put(void* to, bool half, int64_t at, int64_t count, Vector vector) {
  if (half) {
    const Halves halves = narrow(vector);
    uint16_t* numbers = static_cast<uint16_t*>(to) + at;
    if (count >= LANES) memcpy(numbers, &halves, sizeof halves);
    else memcpy(numbers, &halves, 2 * count);
    return;
  }
  float* numbers = static_cast<float*>(to) + at;
  if (count >= LANES) store(numbers, vector);
  else memcpy(numbers, &vector, 4 * count);
}
