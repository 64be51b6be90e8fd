// float16 read and written as registers of float32. Included after bfloat16.h, inside the namespace of one target.

struct Float16 {
  uint16_t bits;
};

typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

static inline Vector load(const Float16* from) {
  Halves halves;
  memcpy(&halves, from, sizeof halves);
#if LANES == 16
  return (Vector)_mm512_maskz_cvtph_ps(0xffff, (__m256i)halves);
#elif LANES == 8
  return (Vector)_mm256_cvtph_ps((__m128i)halves);
#else
  const Words bits = __builtin_convertvector(halves, Words), magnitude = (bits & 0x7fff) << 13;
  // the exponents' biases differ by 112, and the product makes subnormal numbers normal
  const Vector number = (Vector)magnitude * 0x1p112f;
  const Words no_number = (Words)((bits & 0x7c00) == 0x7c00) & 0x7f800000;
  return (Vector)((Words)number | no_number | (bits & 0x8000) << 16);
#endif
}

// Round to nearest, ties to even; NaN stays NaN.
static inline void store(Float16* to, Vector vector) {
#if LANES == 16
  const __m256i halves = _mm512_maskz_cvtps_ph(0xffff, (__m512)vector, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif LANES == 8
  const __m128i halves = _mm256_cvtps_ph((__m256)vector, _MM_FROUND_TO_NEAREST_INT);
#else
  const Words words = (Words)vector, bits = words & 0x7fffffff;
  const Words is_small = (Words)(bits < 0x38800000), is_large = (Words)(bits >= 0x47800000);
  const Words normal = (bits + 0xc8000fff + (bits >> 13 & 1)) >> 13;
  // beside one half, the last place of a float is that of the subnormal numbers
  const Words small = (Words)((Vector)bits + 0.5f) - 0x3f000000;
  const Words large = 0x7c00 | ((Words)(bits > 0x7f800000) & 0x200);
  const Words rounded = (is_small & small) | (is_large & large) | (~(is_small | is_large) & normal) | (words >> 16 & 0x8000);
  const Halves halves = __builtin_convertvector(rounded, Halves);
#endif
  memcpy(to, &halves, sizeof halves);
}
