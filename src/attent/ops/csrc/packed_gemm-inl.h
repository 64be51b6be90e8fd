// The loops of products.cpp for one width of vector registers, LANES. Included once for each, inside a namespace of its own and under that
// width's compiler target.

#include "simd.h"
#include "packed_gemm.h"

// `multiply` to where there is no room behind the last column.
static void multiply_exactly(const Product& product, const float* rows, int64_t number, int64_t apart, int64_t first, int64_t last,
                             float* to, int64_t gap) {
  const int64_t whole = last < product.columns ? last : product.columns / PANEL * PANEL;
  if (first < whole) multiply(product, rows, number, apart, first, whole, to, gap);
  if (whole >= last) return;
  const int64_t rest = product.columns - whole;
  float some[HIGH * PANEL];
  const Product end{product.panels + whole * product.depth, product.bias + whole, product.depth, rest};
  for (int64_t i = 0; i < number; i += HIGH) {
    const int64_t few = number - i < HIGH ? number - i : HIGH;
    multiply(end, rows + i * apart, few, apart, 0, PANEL, some, PANEL);
    for (int64_t r = 0; r < few; ++r) memcpy(to + (i + r) * gap + whole, some + r * PANEL, 4 * rest);
  }
}

// Some rows times some columns.
static void multiplied(const Products& job, int64_t task, float*) {
  const int64_t i = task / job.parts * TALL, first = task % job.parts * BROAD;
  const int64_t number = job.number - i < TALL ? job.number - i : TALL, last = first + BROAD < job.columns ? first + BROAD : job.columns;
  const Product product{job.panels, job.panels + job.depth * padded(job.columns), job.depth, job.columns};
  multiply_exactly(product, job.rows + i * job.depth, number, job.depth, first, last, job.to + i * job.columns, job.columns);
}
