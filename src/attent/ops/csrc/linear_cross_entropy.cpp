// The cross entropy of some tokens given their logits, and its slope in each logit, row by row: a row's exponentials stay in the cache
// between the pass that sums them and the one that divides. Every row is summed in an order that its width alone decides.

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
  // or none
  const float* bias;
  float* losses;
  // of each task the sums of its rows' slopes, or none
  float* columns;
  int64_t rows, width;
  bool halves, wanted;
  float smoothing;
};

// Rows that make a task.
constexpr int64_t ROWS = 16;

#define LOOPS "linear_cross_entropy-inl.h"
#include "foreach_target.h"

}  // namespace

// losses (rows) of logits (rows, width), bfloat16 (halves) or float32, and targets that lie within the width. The logits are lost: where
// the slopes are wanted, softmax − smoothing / width, less 1 − smoothing at the target, stands in their place. With a bias (width), which
// is added to the logits, columns (rows / 16 rounded up, width) are sums of 16 rows' slopes before these are rounded. Returns 0, or 1
// where memory ran out.
EXPORTED int attent_linear_cross_entropy(void* logits, const int64_t* target, const float* bias, float* losses, float* columns,
                                         int64_t rows, int64_t width, int64_t halves, int64_t wanted, float smoothing,
                                         int64_t threads, Parallel parallel, int level) {
  const Losses job{logits, target, bias, losses, columns, rows, width, halves != 0, wanted != 0, smoothing};
  const auto task = CHOSEN(loss_task, level);
  return run(job, task, (rows + ROWS - 1) / ROWS, width, threads, parallel);
}
