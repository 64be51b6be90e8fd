// One query for each sequence, as in a step of a search: keys and values are found where they lie, by an index for each.

#include <cstring>

#include "extension.h"

namespace {

// Key j of sequence b begins at memory + rows[b · stride + j · each] · row + j · place, its value `behind` numbers later; groups lie
// beside each other.
struct Looks {
  const float *query, *memory;
  const int64_t *rows, *counts;
  float* context;
  int64_t heads, groups, width, most, apart, stride, each, row, place, behind;
  float scale;
};

// Sequence b's queries, keys and values begin at projected + b · apart; `turned` heads of them are turned, and what lies behind the
// first `queries` numbers goes to place b of `to`, `kept` numbers of it.
struct Turned {
  float* projected;
  const float *cosine, *sine;
  float* to;
  int64_t number, turned, width, queries, kept, apart;
};

// Sequences that make a task of turning.
constexpr int64_t ROWS = 16;
// Products that one thread has done before another has begun.
constexpr int64_t FEW = 1 << 16;

#define LOOPS "looks_loops.h"
#include "each_width.h"

}  // namespace

// context (B, H, D) of query (B, H, D), whose sequences lie `apart` numbers from each other: softmax of scale · q·k over the first
// counts[b] keys, of which there is at least one and at most `most`. Returns 0, or 1 where memory ran out.
EXPORTED int attent_looks(const float* query, const float* memory, const int64_t* rows, const int64_t* counts, float* context,
                          int64_t number, int64_t heads, int64_t groups, int64_t width, int64_t most, int64_t apart, int64_t stride,
                          int64_t each, int64_t row, int64_t place, int64_t behind, float scale, int64_t threads, Parallel parallel,
                          int level) {
  const Looks job{query, memory, rows, counts, context, heads, groups, width, most, apart, stride, each, row, place, behind, scale};
  const auto task = CHOSEN(look, level);
  return run(job, task, number, 3 * most + 16, number * heads * most * width < FEW ? 1 : threads, parallel);
}

// Turns pairs of features, the first of each pair in the first half of a head, in place by angles (D/2), and writes keys and values to
// `to` (B, kept). Returns 0, or 1 where memory ran out.
EXPORTED int attent_turned(float* projected, const float* cosine, const float* sine, float* to, int64_t number, int64_t turned,
                           int64_t width, int64_t queries, int64_t kept, int64_t apart, int64_t threads, Parallel parallel, int level) {
  const Turned job{projected, cosine, sine, to, number, turned, width, queries, kept, apart};
  const auto task = CHOSEN(turn, level);
  return run(job, task, (number + ROWS - 1) / ROWS, 0, number * apart < FEW ? 1 : threads, parallel);
}
