// Sums of products of 8-bit numbers, see int8.h.

#include "int8.h"

#include <cstring>

#include "native.h"

#include "amx.h"

#define UNROLL _Pragma("GCC unroll 8")

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

// Names that older compilers lack.
#if defined(__clang__)
#define FOR_VNNI _Pragma("clang attribute push(__attribute__((target(\"avx512f,avx512bw,avx512vl,avx512vnni\"))), apply_to = function)")
#define FOR_AVX_VNNI _Pragma("clang attribute push(__attribute__((target(\"avx2,avxvnni\"))), apply_to = function)")
#define FOR_AMX_INT8 \
  _Pragma("clang attribute push(__attribute__((target(\"amx-tile,amx-int8,avx512f,avx512vnni\"))), apply_to = function)")
#else
#define FOR_VNNI _Pragma("GCC push_options") _Pragma("GCC target(\"avx512f,avx512bw,avx512vl,avx512vnni\")")
#define FOR_AVX_VNNI _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,avxvnni\")")
#define FOR_AMX_INT8 _Pragma("GCC push_options") _Pragma("GCC target(\"amx-tile,amx-int8,avx512f,avx512vnni\")")
#endif
#if defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11
#define HAS_AVX_VNNI 1
#endif
#endif

namespace {

// Bytes of four features of a panel.
constexpr int64_t GROUP = 4 * INT8_PANEL;

void portable(const uint8_t* rows, int64_t number, const int8_t* panel, int64_t groups, const int32_t*, int32_t* sums) {
  for (int64_t r = 0; r < number; ++r, rows += 4 * groups, sums += INT8_PANEL) {
    memset(sums, 0, 4 * INT8_PANEL);
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t c = 0; c < INT8_PANEL; ++c)
        for (int64_t k = 0; k < 4; ++k) sums[c] += (rows[4 * g + k] - 128) * panel[g * GROUP + 4 * c + k];
  }
}

// Call TILE<R> for as many rows at a time as it takes, and for the rest.
template <template <int64_t> class Tile, int64_t MOST>
inline void by_tiles(const uint8_t* rows, int64_t number, const int8_t* panel, int64_t groups, const int32_t* shifts, int32_t* sums) {
  for (; number >= MOST; number -= MOST, rows += MOST * 4 * groups, sums += MOST * INT8_PANEL)
    Tile<MOST>::run(rows, panel, groups, shifts, sums);
  switch (number) {
    case 5: return Tile<5>::run(rows, panel, groups, shifts, sums);
    case 4: return Tile<4>::run(rows, panel, groups, shifts, sums);
    case 3: return Tile<3>::run(rows, panel, groups, shifts, sums);
    case 2: return Tile<2>::run(rows, panel, groups, shifts, sums);
    case 1: return Tile<1>::run(rows, panel, groups, shifts, sums);
  }
}

inline int32_t four(const uint8_t* from) {
  int32_t word;
  memcpy(&word, from, 4);
  return word;
}

#if defined(__x86_64__)

FOR_AVX2
// |x| · (w with the sign of x) needs no shift, and pairs of such products fit 16 bits.
template <int64_t R>
struct Avx2Tile {
  static void run(const uint8_t* rows, const int8_t* panel, int64_t groups, const int32_t*, int32_t* sums) {
    const __m256i ones = _mm256_set1_epi16(1), middle = _mm256_set1_epi8(-128);
    for (int64_t c = 0; c < INT8_PANEL; c += 16) {
      __m256i total[R][2] = {};
      for (int64_t g = 0; g < groups; ++g) {
        const __m256i* columns = reinterpret_cast<const __m256i*>(panel + g * GROUP + 4 * c);
        const __m256i first = _mm256_loadu_si256(columns), second = _mm256_loadu_si256(columns + 1);
        UNROLL
        for (int64_t r = 0; r < R; ++r) {
          const __m256i x = _mm256_xor_si256(_mm256_set1_epi32(four(rows + 4 * (r * groups + g))), middle), size = _mm256_abs_epi8(x);
          const __m256i low = _mm256_maddubs_epi16(size, _mm256_sign_epi8(first, x));
          const __m256i high = _mm256_maddubs_epi16(size, _mm256_sign_epi8(second, x));
          total[r][0] = _mm256_add_epi32(total[r][0], _mm256_madd_epi16(low, ones));
          total[r][1] = _mm256_add_epi32(total[r][1], _mm256_madd_epi16(high, ones));
        }
      }
      UNROLL
      for (int64_t r = 0; r < R; ++r)
        UNROLL
        for (int64_t s = 0; s < 2; ++s)
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + r * INT8_PANEL + c + 8 * s), total[r][s]);
    }
  }
};

void avx2(const uint8_t* rows, int64_t number, const int8_t* panel, int64_t groups, const int32_t* shifts, int32_t* sums) {
  by_tiles<Avx2Tile, 4>(rows, number, panel, groups, shifts, sums);
}
END_TARGET

#ifdef HAS_AVX_VNNI
FOR_AVX_VNNI
template <int64_t R>
struct AvxVnniTile {
  static void run(const uint8_t* rows, const int8_t* panel, int64_t groups, const int32_t* shifts, int32_t* sums) {
    for (int64_t c = 0; c < INT8_PANEL; c += 16) {
      __m256i total[R][2];
      UNROLL
      for (int64_t r = 0; r < R; ++r)
        UNROLL
        for (int64_t s = 0; s < 2; ++s) total[r][s] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(shifts + c + 8 * s));
      for (int64_t g = 0; g < groups; ++g) {
        const __m256i* columns = reinterpret_cast<const __m256i*>(panel + g * GROUP + 4 * c);
        const __m256i first = _mm256_loadu_si256(columns), second = _mm256_loadu_si256(columns + 1);
        UNROLL
        for (int64_t r = 0; r < R; ++r) {
          const __m256i x = _mm256_set1_epi32(four(rows + 4 * (r * groups + g)));
          total[r][0] = _mm256_dpbusd_avx_epi32(total[r][0], x, first);
          total[r][1] = _mm256_dpbusd_avx_epi32(total[r][1], x, second);
        }
      }
      UNROLL
      for (int64_t r = 0; r < R; ++r)
        UNROLL
        for (int64_t s = 0; s < 2; ++s)
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + r * INT8_PANEL + c + 8 * s), total[r][s]);
    }
  }
};

void avx_vnni(const uint8_t* rows, int64_t number, const int8_t* panel, int64_t groups, const int32_t* shifts, int32_t* sums) {
  by_tiles<AvxVnniTile, 6>(rows, number, panel, groups, shifts, sums);
}
END_TARGET
#endif

FOR_VNNI
template <int64_t R>
struct VnniTile {
  static void run(const uint8_t* rows, const int8_t* panel, int64_t groups, const int32_t* shifts, int32_t* sums) {
    __m512i total[R][4];
    UNROLL
    for (int64_t r = 0; r < R; ++r)
      UNROLL
      for (int64_t s = 0; s < 4; ++s) total[r][s] = _mm512_loadu_si512(shifts + 16 * s);
    for (int64_t g = 0; g < groups; ++g, panel += GROUP) {
      __m512i columns[4];
      UNROLL
      for (int64_t s = 0; s < 4; ++s) columns[s] = _mm512_loadu_si512(panel + 64 * s);
      UNROLL
      for (int64_t r = 0; r < R; ++r) {
        const __m512i x = _mm512_set1_epi32(four(rows + 4 * (r * groups + g)));
        UNROLL
        for (int64_t s = 0; s < 4; ++s) total[r][s] = _mm512_dpbusd_epi32(total[r][s], x, columns[s]);
      }
    }
    UNROLL
    for (int64_t r = 0; r < R; ++r)
      UNROLL
      for (int64_t s = 0; s < 4; ++s) _mm512_storeu_si512(sums + r * INT8_PANEL + 16 * s, total[r][s]);
  }
};

void vnni(const uint8_t* rows, int64_t number, const int8_t* panel, int64_t groups, const int32_t* shifts, int32_t* sums) {
  by_tiles<VnniTile, 6>(rows, number, panel, groups, shifts, sums);
}
END_TARGET

#ifdef HAS_AMX
FOR_AMX_INT8
// 32 rows at a time times two halves of the panel, 64 features a step; fewer rows by AVX-512.
void amx_tiles(const uint8_t* rows, int64_t number, const int8_t* panel, int64_t groups, const int32_t* shifts, int32_t* sums) {
  constexpr int64_t ROWS = 32, FEATURES = 16;
  const int64_t stride = 4 * groups;
  for (; number >= ROWS; number -= ROWS, rows += ROWS * stride, sums += ROWS * INT8_PANEL) {
    _tile_loadconfig(amx::SHAPES);
    for (int64_t c = 0; c < INT8_PANEL; c += 32) {
      _tile_loadd(0, shifts + c, 0);
      _tile_loadd(1, shifts + c + 16, 0);
      _tile_loadd(2, shifts + c, 0);
      _tile_loadd(3, shifts + c + 16, 0);
      for (int64_t g = 0; g < groups; g += FEATURES) {
        _tile_loadd(4, rows + 4 * g, stride);
        _tile_loadd(5, rows + 16 * stride + 4 * g, stride);
        _tile_loadd(6, panel + g * GROUP + 4 * c, GROUP);
        _tile_loadd(7, panel + g * GROUP + 4 * c + 64, GROUP);
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
      }
      _tile_stored(0, sums + c, 4 * INT8_PANEL);
      _tile_stored(1, sums + c + 16, 4 * INT8_PANEL);
      _tile_stored(2, sums + 16 * INT8_PANEL + c, 4 * INT8_PANEL);
      _tile_stored(3, sums + 16 * INT8_PANEL + c + 16, 4 * INT8_PANEL);
    }
    _tile_release();
  }
  if (number) vnni(rows, number, panel, groups, shifts, sums);
}
END_TARGET
#endif
#endif

const Int8Kernel KERNELS[] = {
    portable,
#if defined(__x86_64__)
    avx2,
#ifdef HAS_AVX_VNNI
    avx_vnni,
#else
    avx2,
#endif
    vnni,
#ifdef HAS_AMX
    amx_tiles,
#else
    vnni,
#endif
#endif
};

}  // namespace

Int8Kernel int8_kernel(int64_t index) { return KERNELS[index]; }

// The kernels that this processor can run, a bit for each.
EXPORTED int attent_int8_kernels() {
  int kernels = 1;
#if defined(__x86_64__)
  unsigned a, b, c, d, extended, b1, c1, d1;
  const int level = attent_simd_level();
  if (level < 1 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !__get_cpuid_count(7, 1, &extended, &b1, &c1, &d1)) return kernels | (level > 0) << 1;
  kernels |= 1 << 1 | (extended >> 4 & 1) << 2;
  if (level == 2) kernels |= (c >> 11 & 1) << 3;
  // matrix tiles of bfloat16, for which permission was asked, come with those of 8 bits
  if (kernels >> 3 & 1 && d >> 25 & 1 && attent_has_amx()) kernels |= 1 << 4;
#endif
  return kernels;
}
