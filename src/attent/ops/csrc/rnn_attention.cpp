// One step of a recurrent decoder's attention, for every row of a batch, and its gradients, on a CPU: scores v·tanh(q' + k') or, where
// there is no v, q'·k', their softmax and the context. docs/design.md derives the former; only these have lowered keys.
//
// Arrays hold all steps, (rows, steps, …) or, where noted, (steps, rows, …); a call computes `step`. Products, keys, values and
// contexts are bfloat16 if `is_half`, the others float32. Lines are features padded to whole registers. Rows are independent of each other.

#include "native.h"

#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// Rows of a task, the multiple that lines are padded to, and keys of one pass of the inner loop.
constexpr int64_t ROWS = 4, MOST_LANES = 16, UNROLL = 4;
// The largest |q'| + |k'| for which 4 or 2 keys share one division, and the largest |q'| or |k'| for which e^2q'·e^2k' is used.
constexpr float MAX_SHARED_BY_4 = 10.0f, MAX_SHARED_BY_2 = 20.0f, MAX_SINGLE = 20.0f;

int64_t padded(int64_t width) { return (width + MOST_LANES - 1) / MOST_LANES * MOST_LANES; }

struct Keys {
  const void* key;
  void* lowered_keys;
  float* maxima;
  int64_t rows, keys, width;
  bool is_half;
};

struct Forward {
  // the query's product (of this step) and bias, v as a line, and the keys with their lines of e^2k' and largest magnitudes
  const void* product;
  const float *bias, *v, *maxima;
  const void *key, *lowered_keys, *values;
  const int64_t* lengths;
  float *queries, *weights;
  // (steps, rows, features)
  void* contexts;
  int64_t rows, steps, keys, width, features, step, product_row;
  bool is_half;
};

struct Backward {
  const float *queries, *weights, *v, *maxima;
  const void *key, *lowered_keys, *values;
  const int64_t* lengths;
  // parts of the context's gradient: a product (of this step), and from the outputs (steps, rows, features)
  const void *product, *outer_gradient;
  void* dcontexts;
  float* dscores;
  // (steps, rows, …), with the given strides
  void* dqueries;
  int64_t rows, steps, keys, width, features, step, query_step, query_row;
  bool is_half;
};

struct KeyGradients {
  const float *queries, *dscores, *v, *maxima;
  const void* key;
  const int64_t* lengths;
  // dv holds a row for each row of the batch
  void* dkeys;
  float* dv;
  int64_t rows, steps, keys, width;
  bool is_half;
};

#define LOOPS "rnn_attention-inl.h"
#include "foreach_target.h"

}  // namespace

// lowered_keys (rows, keys, padded(width)), e^2k', and maxima (rows), the largest |k'| of each row. Returns 0, or 1 if out of memory.
EXPORTED int attent_rnn_attention_keys(const void* key, void* lowered_keys, float* maxima, int64_t rows, int64_t keys,
                                       int64_t width, int64_t is_half, int64_t threads, Parallel parallel, int level) {
  const Keys job{key, lowered_keys, maxima, rows, keys, width, is_half != 0};
  const auto task = DISPATCH(prepare, level);
  return run(job, task, rows, 0, threads, parallel);
}

// One step. Returns 0, or 1 if out of memory.
EXPORTED int attent_rnn_attention(const void* product, const float* bias, const float* v, const void* key, const void* lowered_keys,
                                  const float* maxima, const void* values, const int64_t* lengths, float* queries, float* weights,
                                  void* contexts, int64_t rows, int64_t steps, int64_t keys, int64_t width, int64_t features,
                                  int64_t step, int64_t product_row, int64_t is_half, int64_t threads, Parallel parallel,
                                  int level) {
  const Forward job{product, bias, v, maxima, key, lowered_keys, values, lengths, queries, weights, contexts,
                    rows, steps, keys, width, features, step, product_row, is_half != 0};
  const auto task = DISPATCH(forward, level);
  return run(job, task, (rows + ROWS - 1) / ROWS, padded(width) + padded(features), threads, parallel);
}

// The gradients of one step. Returns 0, or 1 if out of memory.
EXPORTED int attent_rnn_attention_gradients(const float* queries, const float* weights, const float* v, const void* key,
                                            const void* lowered_keys, const float* maxima, const void* values,
                                            const int64_t* lengths, const void* product, const void* outer_gradient,
                                            void* dcontexts, float* dscores, void* dqueries, int64_t rows, int64_t steps,
                                            int64_t keys, int64_t width, int64_t features, int64_t step, int64_t query_step,
                                            int64_t query_row, int64_t is_half, int64_t threads, Parallel parallel, int level) {
  const Backward job{queries, weights, v, maxima, key, lowered_keys, values, lengths, product, outer_gradient, dcontexts, dscores, dqueries,
                     rows, steps, keys, width, features, step, query_step, query_row, is_half != 0};
  const auto task = DISPATCH(backward, level);
  return run(job, task, (rows + ROWS - 1) / ROWS, 2 * padded(width) + padded(features), threads, parallel);
}

// After the gradients of all steps, those of the keys and, for each row, of v (rows, width). Returns 0, or 1 if out of memory.
EXPORTED int attent_rnn_attention_keys_gradients(const float* queries, const float* dscores, const float* v, const void* key,
                                                 const float* maxima, const int64_t* lengths, void* dkeys, float* dv, int64_t rows,
                                                 int64_t steps, int64_t keys, int64_t width, int64_t is_half, int64_t threads,
                                                 Parallel parallel, int level) {
  const KeyGradients job{queries, dscores, v, maxima, key, lengths, dkeys, dv, rows, steps, keys, width, is_half != 0};
  const auto task = DISPATCH(key_gradients, level);
  return run(job, task, rows, (steps + 4) * padded(width) + steps, threads, parallel);
}
