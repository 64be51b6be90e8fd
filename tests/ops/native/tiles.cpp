// Linear layers and the output layer's cross entropy by matrix tiles (AMX), and their gradients; all widths are multiples of 32.

#include "harness.h"

extern "C" {
int attent_linear(const uint16_t*, const float*, const float*, uint16_t*, const float*, const float*, uint16_t*, const float*, const float*,
                  uint16_t*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, Parallel, int);
int attent_linear_input_gradients(const uint16_t*, const float*, const uint16_t*, const float*, const uint16_t*, const float*,
                                  const uint16_t*, uint16_t*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, Parallel, int);
int attent_linear_weight_gradients(const uint16_t*, const uint16_t*, float*, float*, int64_t, int64_t, int64_t, int64_t, Parallel, int);
int attent_linear_cross_entropy_amx(const uint16_t*, const float*, const float*, const int64_t*, float*, uint16_t*, float*, float*, int64_t,
                                    int64_t, int64_t, int64_t, float, float, int64_t, Parallel, int);
}

namespace harness {

namespace {

constexpr int MOST = 3;

// Up to three layers of these widths, 0 for a missing one, with the same inputs; the second has no bias.
void linear(int64_t number, int64_t inner, const int64_t (&widths)[MOST], bool relu) {
  const Array x(random(number * inner), BFLOAT16);
  const Floats features = x.numbers();
  Floats weights[MOST], biases[MOST];
  std::vector<Array> results;
  for (int n = 0; n < MOST; ++n) {
    weights[n] = random(widths[n] * inner), biases[n] = random(widths[n]);
    results.push_back(unwritten(number * widths[n], BFLOAT16));
  }
  const auto weight = [&](int n) { return widths[n] ? weights[n].data() : nullptr; };
  const auto bias = [&](int n) { return widths[n] && n != 1 ? biases[n].data() : nullptr; };
  const auto result = [&](int n) { return widths[n] ? results[n].halves.data() : nullptr; };
  check_done("linear", attent_linear(x.halves.data(), weight(0), bias(0), result(0), weight(1), bias(1), result(1), weight(2), bias(2),
                                     result(2), number, inner, widths[0], widths[1], widths[2], relu, threads, nullptr, level));
  for (int n = 0; n < MOST && widths[n]; ++n) {
    Doubles expected(number * widths[n]);
    for (int64_t i = 0; i < number; ++i)
      for (int64_t j = 0; j < widths[n]; ++j) {
        double& sum = expected[i * widths[n] + j] = n == 1 ? 0 : biases[n][j];
        for (int64_t k = 0; k < inner; ++k) sum += static_cast<double>(features[i * inner + k]) * weights[n][j * inner + k];
        if (relu && sum < 0) sum = 0;
      }
    check(relu ? "linear layer and relu by tiles" : "linear layer by tiles", results[n].numbers(), expected, ROUNDED);
  }
}

// The gradient of the inputs of up to three layers of these widths, 0 for a missing one; zero where the inputs are those of a relu that
// gave zero.
void linear_input_gradients(int64_t number, const int64_t (&widths)[MOST], int64_t outer, bool relu) {
  Floats weights[MOST], gradients[MOST], outputs = random(number * outer);
  std::vector<Array> halves;
  for (int n = 0; n < MOST; ++n) {
    weights[n] = random(widths[n] * outer), gradients[n] = random(number * widths[n]);
    halves.emplace_back(gradients[n], BFLOAT16);
  }
  for (size_t i = 0; i < outputs.size(); i += 5) outputs[i] = 0;
  const Array relu_output(outputs, BFLOAT16);
  Array result = unwritten(number * outer, BFLOAT16);
  const auto weight = [&](int n) { return widths[n] ? weights[n].data() : nullptr; };
  const auto gradient = [&](int n) { return widths[n] ? halves[n].halves.data() : nullptr; };
  check_done("linear", attent_linear_input_gradients(gradient(0), weight(0), gradient(1), weight(1), gradient(2), weight(2),
                                                     relu ? relu_output.halves.data() : nullptr, result.halves.data(), number, widths[0],
                                                     widths[1], widths[2], outer, threads, nullptr, level));
  Doubles expected(number * outer);
  for (int64_t i = 0; i < number * outer; ++i)
    for (int n = 0; n < MOST && !(relu && outputs[i] <= 0); ++n)
      for (int64_t k = 0; k < widths[n]; ++k)
        expected[i] += static_cast<double>(gradients[n][i / outer * widths[n] + k]) * weights[n][k * outer + i % outer];
  check("  its inputs' gradient", result.numbers(), expected, ROUNDED);
}

void linear_weight_gradients(int64_t number, int64_t outer, int64_t inner, bool biased) {
  const Floats gradients = random(number * outer), features = random(number * inner);
  const Array dy(gradients, BFLOAT16), x(features, BFLOAT16);
  Floats dweight(outer * inner, NAN), dbias(outer, NAN);
  check_done("linear", attent_linear_weight_gradients(dy.halves.data(), x.halves.data(), dweight.data(), biased ? dbias.data() : nullptr,
                                                      number, outer, inner, threads, nullptr, level));
  Doubles weight(outer * inner), bias(outer);
  for (int64_t i = 0; i < number; ++i)
    for (int64_t j = 0; j < outer; ++j) {
      const double gradient = gradients[i * outer + j];
      bias[j] += gradient;
      for (int64_t k = 0; k < inner; ++k) weight[j * inner + k] += gradient * features[i * inner + k];
    }
  check("  its weight's gradient", dweight, weight, EXACT);
  if (biased) check("  its bias's gradient", dbias, bias, EXACT);
}

void cross_entropy(int64_t number, int64_t width, int64_t classes, bool biased, float smoothing, bool has_gradients) {
  const Floats features = random(number * width), weight = random(classes * width, 0.3f), bias = random(classes);
  const float scale = 1.0f / static_cast<float>(number);
  const Array x(features, BFLOAT16);
  std::vector<int64_t> target(number);
  for (int64_t& index : target) index = static_cast<int64_t>(dice() % classes);
  Array dx = unwritten(number * width, BFLOAT16);
  Floats losses(number, NAN), dweight(classes * width, NAN), dbias(classes);
  const bool sums_bias = biased && has_gradients;
  check_done("loss", attent_linear_cross_entropy_amx(x.halves.data(), weight.data(), biased ? bias.data() : nullptr, target.data(),
                                                     losses.data(), has_gradients ? dx.halves.data() : nullptr,
                                                     has_gradients ? dweight.data() : nullptr, sums_bias ? dbias.data() : nullptr, number,
                                                     width, classes, has_gradients, smoothing, scale, threads, nullptr, level));
  Doubles expected(number), ex(number * width), ew(classes * width), eb(classes);
  for (int64_t i = 0; i < number; ++i) {
    Doubles logits(classes), probabilities(classes), gradient(classes);
    for (int64_t c = 0; c < classes; ++c) {
      logits[c] = biased ? bias[c] : 0;
      for (int64_t k = 0; k < width; ++k) logits[c] += static_cast<double>(features[i * width + k]) * weight[c * width + k];
    }
    expected[i] = smoothed_loss(logits, target[i], smoothing, probabilities.data(), gradient.data());
    for (int64_t c = 0; c < classes; ++c) {
      eb[c] += scale * gradient[c];
      for (int64_t k = 0; k < width; ++k) {
        ex[i * width + k] += scale * gradient[c] * weight[c * width + k];
        ew[c * width + k] += scale * gradient[c] * features[i * width + k];
      }
    }
  }
  check("cross entropy by tiles", losses, expected, EXACT);
  if (!has_gradients) return;
  // the gradients of the logits are rounded to bfloat16
  check("  its features' gradient", dx.numbers(), ex, ROUNDED);
  check("  its weight's gradient", dweight, ew, ROUNDED);
  if (biased) check("  its bias's gradient", dbias, eb, ROUNDED);
}

}  // namespace

void check_tiles() {
  for (bool relu : {false, true}) {
    linear(1, 32, {64, 0, 0}, relu);
    linear(197, 96, {32, 96, 0}, relu);
    linear(130, 64, {160, 32, 64}, relu);
    linear_input_gradients(1, {32, 0, 0}, 64, relu);
    linear_input_gradients(197, {96, 32, 0}, 96, relu);
    linear_input_gradients(130, {32, 160, 64}, 32, relu);
    linear_weight_gradients(3, 32, 64, relu);
    linear_weight_gradients(299, 96, 32, relu);
    linear_weight_gradients(1061, 64, 96, relu);
  }
  for (float smoothing : {0.0f, 0.1f}) {
    cross_entropy(5, 32, 7, smoothing > 0, smoothing, true);
    cross_entropy(1061, 64, 301, true, smoothing, true);
    cross_entropy(77, 96, 523, false, smoothing, false);
  }
}

}  // namespace harness
