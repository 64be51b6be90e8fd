// Rows times packed weights.

#include <cstring>

#include "native.h"

namespace {

struct Products {
  const float *rows, *panels;
  float* to;
  int64_t number, depth, columns, parts;
};

// Rows, and columns, that make a task.
constexpr int64_t TALL = 192, BROAD = 512;

#define LOOPS "packed_gemm-inl.h"
#include "foreach_target.h"

}  // namespace

// to (number, columns) = rows (number, depth) times the panels, plus the bias that follows them. Returns 0, or 1 where memory ran out.
EXPORTED int attent_packed_gemm(const float* rows, const float* panels, float* to, int64_t number, int64_t depth, int64_t columns,
                                int64_t threads, Parallel parallel, int level) {
  const int64_t parts = (columns + BROAD - 1) / BROAD, tasks = (number + TALL - 1) / TALL * parts;
  const Products job{rows, panels, to, number, depth, columns, parts};
  const auto task = CHOSEN(multiplied, level);
  return run(job, task, tasks, 0, threads, parallel);
}
