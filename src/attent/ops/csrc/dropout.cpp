// The mask of dropout, by the last step of the hash that ../dropout.py describes, and the weights after it.

#include "native.h"
#include "hash.h"

namespace {

struct MaskProblem {
  const uint32_t *rows, *columns;
  uint8_t* mask;
  int64_t number, width;
  uint32_t threshold;
};

struct DropoutProblem {
  const uint32_t *rows, *columns;
  const float* input;
  float* output;
  int64_t number, width;
  uint32_t threshold;
  float factor;
};

// Rows of a task.
constexpr int64_t ROWS = 16;

inline bool is_kept(uint32_t row, uint32_t column, uint32_t threshold) { return lowbias32(row + column) >= threshold; }

#define LOOPS "dropout-inl.h"
#include "foreach_target.h"

}  // namespace

// mask (number, width), a byte each, from hashed rows (number) and columns (width). Returns 0, or 1 if out of memory.
EXPORTED int attent_dropout_mask(const uint32_t* rows, const uint32_t* columns, uint8_t* mask, int64_t number, int64_t width,
                                 uint32_t threshold, int64_t threads, Parallel parallel, int level) {
  const MaskProblem job{rows, columns, mask, number, width, threshold};
  const auto task = DISPATCH(mask_rows, level);
  return run(job, task, (number + ROWS - 1) / ROWS, 0, threads, parallel);
}

// output (number, width): input times the factor where it is kept, else 0; both may be the same array. Returns 0, or 1 if out of memory.
EXPORTED int attent_dropout(const uint32_t* rows, const uint32_t* columns, const float* input, float* output, int64_t number,
                            int64_t width, uint32_t threshold, float factor, int64_t threads, Parallel parallel, int level) {
  const DropoutProblem job{rows, columns, input, output, number, width, threshold, factor};
  const auto task = DISPATCH(dropout_rows, level);
  return run(job, task, (number + ROWS - 1) / ROWS, 0, threads, parallel);
}
