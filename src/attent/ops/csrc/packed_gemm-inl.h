// The loops of packed_gemm.cpp for one width of vector registers (LANES floats). foreach_target.h includes this file for each width.

#include "simd.h"
#include "bfloat16.h"
#include "packed_gemm.h"

// `multiply` into rows without padding after the last column.
static void multiply_unpadded(const Product& product, const float* rows, int64_t number, int64_t stride, int64_t begin, int64_t end,
                              float* to, int64_t to_stride) {
  const int64_t full = end < product.columns ? end : product.columns / PANEL * PANEL;
  if (begin < full) multiply(product, rows, number, stride, begin, full, to, to_stride);
  if (full >= end) return;
  const int64_t remaining = product.columns - full;
  float buffer[TILE_ROWS * PANEL];
  const Product tail{product.panels + full / PANEL * panel_size(product.kind, product.depth), product.depth, remaining, product.kind};
  for (int64_t i = 0; i < number; i += TILE_ROWS) {
    const int64_t rows_left = number - i < TILE_ROWS ? number - i : TILE_ROWS;
    multiply(tail, rows + i * stride, rows_left, stride, 0, PANEL, buffer, PANEL);
    for (int64_t r = 0; r < rows_left; ++r) memcpy(to + (i + r) * to_stride + full, buffer + r * PANEL, 4 * remaining);
  }
}

// A task: a block of rows times a block of columns.
static void gemm_task(const Gemm& job, int64_t task, float*) {
  const int64_t i = task / job.parts * TASK_ROWS, begin = task % job.parts * job.task_columns;
  const int64_t number = job.number - i < TASK_ROWS ? job.number - i : TASK_ROWS,
      end = begin + job.task_columns < job.columns ? begin + job.task_columns : job.columns;
  const Product product{job.panels, job.depth, job.columns, job.kind};
  multiply_unpadded(product, job.rows + i * job.depth, number, job.depth, begin, end, job.to + i * job.columns, job.columns);
}
