// x + Dropout(f) and its layer normalisation in one sweep over the rows, and the gradients in another, on a CPU. What dropout keeps is
// the hash that ../dropout.py describes, of (seed, row, column) for one sequence and one head, made anew for the gradients.
//
// All arrays are contiguous; those of which it is said that they may be `half` are bfloat16 then, the others float32. Sums over rows
// are taken in an order that depends on the shapes alone, never on the threads.

#include "native.h"
#include "hash.h"

#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// Rows that make a task, and what the lines of all register widths are a multiple of.
constexpr int64_t ROWS = 64, MOST_LANES = 16;
constexpr uint32_t OF_ROW = 0xC2B2AE3Du, OF_COLUMN = 0x5BD1E995u;

struct Drops {
  uint32_t start, threshold;
  float factor;
  const uint32_t* columns;
};

struct Forward {
  const float* features;
  const void* output;
  const float *weight, *bias;
  float* together;
  void* normalised;
  float* statistics;
  int64_t number, width, line;
  bool output_half, normalised_half;
  Drops drops;
  float epsilon;
};

struct Backward {
  const float* together;
  const void* dnormalised;
  const float *dtogether, *weight, *statistics;
  float* dfeatures;
  void* doutput;
  int64_t number, width, line;
  bool output_half, normalised_half;
  Drops drops;
  // of each task those of weight and of bias
  float* sums;
};

// What `to` gets of each column, hashed.
Drops drops_of(uint32_t seed, uint32_t threshold, float factor, int64_t line, float* to) {
  uint32_t* columns = reinterpret_cast<uint32_t*>(to);
  for (int64_t j = 0; j < line; ++j) columns[j] = mixed(OF_COLUMN + static_cast<uint32_t>(j));
  return {mixed(seed), threshold, factor, columns};
}

// A row that ends with whole registers, zero behind its end.
const float* lengthened(const float* from, int64_t width, int64_t line, float* to) {
  std::memcpy(to, from, 4 * width);
  for (int64_t j = width; j < line; ++j) to[j] = 0;
  return to;
}

#define LOOPS "add_layer_norm-inl.h"
#include "foreach_target.h"

}  // namespace

// Of features and output (number, width), the latter perhaps half or none, together = features + Dropout(output), normalised =
// LayerNorm(together), perhaps half, and statistics (number, 2), mean and 1/σ. Returns 0, or 1 where memory ran out.
EXPORTED int attent_add_layer_norm(const float* features, const void* output, const float* weight, const float* bias,
                                   float* together, void* normalised, float* statistics, int64_t number, int64_t width,
                                   int64_t output_half, int64_t normalised_half, uint32_t seed, uint32_t threshold, float factor,
                                   float epsilon, int64_t threads, Parallel parallel, int level) {
  const int64_t line = (width + MOST_LANES - 1) / MOST_LANES * MOST_LANES;
  Memory memory;
  float *columns = memory.ask(line), *long_weight = memory.ask(line), *long_bias = memory.ask(line);
  if (memory.failed) return 1;
  const Forward job{features, output, lengthened(weight, width, line, long_weight), lengthened(bias, width, line, long_bias),
                    together, normalised, statistics, number, width, line, output_half != 0, normalised_half != 0,
                    drops_of(seed, threshold, factor, line, columns), epsilon};
  const auto task = CHOSEN(forward, level);
  return run(job, task, (number + ROWS - 1) / ROWS, 2 * line, threads, parallel);
}

// The gradients of features, output (if there is one), weight and bias, from those of normalised and of together (if it has one).
// Returns 0, or 1 where memory ran out.
EXPORTED int attent_add_layer_norm_gradients(const float* together, const void* dnormalised, const float* dtogether,
                                             const float* weight, const float* statistics, float* dfeatures, void* doutput,
                                             float* dweight, float* dbias, int64_t number, int64_t width, int64_t output_half,
                                             int64_t normalised_half, uint32_t seed, uint32_t threshold, float factor,
                                             int64_t threads, Parallel parallel, int level) {
  const int64_t line = (width + MOST_LANES - 1) / MOST_LANES * MOST_LANES, tasks = (number + ROWS - 1) / ROWS;
  Memory memory;
  float *columns = memory.ask(line), *long_weight = memory.ask(line), *sums = memory.ask(tasks * 2 * line);
  if (memory.failed) return 1;
  const Backward job{together, dnormalised, dtogether, lengthened(weight, width, line, long_weight), statistics, dfeatures, doutput,
                     number, width, line, output_half != 0, normalised_half != 0,
                     drops_of(seed, threshold, factor, line, columns), sums};
  const auto task = CHOSEN(backward, level);
  if (run(job, task, tasks, 3 * line, threads, parallel)) return 1;
  for (int64_t one = 1; one < tasks; ++one)
    for (int64_t j = 0; j < 2 * line; ++j) sums[j] += sums[one * 2 * line + j];
  std::memcpy(dweight, sums, 4 * width);
  std::memcpy(dbias, sums + line, 4 * width);
  return 0;
}
