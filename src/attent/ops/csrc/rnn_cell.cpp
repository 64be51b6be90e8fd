// A step of a layer of gated recurrent units, GRU or LSTM, for every row of a batch, and its gradients, on a CPU: all that lies between
// the products with matrices. ../../layers/recurrent.py writes the equations.
//
// Arrays hold all steps, (steps, rows, …), and `place` is the step that is meant. Those called products, and what is kept for the
// gradients, are bfloat16 if `half` says so, the others float32. An array that is not there is null. Rows are computed each by itself.

#include "native.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// Rows that make a task.
constexpr int64_t ROWS = 8;

// Where a step's row of an array begins: at step · place + row · number, counted in numbers.
struct Strides {
  int64_t step, row;
};

struct Forward {
  // products: of the input, of what stands beside it (of this step alone), of the state before (of this step alone)
  const void *inputs, *beside, *ours;
  // of the input's share and of the state's
  const float *input_bias, *our_bias;
  const float *hidden, *cell;
  float *hidden_after, *cell_after;
  // the state once more, as a product takes it
  void* halves_after;
  // of each row r, z, n and the state's share in n, or i, f, tanh and o
  void* kept;
  // rows are nothing from these steps on
  const int64_t* lengths;
  int64_t rows, width, place;
  Strides of_inputs;
  int64_t our_row;
  bool half, lstm;
};

struct Backward {
  const float *hidden, *cell, *cell_after;
  const void* kept;
  // what the state's gradient is the sum of: from the step behind (there, on return, lies what goes to the step before), from products
  // with the state, from outside
  float *carried, *carried_cell;
  const void *product, *outer;
  // of the shares of the input and of the state
  void *dinputs, *dours;
  const int64_t* lengths;
  int64_t rows, width, place;
  Strides of_inputs, of_ours;
  bool half, outer_half, lstm;
};

#define LOOPS "rnn_cell-inl.h"
#include "foreach_target.h"

}  // namespace

// One step. Returns 0, or 1 where memory ran out.
EXPORTED int attent_rnn_cell(const void* inputs, const void* beside, const void* ours, const float* input_bias,
                             const float* our_bias, const float* hidden, const float* cell, float* hidden_after, float* cell_after,
                             void* halves_after, void* kept, const int64_t* lengths, int64_t rows, int64_t width, int64_t place,
                             int64_t input_step, int64_t input_row, int64_t our_row, int64_t half, int64_t lstm, int64_t threads,
                             Parallel parallel, int level) {
  const Forward job{inputs, beside, ours, input_bias, our_bias, hidden, cell, hidden_after, cell_after, halves_after, kept, lengths,
                    rows, width, place, {input_step, input_row}, our_row, half != 0, lstm != 0};
  const auto task = CHOSEN(forward, level);
  return run(job, task, (rows + ROWS - 1) / ROWS, 0, threads, parallel);
}

// The gradients of one step. Returns 0, or 1 where memory ran out.
EXPORTED int attent_rnn_cell_gradients(const float* hidden, const float* cell, const float* cell_after, const void* kept,
                                       float* carried, float* carried_cell, const void* product, const void* outer, void* dinputs,
                                       void* dours, const int64_t* lengths, int64_t rows, int64_t width, int64_t place,
                                       int64_t input_step, int64_t input_row, int64_t our_step, int64_t our_row, int64_t half,
                                       int64_t outer_half, int64_t lstm, int64_t threads, Parallel parallel, int level) {
  const Backward job{hidden, cell, cell_after, kept, carried, carried_cell, product, outer, dinputs, dours, lengths, rows, width, place,
                     {input_step, input_row}, {our_step, our_row}, half != 0, outer_half != 0, lstm != 0};
  const auto task = CHOSEN(backward, level);
  return run(job, task, (rows + ROWS - 1) / ROWS, 0, threads, parallel);
}
