// Which weights dropout keeps: the last step of the hash that ../dropout.py describes, for every row and column.

#include "extension.h"

namespace {

struct Kept {
  const uint32_t *rows, *columns;
  uint8_t* kept;
  int64_t number, width;
  uint32_t threshold;
};

// Rows that make a task.
constexpr int64_t ROWS = 16;

#define TASK                                                                                        \
  static void task(const Kept& job, int64_t task, float*) {                                         \
    const int64_t last = task * ROWS + ROWS < job.number ? task * ROWS + ROWS : job.number;         \
    for (int64_t i = task * ROWS; i < last; ++i) {                                                  \
      const uint32_t row = job.rows[i], threshold = job.threshold;                                  \
      const uint32_t* __restrict columns = job.columns;                                             \
      uint8_t* __restrict kept = job.kept + i * job.width;                                          \
      for (int64_t j = 0; j < job.width; ++j) {                                                     \
        uint32_t bits = row + columns[j];                                                           \
        bits = (bits ^ (bits >> 16)) * 0x7FEB352Du;                                                 \
        bits = (bits ^ (bits >> 15)) * 0x846CA68Bu;                                                 \
        kept[j] = (bits ^ (bits >> 16)) >= threshold;                                               \
      }                                                                                             \
    }                                                                                               \
  }

namespace baseline {
TASK
}
#if defined(__x86_64__)
FOR_AVX2
namespace avx2 {
TASK
}
FOR_ANY
FOR_AVX512
namespace avx512 {
TASK
}
FOR_ANY
#endif

}  // namespace

// The widest registers that this processor has: 2 for AVX-512, 1 for AVX2, 0 for any.
EXPORTED int attent_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
    return 2;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
  return 0;
}

// kept (number, width), one byte each, of rows (number) and columns (width) hashed. Returns 0, or 1 where memory ran out.
EXPORTED int attent_kept(const uint32_t* rows, const uint32_t* columns, uint8_t* kept, int64_t number, int64_t width, uint32_t threshold,
                         int64_t threads, Parallel parallel, int level) {
  const Kept job{rows, columns, kept, number, width, threshold};
  auto task = baseline::task;
#if defined(__x86_64__)
  if (level == 2) task = avx512::task;
  if (level == 1) task = avx2::task;
#endif
  return run(job, task, (number + ROWS - 1) / ROWS, 0, threads, parallel);
}
