// One step of a GRU or LSTM layer for a batch, and its gradients: everything but the matrix products.
// ../../layers/recurrent.py writes the equations.
//
// Arrays hold all steps, (steps, rows, …), of which a call computes `step`. Products and the activations saved for the gradients are
// bfloat16 if `is_half`, the others float32. Missing arrays are null. Rows are independent of each other.

#include "native.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// Rows of a task.
constexpr int64_t ROWS = 8;

// Distances between an array's steps and rows, in numbers.
struct Strides {
  int64_t step, row;
};

struct Forward {
  // products with matrices: of the inputs (all steps), of the fed input and of the last state (this step)
  const void *inputs, *feed, *recurrent;
  // of the products of the inputs and of the state
  const float *input_bias, *recurrent_bias;
  const float *hidden, *cell;
  float *next_hidden, *next_cell;
  // the next state in bfloat16, for the next product; or null
  void* next_hidden_half;
  // of each row, for the gradients: r, z, n and the state's product in n (GRU), or i, f, g and o (LSTM)
  void* saved;
  // steps of each row, zeros follow; or null
  const int64_t* lengths;
  int64_t rows, width, step;
  Strides input_strides;
  int64_t recurrent_row;
  bool is_half, is_lstm;
};

struct Backward {
  const float *hidden, *cell, *next_cell;
  const void* saved;
  // parts of the state's gradient: from the next step (replaced by that of the last step), from the product with the state, and from
  // the outputs
  float *carried_hidden, *carried_cell;
  const void *product, *outer_gradient;
  // gradients of the products of the inputs and of the state
  void *dinputs, *drecurrent;
  const int64_t* lengths;
  int64_t rows, width, step;
  Strides input_strides, recurrent_strides;
  bool is_half, is_outer_half, is_lstm;
};

#define LOOPS "rnn_cell-inl.h"
#include "foreach_target.h"

}  // namespace

// One step. Returns 0, or 1 if out of memory.
EXPORTED int attent_rnn_cell(const void* inputs, const void* feed, const void* recurrent, const float* input_bias,
                             const float* recurrent_bias, const float* hidden, const float* cell, float* next_hidden,
                             float* next_cell, void* next_hidden_half, void* saved, const int64_t* lengths, int64_t rows,
                             int64_t width, int64_t step, int64_t input_step, int64_t input_row, int64_t recurrent_row,
                             int64_t is_half, int64_t is_lstm, int64_t threads, Parallel parallel, int level) {
  const Forward job{inputs, feed, recurrent, input_bias, recurrent_bias, hidden, cell, next_hidden, next_cell, next_hidden_half, saved,
                    lengths, rows, width, step, {input_step, input_row}, recurrent_row, is_half != 0, is_lstm != 0};
  const auto task = DISPATCH(forward, level);
  return run(job, task, (rows + ROWS - 1) / ROWS, 0, threads, parallel);
}

// The gradients of one step. Returns 0, or 1 if out of memory.
EXPORTED int attent_rnn_cell_gradients(const float* hidden, const float* cell, const float* next_cell, const void* saved,
                                       float* carried_hidden, float* carried_cell, const void* product, const void* outer_gradient,
                                       void* dinputs, void* drecurrent, const int64_t* lengths, int64_t rows, int64_t width,
                                       int64_t step, int64_t input_step, int64_t input_row, int64_t recurrent_step,
                                       int64_t recurrent_row, int64_t is_half, int64_t is_outer_half, int64_t is_lstm,
                                       int64_t threads, Parallel parallel, int level) {
  const Backward job{hidden, cell, next_cell, saved, carried_hidden, carried_cell, product, outer_gradient, dinputs, drecurrent, lengths,
                     rows, width, step,
                     {input_step, input_row}, {recurrent_step, recurrent_row}, is_half != 0, is_outer_half != 0, is_lstm != 0};
  const auto task = DISPATCH(backward, level);
  return run(job, task, (rows + ROWS - 1) / ROWS, 0, threads, parallel);
}
