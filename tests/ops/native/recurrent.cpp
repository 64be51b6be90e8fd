// The steps of GRU and LSTM layers, with their gradients.

#include "harness.h"

extern "C" {
int attent_rnn_cell(const void*, const void*, const void*, const float*, const float*, const float*, const float*, float*, float*, void*,
                    void*, const int64_t*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, Parallel, int);
int attent_rnn_cell_gradients(const float*, const float*, const float*, const void*, float*, float*, const void*, const void*, void*, void*,
                              const int64_t*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                              int64_t, Parallel, int);
}

namespace harness {

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// A layer's options: `plain` ones have neither a fed input, a bias of the input and lengths nor gradients from products and outputs.
struct Options {
  bool half, lstm, plain, reversed;
};

// All steps of a layer: random products, and states and activations by plain loops.
struct Layer {
  static constexpr int64_t STEPS = 4;
  const Options options;
  const int64_t rows, width, gates;
  // distances between rows and steps, and numbers of a state
  const int64_t input_row, input_step, recurrent_row, state;
  const Floats inputs, feed, recurrent, input_bias, recurrent_bias, first_hidden, first_cell;
  std::vector<int64_t> lengths;
  // (steps + 1, rows, width), from the last step on if the layer is reversed
  Doubles hidden, cell;
  // (steps, rows, 4, width), zero where a row has ended
  Doubles saved;

  Layer(int64_t rows, int64_t width, Options options)
      : options(options), rows(rows), width(width), gates(options.lstm ? 4 : 3), input_row(gates * width + 3),
        input_step(rows * input_row + 5), recurrent_row(gates * width + 7), state(rows * width), inputs(random(STEPS * input_step)),
        feed(random(STEPS * rows * gates * width)), recurrent(random(STEPS * rows * recurrent_row)), input_bias(random(gates * width)),
        recurrent_bias(random(gates * width)), first_hidden(random(state)), first_cell(random(state)), lengths(rows),
        hidden((STEPS + 1) * state), cell((STEPS + 1) * state), saved(STEPS * 4 * state) {
    for (int64_t i = 0; i < rows; ++i) lengths[i] = options.plain ? STEPS : i % (STEPS + 1);
    for (int64_t i = 0; i < state; ++i) hidden[first() + i] = first_hidden[i], cell[first() + i] = first_cell[i];
    for (int64_t n = 0; n < STEPS; ++n)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < width && step(n) < lengths[i]; ++j) forward(step(n), i, j);
  }
  int64_t step(int64_t n) const { return options.reversed ? STEPS - 1 - n : n; }
  // where the states lie before and after a step, and the first
  int64_t before(int64_t step) const { return (step + options.reversed) * state; }
  int64_t after(int64_t step) const { return (step + !options.reversed) * state; }
  int64_t first() const { return before(step(0)); }

  void forward(int64_t step, int64_t i, int64_t j) {
    double x[4], h[4];
    for (int64_t gate = 0; gate < gates; ++gate) {
      const int64_t column = gate * width + j;
      x[gate] = inputs[step * input_step + i * input_row + column];
      if (!options.plain) x[gate] += static_cast<double>(feed[(step * rows + i) * gates * width + column]) + input_bias[column];
      h[gate] = static_cast<double>(recurrent[(step * rows + i) * recurrent_row + column]) + recurrent_bias[column];
    }
    const int64_t from = before(step) + i * width + j, to = after(step) + i * width + j;
    double* kept = &saved[(step * rows + i) * 4 * width + j];
    const double first = sigmoid(x[0] + h[0]), second = sigmoid(x[1] + h[1]);
    const double third = std::tanh(options.lstm ? x[2] + h[2] : x[2] + first * h[2]);
    const double fourth = options.lstm ? sigmoid(x[3] + h[3]) : h[2];
    kept[0] = first, kept[width] = second, kept[2 * width] = third, kept[3 * width] = fourth;
    if (options.lstm) {
      cell[to] = second * cell[from] + first * third;
      hidden[to] = fourth * std::tanh(cell[to]);
    } else {
      hidden[to] = (1 - second) * third + second * hidden[from];
    }
  }
};

// The gradients of a layer's steps: what goes in, and by plain loops what comes out.
struct LayerGradients {
  const Layer& layer;
  const int64_t dinput_row, dinput_step, drecurrent_row, drecurrent_step;
  const Floats products, outputs, last_hidden, last_cell;
  Doubles hidden, cell, dinputs, drecurrent;

  // `saved` are the activations that the library kept
  LayerGradients(const Layer& layer, const Floats& saved)
      : layer(layer), dinput_row(layer.gates * layer.width + 1), dinput_step(layer.rows * dinput_row + 3),
        drecurrent_row(layer.gates * layer.width + 5), drecurrent_step(layer.rows * drecurrent_row + 9),
        products(random(Layer::STEPS * layer.state)), outputs(random(Layer::STEPS * layer.state)), last_hidden(random(layer.state)),
        last_cell(random(layer.state)), hidden(last_hidden.begin(), last_hidden.end()), cell(last_cell.begin(), last_cell.end()),
        dinputs(Layer::STEPS * dinput_step), drecurrent(Layer::STEPS * drecurrent_step) {
    for (int64_t n = Layer::STEPS - 1; n >= 0; --n)
      for (int64_t i = 0; i < layer.rows; ++i)
        for (int64_t j = 0; j < layer.width; ++j) backward(layer.step(n), i, j, saved);
  }
  // The product with the state after the last step is left out.
  bool has_product(int64_t step) const { return !layer.options.plain && step != layer.step(Layer::STEPS - 1); }

  void backward(int64_t step, int64_t i, int64_t j, const Floats& saved) {
    const int64_t at = i * layer.width + j, from = layer.before(step) + at, width = layer.width;
    if (step >= layer.lengths[i]) {
      hidden[at] = cell[at] = 0;
      return;
    }
    double dhidden = hidden[at];
    if (has_product(step)) dhidden += products[step * layer.state + at];
    if (!layer.options.plain) dhidden += outputs[step * layer.state + at];
    const float* kept = &saved[(step * layer.rows + i) * 4 * width + j];
    const double first = kept[0], second = kept[width], third = kept[2 * width], fourth = kept[3 * width];
    double x[4], h;
    if (layer.options.lstm) {
      const double tanh_cell = std::tanh(layer.cell[layer.after(step) + at]);
      const double dcell = cell[at] + dhidden * fourth * (1 - tanh_cell * tanh_cell);
      x[0] = dcell * third * first * (1 - first), x[1] = dcell * layer.cell[from] * second * (1 - second);
      x[2] = h = dcell * first * (1 - third * third), x[3] = dhidden * tanh_cell * fourth * (1 - fourth);
      hidden[at] = 0, cell[at] = dcell * second;
    } else {
      x[2] = dhidden * (1 - second) * (1 - third * third), x[1] = dhidden * (layer.hidden[from] - third) * second * (1 - second);
      x[0] = x[2] * fourth * first * (1 - first), h = x[2] * first;
      hidden[at] = dhidden * second;
    }
    for (int64_t gate = 0; gate < layer.gates; ++gate) {
      dinputs[step * dinput_step + i * dinput_row + gate * width + j] = x[gate];
      drecurrent[step * drecurrent_step + i * drecurrent_row + gate * width + j] = gate == 2 ? h : x[gate];
    }
  }
};

void rnn_gradients(const Layer& layer, const Floats& hidden, const Floats& cell, Array& saved) {
  const LayerGradients plain(layer, saved.numbers());
  const Options& options = layer.options;
  const Type type = saved.type;
  // gradients of outputs may be float32 beside products in bfloat16
  const bool half_outputs = options.half && !options.reversed;
  Array outputs(plain.outputs, half_outputs ? BFLOAT16 : FLOAT32), dinputs = unwritten(plain.dinputs.size(), type);
  Array drecurrent = unwritten(plain.drecurrent.size(), type);
  Floats carried = plain.last_hidden, carried_cell = plain.last_cell;
  for (int64_t n = Layer::STEPS - 1; n >= 0; --n) {
    const int64_t step = layer.step(n), from = options.reversed * layer.state, to = !options.reversed * layer.state;
    Array product(Floats(&plain.products[step * layer.state], &plain.products[step * layer.state] + layer.state), type);
    check_done("rnn gradients", attent_rnn_cell_gradients(
                                    hidden.data() + from, options.lstm ? cell.data() + from : nullptr,
                                    options.lstm ? cell.data() + to : nullptr, saved.data(), carried.data(),
                                    options.lstm ? carried_cell.data() : nullptr, plain.has_product(step) ? product.data() : nullptr,
                                    options.plain ? nullptr : outputs.data(), dinputs.data(), drecurrent.data(),
                                    options.plain ? nullptr : layer.lengths.data(), layer.rows, layer.width, step, plain.dinput_step,
                                    plain.dinput_row, plain.drecurrent_step, plain.drecurrent_row, options.half, half_outputs, options.lstm,
                                    threads, nullptr, level));
  }
  const double bound = options.half ? ROUNDED : EXACT;
  const int64_t numbers = layer.gates * layer.width;
  check("  the first state's gradient", carried, plain.hidden, EXACT);
  if (options.lstm) check("  the first cell's gradient", carried_cell, plain.cell, EXACT);
  check("  the inputs' gradient", pick(dinputs.numbers(), layer.rows, plain.dinput_row, plain.dinput_step, numbers),
        pick(plain.dinputs, layer.rows, plain.dinput_row, plain.dinput_step, numbers), bound);
  check("  the state's product's gradient", pick(drecurrent.numbers(), layer.rows, plain.drecurrent_row, plain.drecurrent_step, numbers),
        pick(plain.drecurrent, layer.rows, plain.drecurrent_row, plain.drecurrent_step, numbers), bound);
}

void rnn(int64_t rows, int64_t width, Options options) {
  const Layer layer(rows, width, options);
  const Type type = options.half ? BFLOAT16 : FLOAT32;
  Array inputs(layer.inputs, type), states = unwritten(layer.hidden.size(), BFLOAT16);
  // not written where a row has ended
  Array saved(Floats(layer.saved.size()), type);
  Floats hidden(layer.hidden.size(), NAN), cell(layer.cell.size(), NAN);
  for (int64_t i = 0; i < layer.state; ++i) {
    hidden[layer.first() + i] = layer.first_hidden[i], cell[layer.first() + i] = layer.first_cell[i];
    states.halves[layer.first() + i] = to_half(layer.first_hidden[i]);
  }
  const int64_t from = options.reversed * layer.state, to = !options.reversed * layer.state;
  for (int64_t n = 0; n < Layer::STEPS; ++n) {
    const int64_t step = layer.step(n), feed_size = rows * layer.gates * width, recurrent_size = rows * layer.recurrent_row;
    Array feed(Floats(&layer.feed[step * feed_size], &layer.feed[step * feed_size] + feed_size), type);
    Array recurrent(Floats(&layer.recurrent[step * recurrent_size], &layer.recurrent[step * recurrent_size] + recurrent_size), type);
    check_done("rnn", attent_rnn_cell(inputs.data(), options.plain ? nullptr : feed.data(), recurrent.data(),
                                      options.plain ? nullptr : layer.input_bias.data(), layer.recurrent_bias.data(), hidden.data() + from,
                                      options.lstm ? cell.data() + from : nullptr, hidden.data() + to,
                                      options.lstm ? cell.data() + to : nullptr, options.half ? states.halves.data() + to : nullptr,
                                      saved.data(), options.plain ? nullptr : layer.lengths.data(), rows, width, step, layer.input_step,
                                      layer.input_row, layer.recurrent_row, options.half, options.lstm, threads, nullptr, level));
  }
  const double bound = options.half ? ROUNDED : EXACT;
  check((std::string(options.lstm ? "LSTM" : "GRU") + SUFFIXES[type]).c_str(), hidden, layer.hidden, EXACT);
  if (options.lstm) check("  its cells", cell, layer.cell, EXACT);
  if (options.half) check("  its states in bfloat16", states.numbers(), layer.hidden, ROUNDED);
  check("  its activations", saved.numbers(), layer.saved, bound);
  rnn_gradients(layer, hidden, cell, saved);
}

}  // namespace

void check_recurrent() {
  for (bool half : {false, true})
    for (bool lstm : {false, true}) {
      rnn(1, 5, {half, lstm, true, false});
      rnn(19, 37, {half, lstm, false, false});
      rnn(19, 37, {half, lstm, false, true});
      rnn(9, 64, {half, lstm, true, true});
    }
}

}  // namespace harness
