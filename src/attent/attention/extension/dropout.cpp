// Which weights dropout keeps: the last step of the hash that ../dropout.py describes, for every row and column; and the weights after it.

#include "extension.h"

namespace {

struct Kept {
  const uint32_t *rows, *columns;
  uint8_t* kept;
  int64_t number, width;
  uint32_t threshold;
};

struct Dropped {
  const uint32_t *rows, *columns;
  const float* from;
  float* to;
  int64_t number, width;
  uint32_t threshold;
  float factor;
};

// Rows that make a task.
constexpr int64_t ROWS = 16;

inline bool stays(uint32_t row, uint32_t column, uint32_t threshold) {
  uint32_t bits = row + column;
  bits = (bits ^ (bits >> 16)) * 0x7FEB352Du;
  bits = (bits ^ (bits >> 15)) * 0x846CA68Bu;
  return (bits ^ (bits >> 16)) >= threshold;
}

namespace baseline {
#include "dropout_loops.h"
}
#if defined(__x86_64__)
FOR_AVX2
namespace avx2 {
#include "dropout_loops.h"
}
FOR_ANY
FOR_AVX512
namespace avx512 {
#include "dropout_loops.h"
}
FOR_ANY
#endif

}  // namespace

// kept (number, width), one byte each, of rows (number) and columns (width) hashed. Returns 0, or 1 where memory ran out.
EXPORTED int attent_kept(const uint32_t* rows, const uint32_t* columns, uint8_t* kept, int64_t number, int64_t width, uint32_t threshold,
                         int64_t threads, Parallel parallel, int level) {
  const Kept job{rows, columns, kept, number, width, threshold};
  auto task = baseline::keep;
#if defined(__x86_64__)
  if (level == 2) task = avx512::keep;
  if (level == 1) task = avx2::keep;
#endif
  return run(job, task, (number + ROWS - 1) / ROWS, 0, threads, parallel);
}

// to (number, width): `from` times the factor where it stays, else 0; the two may be one. Returns 0, or 1 where memory ran out.
EXPORTED int attent_dropped(const uint32_t* rows, const uint32_t* columns, const float* from, float* to, int64_t number, int64_t width,
                            uint32_t threshold, float factor, int64_t threads, Parallel parallel, int level) {
  const Dropped job{rows, columns, from, to, number, width, threshold, factor};
  auto task = baseline::drop;
#if defined(__x86_64__)
  if (level == 2) task = avx512::drop;
  if (level == 1) task = avx2::drop;
#endif
  return run(job, task, (number + ROWS - 1) / ROWS, 0, threads, parallel);
}
