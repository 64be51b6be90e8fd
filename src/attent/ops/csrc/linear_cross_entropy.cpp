// The cross entropy of logits and its gradient, row by row: a row's exponentials stay in the cache
// between the pass that sums them and the one that divides. The order of a row's sums depends on its width alone.

#include "native.h"

#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

struct Losses {
  void* logits;
  const int64_t* target;
  // or null
  const float* bias;
  float* losses;
  // of each task, the sums of its rows' gradients; or null
  float* columns;
  int64_t rows, width;
  bool is_half, needs_grad;
  float smoothing;
};

// Rows of a task.
constexpr int64_t ROWS = 16;

#define LOOPS "linear_cross_entropy-inl.h"
#include "foreach_target.h"

}  // namespace

// losses (rows) of logits (rows, width), bfloat16 (is_half) or float32, and targets below the width. With `needs_grad` the logits
// are replaced by their gradients: softmax − smoothing / width, less 1 − smoothing at the target. With a bias (width), which
// is added to the logits, columns (rows / 16 rounded up, width) are sums of 16 rows' gradients, before rounding.
// Returns 0, or 1 if out of memory.
EXPORTED int attent_linear_cross_entropy(void* logits, const int64_t* target, const float* bias, float* losses, float* columns,
                                         int64_t rows, int64_t width, int64_t is_half, int64_t needs_grad, float smoothing,
                                         int64_t threads, Parallel parallel, int level) {
  const Losses job{logits, target, bias, losses, columns, rows, width, is_half != 0, needs_grad != 0, smoothing};
  const auto task = DISPATCH(loss_task, level);
  return run(job, task, (rows + ROWS - 1) / ROWS, width, threads, parallel);
}
