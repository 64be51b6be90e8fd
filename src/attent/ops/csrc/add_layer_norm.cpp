// x + Dropout(f) and its layer normalization in one sweep over the rows, and the gradients in another. The dropout mask is the hash
// of (seed, row, column) that ../dropout.py describes, for one sequence and one head; the gradients recompute it.
//
// All arrays are contiguous; those with a flag `is_*_half` may be bfloat16, the others are float32. The order of sums over rows
// depends on the shapes alone, never on the threads.

#include "native.h"
#include "hash.h"

#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// Rows of a task, and the multiple that lines are padded to.
constexpr int64_t ROWS = 64, MAX_LANES = 16;
constexpr uint32_t OF_ROW = 0xC2B2AE3Du, OF_COLUMN = 0x5BD1E995u;

struct DropoutState {
  uint32_t start, threshold;
  float factor;
  const uint32_t* columns;
};

struct Forward {
  const float* features;
  const void* output;
  const float *weight, *bias;
  float* total;
  void* normalized;
  float* statistics;
  int64_t number, width, line;
  bool is_output_half, is_normalized_half;
  DropoutState dropout;
  float epsilon;
};

struct Backward {
  const float* total;
  const void* dnormalized;
  const float *dtotal, *weight, *statistics;
  float* dfeatures;
  void* doutput;
  int64_t number, width, line;
  bool is_output_half, is_normalized_half;
  DropoutState dropout;
  // of each task, the gradients of weight and bias
  float* sums;
};

// Hash the columns into `to`.
DropoutState make_dropout(uint32_t seed, uint32_t threshold, float factor, int64_t line, float* to) {
  uint32_t* columns = reinterpret_cast<uint32_t*>(to);
  for (int64_t j = 0; j < line; ++j) columns[j] = lowbias32(OF_COLUMN + static_cast<uint32_t>(j));
  return {lowbias32(seed), threshold, factor, columns};
}

// A row padded with zeros to whole registers.
const float* padded_row(const float* from, int64_t width, int64_t line, float* to) {
  std::memcpy(to, from, 4 * width);
  for (int64_t j = width; j < line; ++j) to[j] = 0;
  return to;
}

#define LOOPS "add_layer_norm-inl.h"
#include "foreach_target.h"

}  // namespace

// total = features + Dropout(output), normalized = LayerNorm(total) and statistics (number, 2), mean and 1/σ, of features and output
// (number, width). The output may be null. Returns 0, or 1 if out of memory.
EXPORTED int attent_add_layer_norm(const float* features, const void* output, const float* weight, const float* bias, float* total,
                                   void* normalized, float* statistics, int64_t number, int64_t width, int64_t is_output_half,
                                   int64_t is_normalized_half, uint32_t seed, uint32_t threshold, float factor, float epsilon,
                                   int64_t threads, Parallel parallel, int level) {
  const int64_t line = (width + MAX_LANES - 1) / MAX_LANES * MAX_LANES;
  Memory memory;
  float *columns = memory.allocate(line), *long_weight = memory.allocate(line), *long_bias = memory.allocate(line);
  if (memory.failed) return 1;
  const Forward job{features, output, padded_row(weight, width, line, long_weight), padded_row(bias, width, line, long_bias),
                    total, normalized, statistics, number, width, line, is_output_half != 0, is_normalized_half != 0,
                    make_dropout(seed, threshold, factor, line, columns), epsilon};
  const auto task = DISPATCH(forward, level);
  return run(job, task, (number + ROWS - 1) / ROWS, 2 * line, threads, parallel);
}

// The gradients of features, output (if any), weight and bias, from those of normalized and of total (if any).
// Returns 0, or 1 if out of memory.
EXPORTED int attent_add_layer_norm_gradients(const float* total, const void* dnormalized, const float* dtotal, const float* weight,
                                             const float* statistics, float* dfeatures, void* doutput, float* dweight, float* dbias,
                                             int64_t number, int64_t width, int64_t is_output_half, int64_t is_normalized_half,
                                             uint32_t seed, uint32_t threshold, float factor, int64_t threads, Parallel parallel,
                                             int level) {
  const int64_t line = (width + MAX_LANES - 1) / MAX_LANES * MAX_LANES, tasks = (number + ROWS - 1) / ROWS;
  Memory memory;
  float *columns = memory.allocate(line), *long_weight = memory.allocate(line), *sums = memory.allocate(tasks * 2 * line);
  if (memory.failed) return 1;
  const Backward job{total, dnormalized, dtotal, padded_row(weight, width, line, long_weight), statistics, dfeatures, doutput,
                     number, width, line, is_output_half != 0, is_normalized_half != 0,
                     make_dropout(seed, threshold, factor, line, columns), sums};
  const auto task = DISPATCH(backward, level);
  if (run(job, task, tasks, 3 * line, threads, parallel)) return 1;
  for (int64_t task_index = 1; task_index < tasks; ++task_index)
    for (int64_t j = 0; j < 2 * line; ++j) sums[j] += sums[task_index * 2 * line + j];
  std::memcpy(dweight, sums, 4 * width);
  std::memcpy(dbias, sums + line, 4 * width);
  return 0;
}
