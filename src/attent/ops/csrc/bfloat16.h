// bfloat16 read and written as registers of float32. Included after simd.h, inside the namespace of one target; on x86
// the including file needs <immintrin.h>.

typedef uint16_t BFloat16s __attribute__((vector_size(2 * LANES)));

// Intrinsics: GCC splits __builtin_convertvector of the widest registers.
static inline Vector to_float(BFloat16s numbers) {
#if LANES == 16
  const Words words = (Words)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)numbers) << 16;
#elif LANES == 8
  const Words words = (Words)_mm256_cvtepu16_epi32((__m128i)numbers) << 16;
#else
  const Words words = __builtin_convertvector(numbers, Words) << 16;
#endif
  Vector vector;
  memcpy(&vector, &words, sizeof vector);
  return vector;
}

// Round to nearest, ties to even; NaN stays NaN.
static inline BFloat16s to_bfloat16(Vector vector) {
  Words words;
  memcpy(&words, &vector, sizeof words);
  const Words rounded = (words + 0x7fff + ((words >> 16) & 1)) >> 16, number = (Words)(vector == vector);
  const Words bits = (rounded & number) | (0x7fc0 & ~number);
#if LANES == 16
  return (BFloat16s)_mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)bits);
#else
  return __builtin_convertvector(bits, BFloat16s);
#endif
}

static inline Vector load(const uint16_t* from) {
  BFloat16s numbers;
  memcpy(&numbers, from, sizeof numbers);
  return to_float(numbers);
}

static inline void store(uint16_t* to, Vector vector) {
  const BFloat16s numbers = to_bfloat16(vector);
  memcpy(to, &numbers, sizeof numbers);
}

// Load a register, or the first `count` numbers of one and zeros after them.
template <typename T>
static inline Vector load_some(const T* from, int64_t count) {
  if (count >= LANES) return load(from);
  T buffer[LANES] = {};
  memcpy(buffer, from, sizeof(T) * count);
  return load(buffer);
}

template <typename T>
static inline void store_some(T* to, int64_t count, Vector vector) {
  if (count >= LANES) return store(to, vector);
  T buffer[LANES];
  store(buffer, vector);
  memcpy(to, buffer, sizeof(T) * count);
}

// Load and store with the type chosen at run time.
static inline Vector get(const void* from, bool is_half, int64_t offset, int64_t count) {
  if (is_half) return load_some(static_cast<const uint16_t*>(from) + offset, count);
  return load_some(static_cast<const float*>(from) + offset, count);
}

static inline void put(void* to, bool is_half, int64_t offset, int64_t count, Vector vector) {
  if (is_half) return store_some(static_cast<uint16_t*>(to) + offset, count, vector);
  store_some(static_cast<float*>(to) + offset, count, vector);
}

// Convert a row to floats, padded with zeros to whole registers.
template <typename T>
static inline void read_row(const T* from, int64_t width, float* line) {
  for (int64_t j = 0; j < width; j += LANES) store(line + j, load_some(from + j, width - j));
}

template <typename T>
static inline void write_row(const float* line, float factor, int64_t width, T* to) {
  for (int64_t j = 0; j < width; j += LANES) store_some(to + j, width - j, load(line + j) * factor);
}
