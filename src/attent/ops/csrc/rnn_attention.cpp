// One step of a recurrent decoder's attention, for every row of a batch, and its gradients, on a CPU: scores v·tanh(q' + k') or, where
// there is no v, q'·k', their softmax and the context. docs/design.md derives the former; only they have lines of keys.
//
// Arrays hold all steps, (rows, steps, …) or where it is said (steps, rows, …), and `place` is the step that is meant. Those called
// products are bfloat16 if `half` says so, as are keys, values and contexts, the others float32. Lines are features, and up to whole
// registers others that count for nothing. Rows are computed each by itself.

#include "native.h"

#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// Rows that make a task, what lines are a multiple of, and keys that are looked at together.
constexpr int64_t ROWS = 4, MOST_LANES = 16, TOGETHER = 4;
// The largest |q'| + |k'| up to which four features or two share one division, and the largest of each for which e^2q'·e^2k' is taken.
constexpr float FOUR = 10.0f, TWO = 20.0f, ONE = 20.0f;

int64_t whole(int64_t width) { return (width + MOST_LANES - 1) / MOST_LANES * MOST_LANES; }

struct Keys {
  const void* key;
  void* lines;
  float* most;
  int64_t rows, keys, width;
  bool half;
};

struct Forward {
  // the query's product (of this step alone) and bias, v as a line, keys as they are, as lines of e^2k', and their largest sizes
  const void* product;
  const float *bias, *v, *most;
  const void *key, *lines, *values;
  const int64_t* lengths;
  float *queries, *weights;
  // (steps, rows, features)
  void* contexts;
  int64_t rows, steps, keys, width, features, place, product_row;
  bool half;
};

struct Backward {
  const float *queries, *weights, *v, *most;
  const void *key, *lines, *values;
  const int64_t* lengths;
  // of the context: a product (of this step alone) and, (steps, rows, features), what comes from outside
  const void *product, *outer;
  void* dcontexts;
  float* dscores;
  // (steps, rows, …) by the distances given
  void* dqueries;
  int64_t rows, steps, keys, width, features, place, query_step, query_row;
  bool half;
};

struct Ends {
  const float *queries, *dscores, *v, *most;
  const void* key;
  const int64_t* lengths;
  // of v those of each row
  void* dkeys;
  float* dv;
  int64_t rows, steps, keys, width;
  bool half;
};

#define LOOPS "rnn_attention-inl.h"
#include "foreach_target.h"

}  // namespace

// lines (rows, keys, whole(width)) of e^2k' and most (rows), the largest |k'| of each. Returns 0, or 1 where memory ran out.
EXPORTED int attent_rnn_attention_keys(const void* key, void* lines, float* most, int64_t rows, int64_t keys, int64_t width,
                                       int64_t half, int64_t threads, Parallel parallel, int level) {
  const Keys job{key, lines, most, rows, keys, width, half != 0};
  const auto task = CHOSEN(prepare, level);
  return run(job, task, rows, 0, threads, parallel);
}

// One step. Returns 0, or 1 where memory ran out.
EXPORTED int attent_rnn_attention(const void* product, const float* bias, const float* v, const void* key, const void* lines,
                                  const float* most, const void* values, const int64_t* lengths, float* queries, float* weights,
                                  void* contexts, int64_t rows, int64_t steps, int64_t keys, int64_t width, int64_t features,
                                  int64_t place, int64_t product_row, int64_t half, int64_t threads, Parallel parallel, int level) {
  const Forward job{product, bias, v, most, key, lines, values, lengths, queries, weights, contexts,
                    rows, steps, keys, width, features, place, product_row, half != 0};
  const auto task = CHOSEN(forward, level);
  return run(job, task, (rows + ROWS - 1) / ROWS, whole(width) + whole(features), threads, parallel);
}

// The gradients of one step. Returns 0, or 1 where memory ran out.
EXPORTED int attent_rnn_attention_gradients(const float* queries, const float* weights, const float* v, const void* key,
                                            const void* lines, const float* most, const void* values, const int64_t* lengths,
                                            const void* product, const void* outer, void* dcontexts, float* dscores, void* dqueries,
                                            int64_t rows, int64_t steps, int64_t keys, int64_t width, int64_t features,
                                            int64_t place, int64_t query_step, int64_t query_row, int64_t half, int64_t threads,
                                            Parallel parallel, int level) {
  const Backward job{queries, weights, v, most, key, lines, values, lengths, product, outer, dcontexts, dscores, dqueries,
                     rows, steps, keys, width, features, place, query_step, query_row, half != 0};
  const auto task = CHOSEN(backward, level);
  return run(job, task, (rows + ROWS - 1) / ROWS, 2 * whole(width) + whole(features), threads, parallel);
}

// When all steps have theirs, the gradients of keys and, of each row, of v (rows, width). Returns 0, or 1 where memory ran out.
EXPORTED int attent_rnn_attention_keys_gradients(const float* queries, const float* dscores, const float* v, const void* key,
                                                 const float* most, const int64_t* lengths, void* dkeys, float* dv, int64_t rows,
                                                 int64_t steps, int64_t keys, int64_t width, int64_t half, int64_t threads,
                                                 Parallel parallel, int level) {
  const Ends job{queries, dscores, v, most, key, lengths, dkeys, dv, rows, steps, keys, width, half != 0};
  const auto task = CHOSEN(finish, level);
  return run(job, task, rows, (steps + 4) * whole(width) + steps, threads, parallel);
}
