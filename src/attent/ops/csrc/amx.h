// Products of bfloat16 by the processor's matrix tiles (AMX), where compiler and processor have them. Included inside a namespace.
//
// A tile of the left side is 16 rows of 32 numbers. A tile of the right side is 32 rows of 16 columns, stored as 16 rows of pairs: row
// p holds rows 2p and 2p + 1 side by side, column by column. Products of both are summed in float32.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__linux__) && defined(__has_include)
// clang has the products of all types in one header
#if defined(__clang__) ? __clang_major__ >= 13 && __has_include(<amxintrin.h>) : __GNUC__ >= 11 && __has_include(<amxbf16intrin.h>)
#define HAS_AMX 1
#endif
#endif

#ifdef HAS_AMX
#include <immintrin.h>

#if defined(__clang__)
#define FOR_AMX \
  _Pragma("clang attribute push(__attribute__((target(\"amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16\"))), apply_to = function)")
#else
#define FOR_AMX _Pragma("GCC push_options") _Pragma("GCC target(\"amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16\")")
#endif

FOR_AMX
namespace amx {

// Numbers of a tile of 16 bits, and of one of float32.
constexpr int64_t TILE = 512, SUMS = 256;

// Eight tiles of 16 rows of 64 bytes: which kind, the bytes of a row of each (two numbers a word), the rows of each.
alignas(64) const uint8_t SHAPES[64] = {1,  0, 0,  0, 0,  0, 0,  0, 0,  0, 0,  0, 0,  0, 0,  0,  // kind
                                        64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0,  // bytes
                                        0,  0, 0,  0, 0,  0, 0,  0, 0,  0, 0,  0, 0,  0, 0,  0,
                                        16, 16, 16, 16, 16, 16, 16, 16};  // rows

// Configure the tiles for the length of a task.
struct Tiles {
  Tiles() { _tile_loadconfig(SHAPES); }
  ~Tiles() { _tile_release(); }
};

// 32 rows times 32 columns, summed in tiles 0 (rows 0–15, columns 0–15), 1, 2 and 3 over `steps` of 32. A row of the left side takes
// `stride` bytes, and a step advances `step` numbers; the right side has two consecutive tiles a step.
static inline void multiply(const uint16_t* left, int64_t stride, int64_t second, int64_t step, const uint16_t* right, int64_t steps) {
  for (int64_t s = 0; s < steps; ++s, left += step, right += 2 * TILE) {
    _tile_loadd(4, left, stride);
    _tile_loadd(5, left + second, stride);
    _tile_loadd(6, right, 64);
    _tile_loadd(7, right + TILE, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

static inline void clear() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// Store the sums as rows of 32, `stride` bytes apart.
static inline void put(float* to, int64_t stride) {
  _tile_stored(0, to, stride);
  _tile_stored(1, to + 16, stride);
  _tile_stored(2, to + 4 * stride, stride);
  _tile_stored(3, to + 4 * stride + 16, stride);
}

static inline void get(const float* from, int64_t stride) {
  _tile_loadd(0, from, stride);
  _tile_loadd(1, from + 16, stride);
  _tile_loadd(2, from + 4 * stride, stride);
  _tile_loadd(3, from + 4 * stride + 16, stride);
}

// Round to nearest, ties to even.
static inline __m512i to_bfloat16(__m512 low, __m512 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

static inline __m512i to_bfloat16(const float* from) { return to_bfloat16(_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16)); }

// Transpose 16 rows of 16 words.
static inline void transpose(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

// A tile of the right side: 32 rows and 16 columns of Wᵀ, of which W has 16 rows `width` apart.
static inline void pack_transposed(const float* from, int64_t width, uint16_t* to) {
  __m512i rows[16];
  for (int i = 0; i < 16; ++i) rows[i] = to_bfloat16(from + i * width);
  transpose(rows);
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + 32 * i, rows[i]);
}

// Two tiles of the right side: 32 rows, `width` apart, of 32 columns.
static inline void pack(const float* from, int64_t width, uint16_t* to) {
  const __m512i indices = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3,
                                          34, 2, 33, 1, 32, 0);
  const __m512i upper_indices = _mm512_add_epi16(indices, _mm512_set1_epi16(16));
  for (int p = 0; p < 16; ++p) {
    const __m512i even = to_bfloat16(from + 2 * p * width), odd = to_bfloat16(from + (2 * p + 1) * width);
    _mm512_storeu_si512(to + 32 * p, _mm512_permutex2var_epi16(even, indices, odd));
    _mm512_storeu_si512(to + TILE + 32 * p, _mm512_permutex2var_epi16(even, upper_indices, odd));
  }
}

// Interleave pairs of rows within 128-bit lanes: `low` gets columns 0–3, 8–11, 16–19 and 24–27 of 32, `high` the others.
static inline void weave(const uint16_t* from, int64_t width, int64_t rows, __m512i (&low)[16], __m512i (&high)[16]) {
  for (int64_t p = 0; p < 16; ++p) {
    const __m512i even = 2 * p < rows ? _mm512_loadu_si512(from + 2 * p * width) : _mm512_setzero_si512();
    const __m512i odd = 2 * p + 1 < rows ? _mm512_loadu_si512(from + (2 * p + 1) * width) : _mm512_setzero_si512();
    low[p] = _mm512_unpacklo_epi16(even, odd);
    high[p] = _mm512_unpackhi_epi16(even, odd);
  }
}

static inline void write(const __m512i (&rows)[16], uint16_t* to) {
  for (int p = 0; p < 16; ++p) _mm512_storeu_si512(to + 32 * p, rows[p]);
}

// The column, of 32, at a position of the interleaved columns.
static inline int64_t woven(int64_t position) { return position % 16 / 4 * 8 + position % 4 + position / 16 * 4; }

// Restore the order of 2 × 16 interleaved numbers.
static inline void unweave(__m512 low, __m512 high, float* to) {
  const __m512i first = _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  _mm512_storeu_ps(to, _mm512_permutex2var_ps(low, first, high));
  _mm512_storeu_ps(to + 16, _mm512_permutex2var_ps(low, second, high));
}

}  // namespace amx
END_TARGET
#endif
