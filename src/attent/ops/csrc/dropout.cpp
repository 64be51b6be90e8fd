// Which weights dropout keeps: the last step of the hash that ../dropout.py describes, for every row and column; and the weights after it.

#include "native.h"
#include "hash.h"

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

inline bool stays(uint32_t row, uint32_t column, uint32_t threshold) { return mixed(row + column) >= threshold; }

#define LOOPS "dropout-inl.h"
#include "foreach_target.h"

}  // namespace

// kept (number, width), one byte each, of rows (number) and columns (width) hashed. Returns 0, or 1 where memory ran out.
EXPORTED int attent_dropout_mask(const uint32_t* rows, const uint32_t* columns, uint8_t* kept, int64_t number, int64_t width,
                                 uint32_t threshold, int64_t threads, Parallel parallel, int level) {
  const Kept job{rows, columns, kept, number, width, threshold};
  const auto task = CHOSEN(keep, level);
  return run(job, task, (number + ROWS - 1) / ROWS, 0, threads, parallel);
}

// to (number, width): `from` times the factor where it stays, else 0; the two may be one. Returns 0, or 1 where memory ran out.
EXPORTED int attent_dropout(const uint32_t* rows, const uint32_t* columns, const float* from, float* to, int64_t number,
                            int64_t width, uint32_t threshold, float factor, int64_t threads, Parallel parallel, int level) {
  const Dropped job{rows, columns, from, to, number, width, threshold, factor};
  const auto task = CHOSEN(drop, level);
  return run(job, task, (number + ROWS - 1) / ROWS, 0, threads, parallel);
}
