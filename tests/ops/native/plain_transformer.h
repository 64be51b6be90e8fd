// A small Transformer in double, one row at a time, and its weights as the library reads them.
#pragma once

#include "harness.h"

#include <algorithm>

namespace harness {

struct Sizes {
  int64_t width, heads, groups, head, hidden, layers;
  // whether norms come first; the activation: relu, gelu or silu; whether positions are angles; whether there is attention to a source
  bool pre;
  int activation;
  bool rotary, cross;
  int64_t vocabulary, positions;

  int64_t queries() const { return heads * head; }
  // numbers of a key and its value for all groups
  int64_t cached() const { return 2 * groups * head; }
};

struct Linear {
  Floats weight, bias;  // (depth, columns), (columns)

  Linear(int64_t depth, int64_t columns)
      : weight(random(depth * columns, 1 / std::sqrt(static_cast<float>(depth)))), bias(random(columns, 0.5f)) {}
  Doubles operator()(const Doubles& x) const {
    Doubles result(bias.begin(), bias.end());
    for (size_t k = 0; k < x.size(); ++k)
      for (size_t c = 0; c < result.size(); ++c) result[c] += x[k] * weight[k * result.size() + c];
    return result;
  }
};

struct Norm {
  static constexpr float EPSILON = 1e-5f;
  Floats weight, bias;

  explicit Norm(int64_t width) : weight(random(width, 0.3f)), bias(random(width, 0.3f)) {
    for (float& number : weight) ++number;
  }
  Doubles operator()(const Doubles& x) const {
    double mean = 0, variance = 0;
    for (double number : x) mean += number / x.size();
    for (double number : x) variance += (number - mean) * (number - mean) / x.size();
    Doubles result(x.size());
    for (size_t d = 0; d < x.size(); ++d) result[d] = (x[d] - mean) / std::sqrt(variance + EPSILON) * weight[d] + bias[d];
    return result;
  }
};

struct TransformerLayer {
  Norm self;
  Linear project, output;
  Norm cross;
  Linear query, context;
  Norm feed;
  Linear widen, narrow;

  explicit TransformerLayer(const Sizes& sizes)
      : self(sizes.width), project(sizes.width, sizes.queries() + sizes.cached()), output(sizes.queries(), sizes.width),
        cross(sizes.width), query(sizes.width, sizes.queries()), context(sizes.queries(), sizes.width), feed(sizes.width),
        widen(sizes.width, sizes.hidden), narrow(sizes.hidden, sizes.width) {}
};

// Keys and values, by layer and position.
using Past = std::vector<std::vector<Doubles>>;

struct Transformer {
  static constexpr float FACTOR = 1.5f, SCALE = 0.4f;
  const Sizes sizes;
  std::vector<TransformerLayer> layers;
  const Norm last;
  const Floats table, positions;  // (vocabulary, width), (positions, width)
  Floats cosine, sine;            // (positions, head / 2)

  explicit Transformer(const Sizes& sizes)
      : sizes(sizes), layers(make(sizes)), last(sizes.width), table(random(sizes.vocabulary * sizes.width)),
        positions(random(sizes.positions * sizes.width)) {
    for (float angle : random(sizes.positions * (sizes.head / 2))) cosine.push_back(std::cos(angle)), sine.push_back(std::sin(angle));
  }
  static std::vector<TransformerLayer> make(const Sizes& sizes) {
    std::vector<TransformerLayer> layers;
    for (int64_t l = 0; l < sizes.layers; ++l) layers.emplace_back(sizes);
    return layers;
  }

  Doubles embed(int64_t token, int64_t position) const {
    Doubles x(sizes.width);
    for (int64_t d = 0; d < sizes.width; ++d) {
      x[d] = FACTOR * static_cast<double>(table[token * sizes.width + d]);
      if (!sizes.rotary) x[d] += positions[position * sizes.width + d];
    }
    return x;
  }
  Doubles input(const Doubles& x, const Norm& norm) const { return sizes.pre ? norm(x) : x; }
  void add(const Doubles& output, const Norm& norm, Doubles* x) const {
    for (int64_t d = 0; d < sizes.width; ++d) (*x)[d] += output[d];
    if (!sizes.pre) *x = norm(*x);
  }
  Doubles result(const Doubles& x) const { return sizes.pre ? last(x) : x; }

  // Queries, keys and values of one row.
  Doubles project(const TransformerLayer& layer, const Doubles& x, int64_t position) const {
    Doubles projected = layer.project(input(x, layer.self));
    const int64_t half = sizes.head / 2;
    for (int64_t h = 0; sizes.rotary && h < sizes.heads + sizes.groups; ++h)
      for (int64_t d = 0; d < half; ++d) {
        double &first = projected[h * sizes.head + d], &second = projected[h * sizes.head + half + d];
        const double a = first, b = second, c = cosine[position * half + d], s = sine[position * half + d];
        first = a * c - b * s, second = a * s + b * c;
      }
    return projected;
  }
  Doubles keys_of(const Doubles& projected) const { return Doubles(projected.begin() + sizes.queries(), projected.end()); }

  // The first numbers of `query` are the queries.
  Doubles attend(const Doubles& query, const std::vector<Doubles>& keys) const {
    Doubles context(sizes.queries());
    for (int64_t h = 0; h < sizes.heads; ++h) {
      const int64_t group = h / (sizes.heads / sizes.groups), value = (sizes.groups + group) * sizes.head;
      Doubles weights(keys.size());
      double total = 0;
      for (size_t j = 0; j < keys.size(); ++j) {
        for (int64_t d = 0; d < sizes.head; ++d) weights[j] += SCALE * query[h * sizes.head + d] * keys[j][group * sizes.head + d];
        total += weights[j] = std::exp(weights[j]);
      }
      for (size_t j = 0; j < keys.size(); ++j)
        for (int64_t d = 0; d < sizes.head; ++d) context[h * sizes.head + d] += weights[j] / total * keys[j][value + d];
    }
    return context;
  }

  double activate(double x) const {
    if (sizes.activation == 0) return std::max(x, 0.0);
    return sizes.activation == 1 ? x / 2 * (1 + std::erf(x / std::sqrt(2.0))) : x / (1 + std::exp(-x));
  }
  void feed_forward(const TransformerLayer& layer, Doubles* x) const {
    Doubles hidden = layer.widen(input(*x, layer.feed));
    for (double& number : hidden) number = activate(number);
    add(layer.narrow(hidden), layer.feed, x);
  }

  // The features of a sentence.
  std::vector<Doubles> encode(const std::vector<int64_t>& tokens) const {
    std::vector<Doubles> rows, results;
    for (size_t j = 0; j < tokens.size(); ++j) rows.push_back(embed(tokens[j], j));
    for (const TransformerLayer& layer : layers) {
      std::vector<Doubles> projected, keys;
      for (size_t j = 0; j < rows.size(); ++j) {
        projected.push_back(project(layer, rows[j], j));
        keys.push_back(keys_of(projected[j]));
      }
      for (size_t j = 0; j < rows.size(); ++j) {
        add(layer.output(attend(projected[j], keys)), layer.self, &rows[j]);
        feed_forward(layer, &rows[j]);
      }
    }
    for (const Doubles& x : rows) results.push_back(result(x));
    return results;
  }

  // The features after one more token, whose keys and values are added to the past.
  Doubles step(int64_t token, const Past& source, Past* past) const {
    const int64_t position = static_cast<int64_t>((*past)[0].size());
    Doubles x = embed(token, position);
    for (int64_t l = 0; l < sizes.layers; ++l) {
      const TransformerLayer& layer = layers[l];
      const Doubles projected = project(layer, x, position);
      (*past)[l].push_back(keys_of(projected));
      add(layer.output(attend(projected, (*past)[l])), layer.self, &x);
      if (sizes.cross) add(layer.context(attend(layer.query(input(x, layer.cross)), source[l])), layer.cross, &x);
      feed_forward(layer, &x);
    }
    return result(x);
  }

  // The weights in reading order, as numbers of `size` bytes.
  std::vector<uint8_t> pack(int64_t size) const {
    std::vector<uint8_t> to;
    const auto norm = [&to](const Norm& norm) { append_vector(norm.weight, &to), append_vector(norm.bias, &to); };
    const auto linear = [&to, size](const Linear& linear) { append_panels(linear.weight, linear.bias, size, &to); };
    for (const TransformerLayer& layer : layers) {
      norm(layer.self), linear(layer.project), linear(layer.output);
      if (sizes.cross) norm(layer.cross), linear(layer.query), linear(layer.context);
      norm(layer.feed), linear(layer.widen), linear(layer.narrow);
    }
    if (sizes.pre) norm(last);
    return to;
  }
  // The table as rows of float32, or with tokens as columns of smaller numbers.
  std::vector<uint8_t> pack_table(int64_t size) const {
    if (size == 4) {
      const auto bytes = reinterpret_cast<const uint8_t*>(table.data());
      return std::vector<uint8_t>(bytes, bytes + 4 * table.size());
    }
    std::vector<uint8_t> to;
    Floats columns(table.size());
    for (size_t i = 0; i < table.size(); ++i) columns[i % sizes.width * sizes.vocabulary + i / sizes.width] = table[i];
    append_panels(columns, Floats(sizes.vocabulary), size, &to);
    return to;
  }
  // Rows of positions and angles from one on; null where there are none.
  const float* positions_from(int64_t position) const { return sizes.rotary ? nullptr : &positions[position * sizes.width]; }
  const float* angles_from(const Floats& angles, int64_t position) const {
    return sizes.rotary ? &angles[position * (sizes.head / 2)] : nullptr;
  }
};

// Keys and values (layers, sources, longest, …) that the decoder's rows attend to, and lengths of the sources.
struct Sources {
  const Sizes sizes;
  const int64_t number, longest;
  const Floats numbers;
  std::vector<int64_t> lengths;

  Sources(const Sizes& sizes, int64_t number, int64_t longest)
      : sizes(sizes), number(number), longest(longest), numbers(random(sizes.layers * number * longest * sizes.cached())), lengths(number) {
    for (int64_t s = 0; s < number; ++s) lengths[s] = s == 1 ? longest : 1 + 5 * s % longest;
  }
  Past of(int64_t s) const {
    Past past(sizes.layers);
    for (int64_t l = 0; l < sizes.layers; ++l)
      for (int64_t j = 0; j < lengths[s]; ++j) {
        const float* from = &numbers[((l * number + s) * longest + j) * sizes.cached()];
        past[l].emplace_back(from, from + sizes.cached());
      }
    return past;
  }
};

}  // namespace harness
