// Rows times packed weights.

#include <cstring>

#include "decoder.h"
#include "int8.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

struct Gemm {
  const float* rows;
  const uint8_t* panels;
  float* to;
  int64_t number, depth, columns, kind, parts, task_columns;
};

// Rows of a task, and its columns at least.
constexpr int64_t TASK_ROWS = 192, TASK_COLUMNS = 512;

#define LOOPS "packed_gemm-inl.h"
#include "foreach_target.h"

}  // namespace

// to (number, columns) = rows (number, depth) times the panels, plus their bias. Returns 0, or 1 if out of memory.
EXPORTED int attent_packed_gemm(const float* rows, const uint8_t* panels, float* to, int64_t number, int64_t depth, int64_t columns,
                                int64_t kind, int64_t threads, Parallel parallel, int level) {
  // each task rounds its rows to 8 bits for itself: few and wide tasks do so seldom
  const int64_t wide = kind > 1 ? columns / (4 * threads) / TASK_COLUMNS * TASK_COLUMNS : 0;
  const int64_t task_columns = wide > TASK_COLUMNS ? wide : TASK_COLUMNS;
  const int64_t parts = (columns + task_columns - 1) / task_columns, tasks = (number + TASK_ROWS - 1) / TASK_ROWS * parts;
  const Gemm job{rows, panels, to, number, depth, columns, kind, parts, task_columns};
  const auto task = DISPATCH(gemm_task, level);
  return run(job, task, tasks, 0, threads, parallel);
}
