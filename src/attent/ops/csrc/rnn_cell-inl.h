// The loops of gates.cpp for one width of vector registers. Included once for each, inside a namespace of its own and under that
// width's compiler target, with LANES floats in a register.

#include "simd.h"
#include "bfloat16.h"

// Beyond these e^x is as good as 0 or ∞; NaN stays NaN.
static inline Vector bounded(Vector x) {
  x = x > all(80.0f) ? all(80.0f) : x;
  return x < all(-80.0f) ? all(-80.0f) : x;
}

static inline Vector sigmoid(Vector x) { return 1.0f / (1.0f + exponential(bounded(-x))); }

static inline Vector hyperbolic(Vector x) { return 1.0f - 2.0f / (1.0f + exponential(bounded(2.0f * x))); }

// Some rows of a step.
template <bool HALF, bool LSTM>
static void forward_of(const Forward& job, int64_t task) {
  const int64_t width = job.width, gates = LSTM ? 4 : 3, last = task * ROWS + ROWS < job.rows ? task * ROWS + ROWS : job.rows;
  for (int64_t row = task * ROWS; row < last; ++row) {
    const int64_t before = (job.place * job.rows + row) * width, input = job.place * job.of_inputs.step + row * job.of_inputs.row;
    if (job.lengths && job.place >= job.lengths[row]) {
      memset(job.hidden_after + before, 0, 4 * width);
      if (job.cell_after) memset(job.cell_after + before, 0, 4 * width);
      if (job.halves_after) memset(static_cast<uint16_t*>(job.halves_after) + before, 0, 2 * width);
      continue;
    }
    for (int64_t j = 0; j < width; j += LANES) {
      const int64_t count = width - j;
      Vector theirs[4], ours[4];
      for (int64_t gate = 0; gate < gates; ++gate) {
        const int64_t at = gate * width + j;
        theirs[gate] = get(job.inputs, HALF, input + at, count);
        if (job.beside) theirs[gate] += get(job.beside, HALF, row * gates * width + at, count);
        if (job.input_bias) theirs[gate] += get(job.input_bias, false, at, count);
        ours[gate] = get(job.ours, HALF, row * job.our_row + at, count) + get(job.our_bias, false, at, count);
      }
      Vector hidden;
      if (LSTM) {
        const Vector enter = sigmoid(theirs[0] + ours[0]), forget = sigmoid(theirs[1] + ours[1]);
        const Vector fresh = hyperbolic(theirs[2] + ours[2]), leave = sigmoid(theirs[3] + ours[3]);
        const Vector cell = forget * get(job.cell, false, before + j, count) + enter * fresh;
        hidden = leave * hyperbolic(cell);
        put(job.cell_after, false, before + j, count, cell);
        put(job.kept, HALF, 4 * before + j, count, enter);
        put(job.kept, HALF, 4 * before + width + j, count, forget);
        put(job.kept, HALF, 4 * before + 2 * width + j, count, fresh);
        put(job.kept, HALF, 4 * before + 3 * width + j, count, leave);
      } else {
        const Vector reset = sigmoid(theirs[0] + ours[0]), update = sigmoid(theirs[1] + ours[1]);
        const Vector fresh = hyperbolic(theirs[2] + reset * ours[2]);
        hidden = fresh + update * (get(job.hidden, false, before + j, count) - fresh);
        put(job.kept, HALF, 4 * before + j, count, reset);
        put(job.kept, HALF, 4 * before + width + j, count, update);
        put(job.kept, HALF, 4 * before + 2 * width + j, count, fresh);
        put(job.kept, HALF, 4 * before + 3 * width + j, count, ours[2]);
      }
      put(job.hidden_after, false, before + j, count, hidden);
      if (job.halves_after) put(job.halves_after, true, before + j, count, hidden);
    }
  }
}

static void nothing(void* to, bool half, int64_t at, int64_t count) {
  if (half) memset(static_cast<uint16_t*>(to) + at, 0, 2 * count);
  else memset(static_cast<float*>(to) + at, 0, 4 * count);
}

// Some rows' gradients.
template <bool HALF, bool LSTM>
static void backward_of(const Backward& job, int64_t task) {
  const int64_t width = job.width, gates = LSTM ? 4 : 3, last = task * ROWS + ROWS < job.rows ? task * ROWS + ROWS : job.rows;
  for (int64_t row = task * ROWS; row < last; ++row) {
    const int64_t here = row * width, before = (job.place * job.rows + row) * width;
    const int64_t input = job.place * job.of_inputs.step + row * job.of_inputs.row;
    const int64_t our = job.place * job.of_ours.step + row * job.of_ours.row;
    if (job.lengths && job.place >= job.lengths[row]) {
      nothing(job.dinputs, HALF, input, gates * width);
      nothing(job.dours, HALF, our, gates * width);
      memset(job.carried + here, 0, 4 * width);
      if (job.carried_cell) memset(job.carried_cell + here, 0, 4 * width);
      continue;
    }
    for (int64_t j = 0; j < width; j += LANES) {
      const int64_t count = width - j;
      Vector slope = get(job.carried, false, here + j, count);
      if (job.product) slope += get(job.product, HALF, here + j, count);
      if (job.outer) slope += get(job.outer, job.outer_half, before + j, count);
      const int64_t kept = 4 * before + j;
      const Vector first = get(job.kept, HALF, kept, count), second = get(job.kept, HALF, kept + width, count);
      const Vector third = get(job.kept, HALF, kept + 2 * width, count), fourth = get(job.kept, HALF, kept + 3 * width, count);
      Vector theirs[4], ours;
      if (LSTM) {
        const Vector shown = hyperbolic(get(job.cell_after, false, before + j, count));
        const Vector cell = get(job.carried_cell, false, here + j, count) + slope * fourth * (1.0f - shown * shown);
        theirs[0] = cell * third * first * (1.0f - first);
        theirs[1] = cell * get(job.cell, false, before + j, count) * second * (1.0f - second);
        theirs[2] = cell * first * (1.0f - third * third);
        theirs[3] = slope * shown * fourth * (1.0f - fourth);
        ours = theirs[2];
        put(job.carried_cell, false, here + j, count, cell * second);
        put(job.carried, false, here + j, count, Vector{});
      } else {
        theirs[2] = slope * (1.0f - second) * (1.0f - third * third);
        theirs[1] = slope * (get(job.hidden, false, before + j, count) - third) * second * (1.0f - second);
        theirs[0] = theirs[2] * fourth * first * (1.0f - first);
        ours = theirs[2] * first;
        put(job.carried, false, here + j, count, slope * second);
      }
      for (int64_t gate = 0; gate < gates; ++gate) {
        put(job.dinputs, HALF, input + gate * width + j, count, theirs[gate]);
        put(job.dours, HALF, our + gate * width + j, count, gate == 2 ? ours : theirs[gate]);
      }
    }
  }
}

static void forward(const Forward& job, int64_t task, float*) {
  if (job.lstm) job.half ? forward_of<true, true>(job, task) : forward_of<false, true>(job, task);
  else job.half ? forward_of<true, false>(job, task) : forward_of<false, false>(job, task);
}

static void backward(const Backward& job, int64_t task, float*) {
  if (job.lstm) job.half ? backward_of<true, true>(job, task) : backward_of<false, true>(job, task);
  else job.half ? backward_of<true, false>(job, task) : backward_of<false, false>(job, task);
}
