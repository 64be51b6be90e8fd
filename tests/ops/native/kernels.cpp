// The functions of the compiled library against plain loops in double, at the SIMD levels that the command line names (default: 0, the
// baseline), on one thread and on two. Prints the largest error of each, relative to the largest number; exits with 1 if one is too large.
// scripts/arm builds and runs it for aarch64, and for this machine under sanitizers.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Halves = std::vector<uint16_t>;

extern "C" {
int attent_dense_attention_context(const void*, const void*, const void*, const int64_t*, const int64_t*, const float*, const float*, void*,
                                   float*, const int64_t*, uint32_t, uint32_t, float, float, float, int64_t, Parallel, int);
int attent_dense_attention_gradients(const void*, const void*, const void*, const int64_t*, const int64_t*, const float*, const float*,
                                     const void*, const float*, const void*, void*, void*, void*, float*, float*, const int64_t*, uint32_t,
                                     uint32_t, float, float, float, int64_t, Parallel, int);
int attent_tanh_score(const float*, const float*, const float*, float*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, Parallel,
                      int);
int attent_tanh_score_gradients(const float*, const float*, const float*, const float*, float*, float*, float*, int64_t, int64_t, int64_t,
                                int64_t, int64_t, int64_t, int64_t, Parallel, int);
int attent_dropout_mask(const uint32_t*, const uint32_t*, uint8_t*, int64_t, int64_t, uint32_t, int64_t, Parallel, int);
int attent_dropout(const uint32_t*, const uint32_t*, const float*, float*, int64_t, int64_t, uint32_t, float, int64_t, Parallel, int);
int attent_add_layer_norm(const float*, const void*, const float*, const float*, float*, void*, float*, int64_t, int64_t, int64_t, int64_t,
                          uint32_t, uint32_t, float, float, int64_t, Parallel, int);
int attent_add_layer_norm_gradients(const float*, const void*, const float*, const float*, const float*, float*, void*, float*, float*,
                                    int64_t, int64_t, int64_t, int64_t, uint32_t, uint32_t, float, int64_t, Parallel, int);
int attent_linear_cross_entropy(void*, const int64_t*, const float*, float*, float*, int64_t, int64_t, int64_t, int64_t, float, float,
                                int64_t, Parallel, int);
int attent_packed_gemm(const float*, const void*, float*, int64_t, int64_t, int64_t, int64_t, int64_t, Parallel, int);
int attent_beam_topk(const float*, float*, float*, int64_t*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                     Parallel, int);
int attent_simd_level();
int attent_int8_kernels();
}

namespace {

constexpr uint32_t SEQUENCE = 0x9E3779B1u, HEAD = 0x85EBCA77u, ROW = 0xC2B2AE3Du, COLUMN = 0x5BD1E995u, SEED = 17, HALF = 1u << 31;
// Float32 sums of some hundred terms, and the rounding of bfloat16.
constexpr double EXACT = 2e-5, ROUNDED = 1.2e-2;

std::mt19937 dice(1);
int failures = 0, level = 0;
int64_t threads = 1;

uint32_t hash(uint32_t bits) {
  bits = (bits ^ (bits >> 16)) * 0x7FEB352Du;
  bits = (bits ^ (bits >> 15)) * 0x846CA68Bu;
  return bits ^ (bits >> 16);
}

// Types of numbers, in the order of the library's.
enum Type { FLOAT32, BFLOAT16, FLOAT16 };
const char* const SUFFIXES[] = {"", ", bfloat16", ", float16"};

// Round a number to the next of float16.
uint16_t to_float16(float number) {
  if (std::isnan(number)) return 0x7e00;
  const double size = std::fabs(number);
  int exponent;
  std::frexp(size, &exponent);
  if (exponent < -13) exponent = -13;
  const int bits = size < 65520 ? ((exponent + 13) << 10) + static_cast<int>(std::nearbyint(std::ldexp(size, 11 - exponent))) : 0x7c00;
  return static_cast<uint16_t>(bits | (std::signbit(number) ? 0x8000 : 0));
}

float from_float16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, last = bits & 1023;
  const double size = exponent == 31 ? (last ? NAN : INFINITY) : std::ldexp(last + (exponent ? 1024 : 0), (exponent ? exponent : 1) - 25);
  return static_cast<float>(bits & 0x8000 ? -size : size);
}

uint16_t to_half(float number, Type type = BFLOAT16) {
  if (type == FLOAT16) return to_float16(number);
  uint32_t bits;
  std::memcpy(&bits, &number, 4);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float to_float(uint16_t half, Type type = BFLOAT16) {
  if (type == FLOAT16) return from_float16(half);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float number;
  std::memcpy(&number, &bits, 4);
  return number;
}

// Random numbers that bfloat16 holds exactly, and float16 but for tiny ones, so that one reference serves all types.
Floats random(int64_t count, float size = 1) {
  std::normal_distribution<float> normal(0, size);
  Floats numbers(count);
  for (float& number : numbers) number = to_float(to_half(normal(dice)));
  return numbers;
}

// An array of one of the types without a number to spare behind it, which a sanitizer would see read.
struct Array {
  Type type;
  Floats floats;
  Halves halves;

  Array(const Floats& numbers, Type of) : type(of) {
    if (type == FLOAT32) floats = numbers;
    else
      for (float number : numbers) halves.push_back(to_half(number, type));
  }
  void* data() { return type == FLOAT32 ? static_cast<void*>(floats.data()) : halves.data(); }
  Floats numbers() const {
    if (type == FLOAT32) return floats;
    Floats result;
    for (uint16_t half : halves) result.push_back(to_float(half, type));
    return result;
  }
};

// Outputs begin as NaN, so that what is not written shows.
Array unwritten(int64_t count, Type type) { return Array(Floats(count, NAN), type); }

void check(const char* name, const Floats& result, const Doubles& expected, double bound) {
  double error = 0, largest = 1e-30;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double distance = std::fabs(result[i] - expected[i]);
    error = distance <= error ? error : distance;  // NaN stays
    if (std::fabs(expected[i]) > largest) largest = std::fabs(expected[i]);
  }
  const bool is_right = result.size() == expected.size() && error / largest <= bound;
  failures += !is_right;
  std::printf("%-5s level %d, %d thread(s): %-34s %.1e of at most %.1e\n", is_right ? "right" : "WRONG", level, static_cast<int>(threads),
              name, error / largest, bound);
}

void check_done(const char* name, int failed) {
  failures += failed;
  if (failed) std::printf("WRONG %s returned %d\n", name, failed);
}

// What is added to capped scores: nothing; a bias of pairs and one of offsets; both shared by all sequences and heads, some of whose
// numbers hide pairs; a bias of keys.
enum Biases { NONE, OWN, SHARED, OF_KEYS };

// Softmax attention with key ranges and dropout; queries of a larger `size` have larger scores.
void dense(int64_t B, int64_t H, int64_t G, int64_t Tq, int64_t Tk, int64_t D, int64_t Dv, Type type, bool ranges, Biases biases, bool dropped,
           float size = 1) {
  const bool biased = biases != NONE, has_offsets = biases == OWN || biases == SHARED, hides = biases == SHARED;
  const int64_t offsets = Tq + Tk - 1, offset_head = biases == OWN ? offsets : 0, bias_row = biases == OF_KEYS ? 0 : Tk;
  const int64_t bias_head = biases == OWN ? Tq * Tk : 0;
  const int64_t bias_sequence = biases == OWN ? H * Tq * Tk : biases == OF_KEYS ? Tk : 0;
  const int64_t pairs_number = biases == OWN ? B * H * Tq * Tk : biases == OF_KEYS ? B * Tk : Tq * Tk;
  const Floats q = random(B * Tq * H * D, size), k = random(B * Tk * G * D), v = random(B * Tk * G * Dv), g = random(B * Tq * H * Dv);
  Floats bias = random(pairs_number), offset_bias = random(biases == OWN ? H * offsets : offsets);
  for (size_t i = 0; hides && i < bias.size(); ++i) bias[i] = i % 11 ? bias[i] : -INFINITY;
  for (size_t i = 0; hides && i < offset_bias.size(); ++i) offset_bias[i] = i % 7 ? offset_bias[i] : -INFINITY;
  std::vector<int64_t> begin(B * H * Tq), end(B * H * Tq);
  for (int64_t i = 0; i < B * H * Tq; ++i) begin[i] = i % 5 - 2, end[i] = i % 7 ? i % Tk + 1 : 0;
  // (B, T, H, D): heads are interleaved; ranges, the bias and its gradient are contiguous
  const int64_t layout[38] = {B, H, G, Tq, Tk, D, Dv, type, type, type, type, Tq * H * D, D, H * D, Tk * G * D, D, G * D, Tk * G * Dv, Dv,
                              G * Dv, Tq * H * Dv, Dv, H * Dv, H * Tq, Tq, 1, H * Tq, Tq, 1, bias_sequence, bias_head, bias_row, 1,
                              bias_sequence, bias_head, bias_row, offset_head, hides};
  const float scale = 1.0f / std::sqrt(static_cast<float>(D)), factor = dropped ? 2.0f : 1.0f, cap = biased ? 1.5f : 0.0f;
  const uint32_t threshold = dropped ? HALF : 0;
  Array query(q, type), key(k, type), value(v, type), gradient(g, type);
  Array context = unwritten(B * Tq * H * Dv, type), dq = unwritten(q.size(), type), dk = unwritten(k.size(), type),
        dv = unwritten(v.size(), type);
  Floats statistics(2 * B * H * Tq), dbias(bias.size(), NAN), doffset(offset_bias.size());
  const int64_t *from = ranges ? begin.data() : nullptr, *to = ranges ? end.data() : nullptr;
  const float *pairs = biased ? bias.data() : nullptr, *by_offset = has_offsets ? offset_bias.data() : nullptr;
  check_done("dense", attent_dense_attention_context(query.data(), key.data(), value.data(), from, to, pairs, by_offset, context.data(),
                                                     statistics.data(), layout, SEED, threshold, factor, scale, cap, threads, nullptr,
                                                     level));
  check_done("dense", attent_dense_attention_gradients(query.data(), key.data(), value.data(), from, to, pairs, by_offset, context.data(),
                                                       statistics.data(), gradient.data(), dq.data(), dk.data(), dv.data(),
                                                       biased ? dbias.data() : nullptr, has_offsets ? doffset.data() : nullptr, layout, SEED,
                                                       threshold, factor, scale, cap, threads, nullptr, level));
  Doubles expected(B * Tq * H * Dv), eq(q.size()), ek(k.size()), ev(v.size()), eb(bias.size()), eo(offset_bias.size());
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = 0; i < Tq; ++i) {
        const int64_t row = (b * H + h) * Tq + i, group = h / (H / G), query_at = ((b * Tq + i) * H + h) * D;
        const int64_t value_at = ((b * Tq + i) * H + h) * Dv, bias_at = b * bias_sequence + h * bias_head + i * bias_row;
        const int64_t offset_at = h * offset_head + i + Tk - 1;
        const uint32_t hashed = hash(hash(SEED) + SEQUENCE * static_cast<uint32_t>(b) + HEAD * static_cast<uint32_t>(h) +
                                     ROW * static_cast<uint32_t>(i));
        Doubles weights(Tk), kept(Tk), slopes(Tk, 1), dweights(Tk);
        double total = 0, inner = 0, maximum = -INFINITY;
        for (int64_t j = 0; j < Tk; ++j) {
          double score = 0;
          for (int64_t d = 0; d < D; ++d) score += scale * static_cast<double>(q[query_at + d]) * k[((b * Tk + j) * G + group) * D + d];
          if (biased) {
            const double t = std::tanh(score / cap);
            slopes[j] = 1 - t * t, score = cap * t + bias[bias_at + j];
            if (has_offsets) score += offset_bias[offset_at - j];
          }
          weights[j] = !ranges || (j >= begin[row] && j < end[row]) ? score : -INFINITY;
          maximum = std::fmax(maximum, weights[j]);
          kept[j] = !dropped ? 1 : hash(hashed + hash(COLUMN + static_cast<uint32_t>(j))) >= threshold ? 2 : 0;
        }
        for (double& weight : weights) total += weight = weight == -INFINITY ? 0 : std::exp(weight - maximum);
        for (int64_t j = 0; j < Tk; ++j) {
          weights[j] = total > 0 ? weights[j] / total : 0;
          for (int64_t d = 0; d < Dv; ++d) {
            const int64_t at = ((b * Tk + j) * G + group) * Dv + d;
            expected[value_at + d] += weights[j] * kept[j] * v[at];
            ev[at] += weights[j] * kept[j] * g[value_at + d];
            dweights[j] += kept[j] * v[at] * g[value_at + d];
          }
          inner += weights[j] * dweights[j];
        }
        for (int64_t j = 0; j < Tk; ++j) {
          const double dscore = weights[j] * (dweights[j] - inner);
          if (biased) eb[bias_at + j] += dscore;
          if (has_offsets) eo[offset_at - j] += dscore;
          for (int64_t d = 0; d < D; ++d) {
            const int64_t at = ((b * Tk + j) * G + group) * D + d;
            eq[query_at + d] += scale * slopes[j] * dscore * k[at], ek[at] += scale * slopes[j] * dscore * q[query_at + d];
          }
        }
      }
  const double bound = type == BFLOAT16 ? ROUNDED : type == FLOAT16 ? ROUNDED / 8 : size > 1 ? size * EXACT : EXACT;
  check((std::string("dense attention") + SUFFIXES[type]).c_str(), context.numbers(), expected, bound);
  // the sum of a row's weights times their gradients comes from its context, whose rounding to 16 bits the keys multiply
  const double bound_of_scores = type != FLOAT32 ? 4 * bound : bound;
  check("  its query's gradient", dq.numbers(), eq, bound_of_scores);
  check("  its key's gradient", dk.numbers(), ek, bound_of_scores);
  check("  its value's gradient", dv.numbers(), ev, bound);
  if (biased) check("  its bias's gradient", dbias, eb, bound_of_scores);
  if (has_offsets) check("  its offsets' gradient", doffset, eo, bound_of_scores);
}

void tanh_score(int64_t groups, int64_t directions, int64_t Tq, int64_t Tk, int64_t width, float size) {
  const Floats q = random(groups * Tq * width, size), k = random(groups * Tk * width, size), v = random(directions * width);
  const Floats g = random(groups * Tq * Tk);
  const int64_t slabs = 2;
  Floats scores(groups * Tq * Tk, NAN), dq(q.size(), NAN), dk(slabs * k.size(), NAN), dv(groups * slabs * width, NAN);
  check_done("tanh", attent_tanh_score(q.data(), k.data(), v.data(), scores.data(), groups, directions, Tq, Tk, width, threads, nullptr,
                                       level));
  check_done("tanh", attent_tanh_score_gradients(q.data(), k.data(), v.data(), g.data(), dq.data(), dk.data(), dv.data(), groups,
                                                 directions, Tq, Tk, width, slabs, threads, nullptr, level));
  Doubles expected(scores.size()), eq(q.size()), ek(k.size()), ev(groups * width);
  for (int64_t b = 0; b < groups; ++b)
    for (int64_t i = 0; i < Tq; ++i)
      for (int64_t j = 0; j < Tk; ++j)
        for (int64_t d = 0; d < width; ++d) {
          const int64_t row = (b * Tq + i) * width + d, column = (b * Tk + j) * width + d, pair = (b * Tq + i) * Tk + j;
          const double direction = v[b % directions * width + d], t = std::tanh(static_cast<double>(q[row]) + k[column]);
          const double slope = g[pair] * direction * (1 - t * t);
          expected[pair] += direction * t, eq[row] += slope, ek[column] += slope, ev[b * width + d] += g[pair] * t;
        }
  Floats key_sums(k.size()), direction_sums(groups * width);
  for (int64_t b = 0; b < groups; ++b)
    for (int64_t s = 0; s < slabs; ++s) {
      for (int64_t i = 0; i < Tk * width; ++i) key_sums[b * Tk * width + i] += dk[(b * slabs + s) * Tk * width + i];
      for (int64_t d = 0; d < width; ++d) direction_sums[b * width + d] += dv[(b * slabs + s) * width + d];
    }
  check("tanh score", scores, expected, EXACT);
  check("  its query's gradient", dq, eq, EXACT);
  check("  its key's gradient", key_sums, ek, EXACT);
  check("  the gradient of v", direction_sums, ev, EXACT);
}

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

// Of rows 2n and 2n + 1 with the probabilities p and q: adds r_drop / 4 (Σ p log(p / q) + Σ q log(q / p)) to each loss, and the gradient of
// their sum to both rows'.
void add_divergences(int64_t rows, int64_t width, double r_drop, const Doubles& probabilities, Doubles* losses, Doubles* gradients) {
  for (int64_t i = 0; i < rows; i += 2) {
    const double *p = &probabilities[i * width], *q = p + width;
    double first = 0, second = 0;
    for (int64_t j = 0; j < width; ++j) first += p[j] * std::log(p[j] / q[j]), second += q[j] * std::log(q[j] / p[j]);
    for (int64_t row : {i, i + 1}) (*losses)[row] += r_drop / 4 * (first + second);
    for (int64_t j = 0; j < width; ++j) {
      (*gradients)[i * width + j] += r_drop / 2 * (p[j] * (std::log(p[j] / q[j]) - first) + p[j] - q[j]);
      (*gradients)[(i + 1) * width + j] += r_drop / 2 * (q[j] * (std::log(q[j] / p[j]) - second) + q[j] - p[j]);
    }
  }
}

void cross_entropy(int64_t rows, int64_t width, bool half, bool biased, float smoothing, float r_drop) {
  const Type type = half ? BFLOAT16 : FLOAT32;
  const Floats logits = random(rows * width, 3), bias = random(width);
  std::vector<int64_t> target(rows);
  for (int64_t& index : target) index = static_cast<int64_t>(dice() % width);
  for (int64_t i = 0; r_drop > 0 && i < rows; i += 2) target[i + 1] = target[i];
  Array gradient(logits, type);
  const int64_t tasks = (rows + 15) / 16;
  Floats losses(rows, NAN), columns(tasks * width, NAN), sums(width);
  check_done("loss", attent_linear_cross_entropy(gradient.data(), target.data(), biased ? bias.data() : nullptr, losses.data(),
                                                 biased ? columns.data() : nullptr, rows, width, half, 1, smoothing, r_drop, threads,
                                                 nullptr, level));
  Doubles expected(rows), probabilities(rows * width), eg(rows * width), es(width);
  for (int64_t i = 0; i < rows; ++i) {
    Doubles x(width);
    double total = 0, mean = 0;
    for (int64_t j = 0; j < width; ++j) {
      x[j] = logits[i * width + j] + static_cast<double>(biased ? bias[j] : 0);
      total += std::exp(x[j]), mean += x[j] / width;
    }
    expected[i] = std::log(total) - (1 - smoothing) * x[target[i]] - smoothing * mean;
    for (int64_t j = 0; j < width; ++j) {
      probabilities[i * width + j] = std::exp(x[j]) / total;
      eg[i * width + j] = probabilities[i * width + j] - smoothing / width - (j == target[i] ? 1 - smoothing : 0);
    }
  }
  if (r_drop > 0) add_divergences(rows, width, r_drop, probabilities, &expected, &eg);
  for (int64_t i = 0; i < rows * width; ++i) es[i % width] += eg[i];
  for (int64_t i = 0; biased && i < tasks * width; ++i) sums[i % width] += columns[i];
  check(half ? "cross entropy, bfloat16" : "cross entropy", losses, expected, EXACT);
  check("  its gradient", gradient.numbers(), eg, half ? ROUNDED : EXACT);
  if (biased) check("  the bias's gradient", sums, es, EXACT);
}

void gemm(int64_t number, int64_t depth, int64_t columns) {
  constexpr int64_t PANEL = 64;
  const int64_t panels = (columns + PANEL - 1) / PANEL;
  const Floats rows = random(number * depth), weights = random(depth * columns), bias = random(columns);
  Doubles expected(number * columns);
  for (int64_t i = 0; i < number * columns; ++i) {
    expected[i] = bias[i % columns];
    for (int64_t d = 0; d < depth; ++d) expected[i] += static_cast<double>(rows[i / columns * depth + d]) * weights[d * columns + i % columns];
  }
  for (int64_t size : {4, 2}) {
    std::vector<uint8_t> packed(panels * PANEL * (size * depth + 4));
    Floats to(number * columns, NAN);
    for (int64_t c = 0; c < columns; ++c) {
      uint8_t* panel = packed.data() + c / PANEL * PANEL * (size * depth + 4);
      std::memcpy(panel + PANEL * size * depth + 4 * (c % PANEL), &bias[c], 4);
      for (int64_t d = 0; d < depth; ++d) {
        const float weight = weights[d * columns + c];
        const uint16_t half = to_half(weight);
        std::memcpy(panel + size * (d * PANEL + c % PANEL), size == 4 ? static_cast<const void*>(&weight) : &half, size);
      }
    }
    check_done("gemm", attent_packed_gemm(rows.data(), packed.data(), to.data(), number, depth, columns, size == 2, threads, nullptr, level));
    check(size == 4 ? "product of packed weights" : "product of weights in bfloat16", to, expected, EXACT);
  }
}

// Rows and weights rounded to 8 bits, whose sums are exact, by every kernel of this processor.
void gemm_int8(int64_t number, int64_t depth, int64_t columns) {
  constexpr int64_t PANEL = 64, STEP = 64;
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

void check_all() {
  dice.seed(1);
  for (Type type : {FLOAT32, BFLOAT16, FLOAT16}) {
    dense(2, 3, 3, 5, 7, 11, 13, type, false, NONE, false);
    dense(2, 4, 2, 37, 131, 16, 16, type, true, NONE, true);
    dense(1, 2, 1, 19, 263, 33, 17, type, false, OWN, false);
    dense(2, 4, 2, 21, 271, 9, 5, type, true, SHARED, true);
    dense(2, 3, 3, 35, 259, 7, 16, type, false, OF_KEYS, false);
    dense(1, 1, 1, 3, 517, 64, 64, type, true, NONE, false);
  }
  // scores beyond 64 over several tiles
  dense(1, 2, 2, 19, 523, 16, 12, FLOAT32, false, NONE, false, 40);
  for (bool half : {false, true}) {
    layer_norm(71, 37, half);
    layer_norm(3, 64, half);
    for (float smoothing : {0.0f, 0.1f}) {
      cross_entropy(19, 101, half, smoothing > 0, smoothing, 0);
      cross_entropy(20, 101, half, smoothing > 0, smoothing, 2);
    }
  }
  for (float size : {0.5f, 5.0f, 30.0f}) tanh_score(3, 3, 71, 37, 19, size);
  tanh_score(2, 1, 5, 67, 33, 1);
  dropout(19, 37);
  gemm(7, 131, 71);
  gemm(197, 13, 523);
  gemm_int8(7, 131, 71);
  gemm_int8(197, 13, 523);
  topk(5, 3, 211);
}

}  // namespace

int main(int count, char** levels) {
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
