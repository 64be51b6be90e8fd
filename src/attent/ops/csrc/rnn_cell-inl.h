// The loops of rnn_cell.cpp for one width of vector registers (LANES floats). foreach_target.h includes this file for each width.

#include "simd.h"
#include "bfloat16.h"

// Clamp to where e^x is finite; NaN stays NaN.
static inline Vector clamped(Vector x) {
  x = x > broadcast(80.0f) ? broadcast(80.0f) : x;
  return x < broadcast(-80.0f) ? broadcast(-80.0f) : x;
}

static inline Vector sigmoid(Vector x) { return 1.0f / (1.0f + exponential(clamped(-x))); }

static inline Vector tanh_of(Vector x) { return 1.0f - 2.0f / (1.0f + exponential(clamped(2.0f * x))); }

// One step of a task's rows.
template <bool HALF, bool LSTM>
static void forward_of(const Forward& job, int64_t task) {
  const int64_t width = job.width, gates = LSTM ? 4 : 3, end = task * ROWS + ROWS < job.rows ? task * ROWS + ROWS : job.rows;
  for (int64_t row = task * ROWS; row < end; ++row) {
    const int64_t offset = (job.step * job.rows + row) * width,
        input_offset = job.step * job.input_strides.step + row * job.input_strides.row;
    if (job.lengths && job.step >= job.lengths[row]) {
      memset(job.next_hidden + offset, 0, 4 * width);
      if (job.next_cell) memset(job.next_cell + offset, 0, 4 * width);
      if (job.next_hidden_half) memset(static_cast<uint16_t*>(job.next_hidden_half) + offset, 0, 2 * width);
      continue;
    }
    for (int64_t j = 0; j < width; j += LANES) {
      const int64_t count = width - j;
      Vector x_gates[4], h_gates[4];
      for (int64_t gate = 0; gate < gates; ++gate) {
        const int64_t column = gate * width + j;
        x_gates[gate] = get(job.inputs, HALF, input_offset + column, count);
        if (job.feed) x_gates[gate] += get(job.feed, HALF, row * gates * width + column, count);
        if (job.input_bias) x_gates[gate] += get(job.input_bias, false, column, count);
        h_gates[gate] = get(job.recurrent, HALF, row * job.recurrent_row + column, count) + get(job.recurrent_bias, false, column, count);
      }
      Vector hidden;
      if (LSTM) {
        const Vector input_gate = sigmoid(x_gates[0] + h_gates[0]), forget_gate = sigmoid(x_gates[1] + h_gates[1]);
        const Vector candidate = tanh_of(x_gates[2] + h_gates[2]), output_gate = sigmoid(x_gates[3] + h_gates[3]);
        const Vector cell = forget_gate * get(job.cell, false, offset + j, count) + input_gate * candidate;
        hidden = output_gate * tanh_of(cell);
        put(job.next_cell, false, offset + j, count, cell);
        put(job.saved, HALF, 4 * offset + j, count, input_gate);
        put(job.saved, HALF, 4 * offset + width + j, count, forget_gate);
        put(job.saved, HALF, 4 * offset + 2 * width + j, count, candidate);
        put(job.saved, HALF, 4 * offset + 3 * width + j, count, output_gate);
      } else {
        const Vector reset = sigmoid(x_gates[0] + h_gates[0]), update = sigmoid(x_gates[1] + h_gates[1]);
        const Vector candidate = tanh_of(x_gates[2] + reset * h_gates[2]);
        hidden = candidate + update * (get(job.hidden, false, offset + j, count) - candidate);
        put(job.saved, HALF, 4 * offset + j, count, reset);
        put(job.saved, HALF, 4 * offset + width + j, count, update);
        put(job.saved, HALF, 4 * offset + 2 * width + j, count, candidate);
        put(job.saved, HALF, 4 * offset + 3 * width + j, count, h_gates[2]);
      }
      put(job.next_hidden, false, offset + j, count, hidden);
      if (job.next_hidden_half) put(job.next_hidden_half, true, offset + j, count, hidden);
    }
  }
}

static void fill_zero(void* to, bool is_half, int64_t column, int64_t count) {
  if (is_half) memset(static_cast<uint16_t*>(to) + column, 0, 2 * count);
  else memset(static_cast<float*>(to) + column, 0, 4 * count);
}

// The gradients of a task's rows.
template <bool HALF, bool LSTM>
static void backward_of(const Backward& job, int64_t task) {
  const int64_t width = job.width, gates = LSTM ? 4 : 3, end = task * ROWS + ROWS < job.rows ? task * ROWS + ROWS : job.rows;
  for (int64_t row = task * ROWS; row < end; ++row) {
    const int64_t row_offset = row * width, offset = (job.step * job.rows + row) * width;
    const int64_t input_offset = job.step * job.input_strides.step + row * job.input_strides.row;
    const int64_t recurrent_offset = job.step * job.recurrent_strides.step + row * job.recurrent_strides.row;
    if (job.lengths && job.step >= job.lengths[row]) {
      fill_zero(job.dinputs, HALF, input_offset, gates * width);
      fill_zero(job.drecurrent, HALF, recurrent_offset, gates * width);
      memset(job.carried_hidden + row_offset, 0, 4 * width);
      if (job.carried_cell) memset(job.carried_cell + row_offset, 0, 4 * width);
      continue;
    }
    for (int64_t j = 0; j < width; j += LANES) {
      const int64_t count = width - j;
      Vector dhidden = get(job.carried_hidden, false, row_offset + j, count);
      if (job.product) dhidden += get(job.product, HALF, row_offset + j, count);
      if (job.outer_gradient) dhidden += get(job.outer_gradient, job.is_outer_half, offset + j, count);
      const int64_t saved = 4 * offset + j;
      const Vector first = get(job.saved, HALF, saved, count), second = get(job.saved, HALF, saved + width, count);
      const Vector third = get(job.saved, HALF, saved + 2 * width, count), fourth = get(job.saved, HALF, saved + 3 * width, count);
      Vector x_gates[4], h_gates;
      if (LSTM) {
        const Vector tanh_cell = tanh_of(get(job.next_cell, false, offset + j, count));
        const Vector cell = get(job.carried_cell, false, row_offset + j, count) + dhidden * fourth * (1.0f - tanh_cell * tanh_cell);
        x_gates[0] = cell * third * first * (1.0f - first);
        x_gates[1] = cell * get(job.cell, false, offset + j, count) * second * (1.0f - second);
        x_gates[2] = cell * first * (1.0f - third * third);
        x_gates[3] = dhidden * tanh_cell * fourth * (1.0f - fourth);
        h_gates = x_gates[2];
        put(job.carried_cell, false, row_offset + j, count, cell * second);
        put(job.carried_hidden, false, row_offset + j, count, Vector{});
      } else {
        x_gates[2] = dhidden * (1.0f - second) * (1.0f - third * third);
        x_gates[1] = dhidden * (get(job.hidden, false, offset + j, count) - third) * second * (1.0f - second);
        x_gates[0] = x_gates[2] * fourth * first * (1.0f - first);
        h_gates = x_gates[2] * first;
        put(job.carried_hidden, false, row_offset + j, count, dhidden * second);
      }
      for (int64_t gate = 0; gate < gates; ++gate) {
        put(job.dinputs, HALF, input_offset + gate * width + j, count, x_gates[gate]);
        put(job.drecurrent, HALF, recurrent_offset + gate * width + j, count, gate == 2 ? h_gates : x_gates[gate]);
      }
    }
  }
}

static void forward(const Forward& job, int64_t task, float*) {
  if (job.is_lstm) job.is_half ? forward_of<true, true>(job, task) : forward_of<false, true>(job, task);
  else job.is_half ? forward_of<true, false>(job, task) : forward_of<false, false>(job, task);
}

static void backward(const Backward& job, int64_t task, float*) {
  if (job.is_lstm) job.is_half ? backward_of<true, true>(job, task) : backward_of<false, true>(job, task);
  else job.is_half ? backward_of<true, false>(job, task) : backward_of<false, false>(job, task);
}
