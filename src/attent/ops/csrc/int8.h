// Exact sums of products of 8-bit numbers, by whatever the processor has for them; all kernels give the same integers.
#pragma once

#include <cstdint>

// Columns of a panel, and the multiple of features to which rows and panels are filled up.
constexpr int64_t INT8_PANEL = 64, INT8_STEP = 64;

// sums[r][c] (number, INT8_PANEL) = Σ_k (rows[r][k] − 128) · panel[k][c].
//
// A row has 4 · groups unsigned numbers, and rows are as far apart. A panel holds four features of its columns side by side, column by
// column, then the next four. `shifts` has −128 · Σ_k panel[k][c] for each column.
using Int8Kernel = void (*)(const uint8_t* rows, int64_t number, const int8_t* panel, int64_t groups, const int32_t* shifts, int32_t* sums);

// Plain loops; AVX2; AVX-VNNI; AVX-512 VNNI; the matrix tiles of AMX.
Int8Kernel int8_kernel(int64_t index);
