// The functions of the compiled library against plain loops in double, at the SIMD levels that the command line names (default: 0, the
// baseline), on one thread and on two. Prints the largest error of each, relative to the largest number; exits with 1 if one is too large.
// scripts/arm builds and runs it for aarch64, and for this machine under sanitizers.

#include "harness.h"

#include <cstdlib>

extern "C" {
int attent_dropout_mask(const uint32_t*, const uint32_t*, uint8_t*, int64_t, int64_t, uint32_t, int64_t, Parallel, int);
int attent_dropout(const uint32_t*, const uint32_t*, const float*, float*, int64_t, int64_t, uint32_t, float, int64_t, Parallel, int);
int attent_add_layer_norm(const float*, const void*, const float*, const float*, float*, void*, float*, int64_t, int64_t, int64_t, int64_t,
                          uint32_t, uint32_t, float, float, int64_t, Parallel, int);
int attent_add_layer_norm_gradients(const float*, const void*, const float*, const float*, const float*, float*, void*, float*, float*,
                                    int64_t, int64_t, int64_t, int64_t, uint32_t, uint32_t, float, int64_t, Parallel, int);
int attent_linear_cross_entropy(void*, const int64_t*, const float*, float*, float*, int64_t, int64_t, int64_t, int64_t, float,
                                int64_t, Parallel, int);
int attent_packed_gemm(const float*, const void*, float*, int64_t, int64_t, int64_t, int64_t, int64_t, Parallel, int);
int attent_beam_topk(const float*, float*, float*, int64_t*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                     Parallel, int);
int attent_log_softmax(float*, int64_t, int64_t, int64_t, Parallel, int);
int attent_has_amx();
int attent_simd_level();
int attent_int8_kernels();
}

namespace harness {

namespace {

void dropout(int64_t number, int64_t width) {
  std::vector<uint32_t> rows(number), columns(width);
  for (uint32_t& row : rows) row = dice();
  for (uint32_t& column : columns) column = dice();
  const Floats input = random(number * width);
  Floats output(input.size(), NAN);
  std::vector<uint8_t> mask(input.size(), 7);
  check_done("dropout", attent_dropout_mask(rows.data(), columns.data(), mask.data(), number, width, HALF, threads, nullptr, level));
  check_done("dropout", attent_dropout(rows.data(), columns.data(), input.data(), output.data(), number, width, HALF, 2, threads, nullptr,
                                       level));
  Doubles expected_mask(input.size()), expected(input.size());
  for (int64_t i = 0; i < number * width; ++i) {
    expected_mask[i] = hash(rows[i / width] + columns[i % width]) >= HALF;
    expected[i] = expected_mask[i] * 2 * input[i];
  }
  check("dropout mask", Floats(mask.begin(), mask.end()), expected_mask, 0);
  check("dropout", output, expected, 0);
}

void layer_norm(int64_t number, int64_t width, bool half) {
  const Type type = half ? BFLOAT16 : FLOAT32;
  const Floats features = random(number * width), added = random(number * width), weight = random(width), bias = random(width);
  const Floats g = random(number * width), outer = random(number * width);
  Array output(added, type), gradient(g, type), normalized = unwritten(number * width, type), doutput = unwritten(number * width, type);
  Floats total(number * width, NAN), statistics(2 * number, NAN), dfeatures(number * width, NAN), dweight(width, NAN), dbias(width, NAN);
  check_done("norm", attent_add_layer_norm(features.data(), output.data(), weight.data(), bias.data(), total.data(), normalized.data(),
                                           statistics.data(), number, width, half, half, SEED, HALF, 2, 1e-5f, threads, nullptr, level));
  check_done("norm", attent_add_layer_norm_gradients(total.data(), gradient.data(), outer.data(), weight.data(), statistics.data(),
                                                     dfeatures.data(), doutput.data(), dweight.data(), dbias.data(), number, width, half,
                                                     half, SEED, HALF, 2, threads, nullptr, level));
  Doubles et(total.size()), en(total.size()), ef(total.size()), eo(total.size()), ew(width), eb(width);
  for (int64_t i = 0; i < number; ++i) {
    const uint32_t hashed = hash(hash(SEED) + ROW * static_cast<uint32_t>(i));
    Doubles kept(width);
    double mean = 0, variance = 0, first = 0, second = 0;
    for (int64_t j = 0; j < width; ++j) {
      const int64_t at = i * width + j;
      kept[j] = hash(hashed + hash(COLUMN + static_cast<uint32_t>(j))) >= HALF ? 2 : 0;
      mean += (et[at] = features[at] + kept[j] * added[at]) / width;
    }
    for (int64_t j = 0; j < width; ++j) variance += (et[i * width + j] - mean) * (et[i * width + j] - mean) / width;
    const double inverse = 1 / std::sqrt(variance + 1e-5);
    for (int64_t j = 0; j < width; ++j) {
      const int64_t at = i * width + j;
      const double unit = (et[at] - mean) * inverse;
      en[at] = unit * weight[j] + bias[j], ew[j] += g[at] * unit, eb[j] += g[at];
      first += g[at] * weight[j] / width, second += g[at] * weight[j] * unit / width;
    }
    for (int64_t j = 0; j < width; ++j) {
      const int64_t at = i * width + j;
      ef[at] = outer[at] + inverse * (g[at] * weight[j] - first - (et[at] - mean) * inverse * second);
      eo[at] = kept[j] * ef[at];
    }
  }
  check(half ? "layer norm, bfloat16" : "layer norm", normalized.numbers(), en, half ? ROUNDED : EXACT);
  check("  its sum", total, et, EXACT);
  check("  the features' gradient", dfeatures, ef, EXACT);
  check("  the output's gradient", doutput.numbers(), eo, half ? ROUNDED : EXACT);
  check("  the weight's gradient", dweight, ew, EXACT);
  check("  the bias's gradient", dbias, eb, EXACT);
}

void cross_entropy(int64_t rows, int64_t width, bool half, bool biased, float smoothing) {
  const Type type = half ? BFLOAT16 : FLOAT32;
  const Floats logits = random(rows * width, 3), bias = random(width);
  std::vector<int64_t> target(rows);
  for (int64_t& index : target) index = static_cast<int64_t>(dice() % width);
  Array gradient(logits, type);
  const int64_t tasks = (rows + 15) / 16;
  Floats losses(rows, NAN), columns(tasks * width, NAN), sums(width);
  check_done("loss", attent_linear_cross_entropy(gradient.data(), target.data(), biased ? bias.data() : nullptr, losses.data(),
                                                 biased ? columns.data() : nullptr, rows, width, half, 1, smoothing, threads,
                                                 nullptr, level));
  Doubles expected(rows), probabilities(rows * width), eg(rows * width), es(width);
  for (int64_t i = 0; i < rows; ++i) {
    Doubles x(width);
    for (int64_t j = 0; j < width; ++j) x[j] = logits[i * width + j] + static_cast<double>(biased ? bias[j] : 0);
    expected[i] = smoothed_loss(x, target[i], smoothing, &probabilities[i * width], &eg[i * width]);
  }
  for (int64_t i = 0; i < rows * width; ++i) es[i % width] += eg[i];
  for (int64_t i = 0; biased && i < tasks * width; ++i) sums[i % width] += columns[i];
  check(half ? "cross entropy, bfloat16" : "cross entropy", losses, expected, EXACT);
  check("  its gradient", gradient.numbers(), eg, half ? ROUNDED : EXACT);
  if (biased) check("  the bias's gradient", sums, es, EXACT);
}

void gemm(int64_t number, int64_t depth, int64_t columns) {
  const Floats rows = random(number * depth), weights = random(depth * columns), bias = random(columns);
  Doubles expected(number * columns);
  for (int64_t i = 0; i < number * columns; ++i) {
    expected[i] = bias[i % columns];
    for (int64_t d = 0; d < depth; ++d) expected[i] += static_cast<double>(rows[i / columns * depth + d]) * weights[d * columns + i % columns];
  }
  for (int64_t size : {4, 2}) {
    std::vector<uint8_t> packed;
    append_panels(weights, bias, size, &packed);
    Floats to(number * columns, NAN);
    check_done("gemm", attent_packed_gemm(rows.data(), packed.data(), to.data(), number, depth, columns, size == 2, threads, nullptr, level));
    check(size == 4 ? "product of packed weights" : "product of weights in bfloat16", to, expected, EXACT);
  }
}

// Rows and weights rounded to 8 bits, whose sums are exact, by every kernel of this processor.
void gemm_int8(int64_t number, int64_t depth, int64_t columns) {
  constexpr int64_t STEP = 64;
  const int64_t filled = (depth + STEP - 1) / STEP * STEP, size = PANEL * (filled + 12), panels = (columns + PANEL - 1) / PANEL;
  const Floats rows = random(number * depth), bias = random(columns);
  std::vector<uint8_t> packed(panels * size);
  std::vector<int> weights(depth * columns);
  for (int64_t c = 0; c < columns; ++c) {
    uint8_t *panel = packed.data() + c / PANEL * size, *after = panel + PANEL * filled + 4 * (c % PANEL);
    const float scale = 0.25f + static_cast<float>(c % 7);
    int32_t shift = 0;
    for (int64_t d = 0; d < depth; ++d) {
      const int weight = weights[d * columns + c] = static_cast<int>(dice() % 255) - 127;
      panel[d / 4 * 4 * PANEL + 4 * (c % PANEL) + d % 4] = static_cast<uint8_t>(weight);
      shift -= 128 * weight;
    }
    std::memcpy(after, &scale, 4);
    std::memcpy(after + 4 * PANEL, &shift, 4);
    std::memcpy(after + 8 * PANEL, &bias[c], 4);
  }
  Doubles expected(number * columns);
  for (int64_t i = 0; i < number; ++i) {
    float largest = 0;
    for (int64_t d = 0; d < depth; ++d) largest = std::fmax(largest, std::fabs(rows[i * depth + d]));
    for (int64_t c = 0; c < columns; ++c) {
      int64_t sum = 0;
      for (int64_t d = 0; d < depth; ++d) sum += std::lrint(rows[i * depth + d] * (127 / largest)) * weights[d * columns + c];
      expected[i * columns + c] = static_cast<double>(sum) * (0.25 + c % 7) * (largest / 127) + bias[c];
    }
  }
  for (int kernel = 0; kernel < 5; ++kernel) {
    if (!(attent_int8_kernels() >> kernel & 1)) continue;
    Floats to(number * columns, NAN);
    check_done("gemm", attent_packed_gemm(rows.data(), packed.data(), to.data(), number, depth, columns, 2 + kernel, threads, nullptr, level));
    check(("product in 8 bits, kernel " + std::to_string(kernel)).c_str(), to, expected, EXACT);
  }
}

void topk(int64_t sentences, int64_t width, int64_t vocabulary) {
  const Floats scores = random(sentences * width);
  Floats logits = random(sentences * width * vocabulary, 3), totals(sentences, NAN);
  std::vector<int64_t> indices(sentences, -1);
  Doubles expected(sentences, -1e30), found(sentences), places(sentences);
  for (int64_t i = 0; i < sentences * width; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < vocabulary; ++j) sum += std::exp(static_cast<double>(logits[i * vocabulary + j]));
    for (int64_t j = 2; j < vocabulary; ++j) {  // 0 and 1 are forbidden
      const double total = scores[i] + logits[i * vocabulary + j] - std::log(sum);
      if (total > expected[i / width]) expected[i / width] = total, places[i / width] = i % width * vocabulary + j;
    }
  }
  check_done("topk", attent_beam_topk(scores.data(), logits.data(), totals.data(), indices.data(), sentences, width, vocabulary, 1, 1, 0, 1,
                                      2, threads, nullptr, level));
  check("best continuation", totals, expected, EXACT);
  check("  its place", Floats(indices.begin(), indices.end()), places, 0);
}

// One row in four has a NaN, as all of its results then are.
void log_softmax(int64_t number, int64_t vocabulary) {
  Floats logits = random(number * vocabulary, 3), of_nan;
  for (int64_t i = 3; i < number; i += 4) logits[i * vocabulary + i % vocabulary] = NAN;
  Doubles expected(logits.begin(), logits.end());
  for (int64_t i = 0; i < number; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < vocabulary; ++j) sum += std::exp(expected[i * vocabulary + j]);
    for (int64_t j = 0; j < vocabulary; ++j) expected[i * vocabulary + j] = std::isnan(sum) ? 0 : expected[i * vocabulary + j] - std::log(sum);
  }
  check_done("log-softmax", attent_log_softmax(logits.data(), number, vocabulary, threads, nullptr, level));
  for (int64_t i = 3; i < number; i += 4)
    for (int64_t j = 0; j < vocabulary; ++j) {
      of_nan.push_back(std::isnan(logits[i * vocabulary + j]));
      logits[i * vocabulary + j] = 0;
    }
  check("log-softmax", logits, expected, EXACT);
  if (!of_nan.empty()) check("  of NaN", of_nan, Doubles(of_nan.size(), 1), 0);
}

void check_all() {
  dice.seed(1);
  check_attention();
  check_recurrent();
  check_recurrent_attention();
  if (attent_has_amx()) check_tiles();
  check_stacks();
  check_search();
  for (bool half : {false, true}) {
    layer_norm(71, 37, half);
    layer_norm(3, 64, half);
    for (float smoothing : {0.0f, 0.1f}) {
      cross_entropy(19, 101, half, smoothing > 0, smoothing);
    }
  }
  dropout(19, 37);
  gemm(7, 131, 71);
  gemm(197, 13, 523);
  gemm_int8(7, 131, 71);
  gemm_int8(197, 13, 523);
  topk(5, 3, 211);
  log_softmax(37, 211);
  log_softmax(3, 7);
}

}  // namespace

}  // namespace harness

int main(int count, char** levels) {
  using namespace harness;
  if (!attent_has_amx()) std::printf("this processor has no matrix tiles (AMX): the functions that need them are left out\n");
  for (int i = 1; i < count || i == 1; ++i) {
    level = i < count ? std::atoi(levels[i]) : 0;
    if (level > attent_simd_level()) {
      std::printf("level %d is not of this processor\n", level);
      continue;
    }
    for (threads = 1; threads <= 2; ++threads) check_all();
  }
  std::printf("%d wrong\n", failures);
  return failures != 0;
}
