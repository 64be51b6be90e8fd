// What all parts of this program share: random numbers, arrays of each type, and comparisons.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);

namespace harness {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Halves = std::vector<uint16_t>;

constexpr uint32_t SEQUENCE = 0x9E3779B1u, HEAD = 0x85EBCA77u, ROW = 0xC2B2AE3Du, COLUMN = 0x5BD1E995u, SEED = 17, HALF = 1u << 31;
// Float32 sums of some hundred terms, and the rounding of bfloat16.
constexpr double EXACT = 2e-5, ROUNDED = 1.2e-2;

// Columns that packed weights hold side by side.
constexpr int64_t PANEL = 64;

inline std::mt19937 dice(1);
inline int failures = 0, level = 0;
inline int64_t threads = 1;

inline uint32_t hash(uint32_t bits) {
  bits = (bits ^ (bits >> 16)) * 0x7FEB352Du;
  bits = (bits ^ (bits >> 15)) * 0x846CA68Bu;
  return bits ^ (bits >> 16);
}

// Types of numbers, in the order of the library's.
enum Type { FLOAT32, BFLOAT16, FLOAT16 };
inline const char* const SUFFIXES[] = {"", ", bfloat16", ", float16"};

// Round a number to the next of float16.
inline uint16_t to_float16(float number) {
  if (std::isnan(number)) return 0x7e00;
  const double size = std::fabs(number);
  int exponent;
  std::frexp(size, &exponent);
  if (exponent < -13) exponent = -13;
  const int bits = size < 65520 ? ((exponent + 13) << 10) + static_cast<int>(std::nearbyint(std::ldexp(size, 11 - exponent))) : 0x7c00;
  return static_cast<uint16_t>(bits | (std::signbit(number) ? 0x8000 : 0));
}

inline float from_float16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, last = bits & 1023;
  const double size = exponent == 31 ? (last ? NAN : INFINITY) : std::ldexp(last + (exponent ? 1024 : 0), (exponent ? exponent : 1) - 25);
  return static_cast<float>(bits & 0x8000 ? -size : size);
}

inline uint16_t to_half(float number, Type type = BFLOAT16) {
  if (type == FLOAT16) return to_float16(number);
  uint32_t bits;
  std::memcpy(&bits, &number, 4);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float to_float(uint16_t half, Type type = BFLOAT16) {
  if (type == FLOAT16) return from_float16(half);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float number;
  std::memcpy(&number, &bits, 4);
  return number;
}

// Random numbers that bfloat16 holds exactly, and float16 but for tiny ones, so that one reference serves all types.
inline Floats random(int64_t count, float size = 1) {
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
inline Array unwritten(int64_t count, Type type) { return Array(Floats(count, NAN), type); }

inline void check(const char* name, const Floats& result, const Doubles& expected, double bound) {
  double error = 0, largest = 1e-30;
  for (size_t i = 0; i < expected.size() && i < result.size(); ++i) {
    const double distance = std::fabs(result[i] - expected[i]);
    error = distance <= error ? error : distance;  // NaN stays
    if (std::fabs(expected[i]) > largest) largest = std::fabs(expected[i]);
  }
  const bool is_right = result.size() == expected.size() && error / largest <= bound;
  failures += !is_right;
  std::printf("%-5s level %d, %d thread(s): %-34s %.1e of at most %.1e\n", is_right ? "right" : "WRONG", level, static_cast<int>(threads),
              name, error / largest, bound);
}

inline void check_done(const char* name, int failed) {
  failures += failed;
  if (failed) std::printf("WRONG %s returned %d\n", name, failed);
}

// The cross entropy of a token's logits with a smoothed target; writes the probabilities and the logits' gradient.
inline double smoothed_loss(const Doubles& logits, int64_t target, double smoothing, double* probabilities, double* gradient) {
  const int64_t classes = static_cast<int64_t>(logits.size());
  double total = 0, mean = 0;
  for (double logit : logits) total += std::exp(logit), mean += logit / classes;
  for (int64_t j = 0; j < classes; ++j) {
    probabilities[j] = std::exp(logits[j]) / total;
    gradient[j] = probabilities[j] - smoothing / classes - (j == target ? 1 - smoothing : 0);
  }
  return std::log(total) - (1 - smoothing) * logits[target] - smoothing * mean;
}

// Append a vector, padded with zeros to whole panels.
inline void append_vector(const Floats& numbers, std::vector<uint8_t>* to) {
  const size_t begin = to->size();
  to->resize(begin + (numbers.size() + PANEL - 1) / PANEL * PANEL * 4);
  std::memcpy(to->data() + begin, numbers.data(), 4 * numbers.size());
}

// Append weights (depth, columns) as numbers of `size` bytes, 4 or 2, in panels of columns, each with its biases.
inline void append_panels(const Floats& weights, const Floats& bias, int64_t size, std::vector<uint8_t>* to) {
  const int64_t columns = bias.size(), depth = weights.size() / columns, panel_size = PANEL * (size * depth + 4), begin = to->size();
  to->resize(begin + (columns + PANEL - 1) / PANEL * panel_size);
  for (int64_t c = 0; c < columns; ++c) {
    uint8_t* panel = to->data() + begin + c / PANEL * panel_size;
    std::memcpy(panel + PANEL * size * depth + 4 * (c % PANEL), &bias[c], 4);
    for (int64_t d = 0; d < depth; ++d) {
      const float weight = weights[d * columns + c];
      const uint16_t half = to_half(weight);
      std::memcpy(panel + size * (d * PANEL + c % PANEL), size == 4 ? static_cast<const void*>(&weight) : &half, size);
    }
  }
}

// Of each step's rows, which lie `row` numbers apart, and the steps `step`, the first `count` numbers.
template <typename Numbers>
Numbers pick(const Numbers& from, int64_t rows, int64_t row, int64_t step, int64_t count) {
  Numbers result;
  for (size_t first = 0; first < from.size(); first += step)
    for (int64_t i = 0; i < rows; ++i) result.insert(result.end(), &from[first + i * row], &from[first + i * row] + count);
  return result;
}

// The parts, each for the level and number of threads above.
void check_attention();
void check_recurrent();
void check_recurrent_attention();
void check_tiles();
void check_stacks();
void check_search();

}  // namespace harness
