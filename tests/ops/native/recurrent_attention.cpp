// The attention of recurrent decoders, with its gradients.

#include "harness.h"

#include <algorithm>

extern "C" {
int attent_rnn_attention_keys(const void*, void*, float*, int64_t, int64_t, int64_t, int64_t, int64_t, Parallel, int);
int attent_rnn_attention(const void*, const float*, const float*, const void*, const void*, const float*, const void*, const int64_t*, float*,
                         float*, void*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, Parallel, int);
int attent_rnn_attention_gradients(const float*, const float*, const float*, const void*, const void*, const float*, const void*,
                                   const int64_t*, const void*, const void*, void*, float*, void*, int64_t, int64_t, int64_t, int64_t, int64_t,
                                   int64_t, int64_t, int64_t, int64_t, int64_t, Parallel, int);
int attent_rnn_attention_keys_gradients(const float*, const float*, const float*, const void*, const float*, const int64_t*, void*, float*,
                                        int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, Parallel, int);
}

namespace harness {

namespace {

constexpr int64_t STEPS = 5, LINE = 16;
// The largest feature of which the library keeps the exponential.
constexpr double LARGEST_SINGLE = 20;

// Scores v·tanh(q + k) or, if `dot`, q·k; `plain` ones have neither a bias nor gradients of outputs. Queries and keys of a larger `size`
// take other ways: keys share divisions up to |q| + |k| = 10 or 20, and need |q| and |k| up to 20 for a product of exponentials.
struct Options {
  bool half, dot, plain;
  float size;
};

// The inputs, and by plain loops all steps. Rows have no key, some, all, or a length beyond all.
struct Attention {
  const Options options;
  const int64_t rows, keys, width, features, line, product_row;
  Floats products, bias, key, values, v;
  std::vector<int64_t> lengths;
  // (rows, steps, …); contexts are (steps, rows, …)
  Doubles queries, weights, contexts;

  Attention(int64_t rows, int64_t keys, int64_t width, int64_t features, Options options)
      : options(options), rows(rows), keys(keys), width(width), features(features), line((width + LINE - 1) / LINE * LINE),
        product_row(width + 3), products(random(STEPS * rows * product_row, options.size)), bias(random(width)),
        key(random(rows * keys * width, options.size)), values(random(rows * keys * features)), v(random(width)), lengths(rows),
        queries(rows * STEPS * width), weights(rows * STEPS * keys), contexts(STEPS * rows * features) {
    v.resize(line);
    // one feature is large, but its sum is not for one key in four or one step: products of exponentials must not hide these
    const float large = to_float(to_half(3 * options.size));
    for (int64_t i = 0; i < STEPS * rows; ++i) products[i * product_row + width / 2] = i / rows == 1 ? -large : large;
    for (int64_t j = 0; j < rows * keys; ++j) key[j * width + width / 2] = j % keys % 4 == 3 ? -large : large;
    for (int64_t i = 0; i < rows; ++i) lengths[i] = i % 3 == 0 ? keys + i : (7 * i + 3) % (keys + 1);
    if (rows > 4) lengths[4] = 0;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t t = 0; t < STEPS; ++t) attend(i, t);
  }
  int64_t length(int64_t i) const { return std::min(lengths[i], keys); }

  void attend(int64_t i, int64_t t) {
    double *query = &queries[(i * STEPS + t) * width], *weight = &weights[(i * STEPS + t) * keys], maximum = -INFINITY, total = 0;
    for (int64_t d = 0; d < width; ++d) query[d] = products[(t * rows + i) * product_row + d] + (options.plain ? 0.0 : bias[d]);
    for (int64_t j = 0; j < length(i); ++j) {
      const float* to = &key[(i * keys + j) * width];
      for (int64_t d = 0; d < width; ++d) weight[j] += options.dot ? query[d] * to[d] : v[d] * std::tanh(query[d] + to[d]);
      maximum = std::max(maximum, weight[j]);
    }
    for (int64_t j = 0; j < length(i); ++j) total += weight[j] = std::exp(weight[j] - maximum);
    for (int64_t j = 0; j < length(i); ++j) {
      weight[j] /= total;
      for (int64_t f = 0; f < features; ++f) contexts[(t * rows + i) * features + f] += weight[j] * values[(i * keys + j) * features + f];
    }
  }
};

// The gradients of all steps: what goes in, and by plain loops what comes out.
struct Gradients {
  const Attention& forward;
  const int64_t query_row, query_step;
  // of the contexts, from a product and from outputs, (steps, rows, features)
  const Floats products, outputs;
  // (rows, steps, …); of the queries (steps, rows, …), of v (rows, width)
  Doubles contexts, scores, queries, keys, v;

  // `queries_in` and `weights` are those that the library kept
  Gradients(const Attention& forward, const Floats& queries_in, const Floats& weights)
      : forward(forward), query_row(forward.width + 5), query_step(forward.rows * query_row + 2),
        products(random(STEPS * forward.rows * forward.features)), outputs(random(products.size())), contexts(products.size()),
        scores(weights.size()), queries(STEPS * query_step), keys(forward.key.size()), v(forward.rows * forward.width) {
    for (int64_t i = 0; i < forward.rows; ++i)
      for (int64_t t = 0; t < STEPS; ++t)
        differentiate(i, t, &queries_in[(i * STEPS + t) * forward.width], &weights[(i * STEPS + t) * forward.keys]);
  }

  void differentiate(int64_t i, int64_t t, const float* query, const float* weight) {
    const int64_t features = forward.features, width = forward.width, length = forward.length(i);
    double *context = &contexts[(i * STEPS + t) * features], *score = &scores[(i * STEPS + t) * forward.keys], mean = 0;
    for (int64_t f = 0; f < features; ++f) {
      const int64_t at = (t * forward.rows + i) * features + f;
      context[f] = products[at] + (forward.options.plain ? 0.0 : outputs[at]);
    }
    for (int64_t j = 0; j < length; ++j) {
      for (int64_t f = 0; f < features; ++f) score[j] += context[f] * forward.values[(i * forward.keys + j) * features + f];
      mean += weight[j] * score[j];
    }
    for (int64_t j = 0; j < length; ++j) {
      score[j] = weight[j] * (score[j] - mean);
      for (int64_t d = 0; d < width; ++d) {
        const int64_t at = (i * forward.keys + j) * width + d;
        double& dquery = queries[t * query_step + i * query_row + d];
        if (forward.options.dot) {
          dquery += score[j] * forward.key[at];
          continue;
        }
        const double tanh = std::tanh(static_cast<double>(query[d]) + forward.key[at]), slope = forward.v[d] * (1 - tanh * tanh);
        dquery += score[j] * slope, keys[at] += score[j] * slope, v[i * width + d] += score[j] * tanh;
      }
    }
  }
};

// What the library computes of the keys before the first step.
struct Lowered {
  Array keys;
  Floats maxima;
};

Lowered lower(const Attention& plain, Array& key) {
  const int64_t rows = plain.rows, keys = plain.keys;
  Lowered lowered{unwritten(rows * keys * plain.line, key.type), Floats(rows, NAN)};
  check_done("keys", attent_rnn_attention_keys(key.data(), lowered.keys.data(), lowered.maxima.data(), rows, keys, plain.width,
                                               plain.options.half, threads, nullptr, level));
  Floats logarithms = lowered.keys.numbers();
  Doubles expected(logarithms.size()), maxima(rows);
  for (float& number : logarithms) number = std::log(number) / 2;
  for (int64_t j = 0; j < rows * keys; ++j)
    for (int64_t d = 0; d < plain.width; ++d) {
      const double feature = plain.key[j * plain.width + d];
      expected[j * plain.line + d] = std::min(std::max(feature, -LARGEST_SINGLE), LARGEST_SINGLE);
      maxima[j / keys] = std::max(maxima[j / keys], std::fabs(feature));
    }
  check("logarithms of lowered keys", logarithms, expected, plain.options.half ? ROUNDED : EXACT);
  check("  largest features", lowered.maxima, maxima, 0);
  return lowered;
}

void attention_gradients(const Attention& plain, Array& key, Array& values, Lowered& lowered, const Floats& queries, const Floats& weights) {
  const Gradients expected(plain, queries, weights);
  const Options& options = plain.options;
  const int64_t rows = plain.rows, keys = plain.keys, width = plain.width, features = plain.features;
  Array outputs(expected.outputs, key.type), dcontexts = unwritten(expected.contexts.size(), key.type);
  Array dqueries = unwritten(expected.queries.size(), key.type), dkeys = unwritten(plain.key.size(), key.type);
  Floats dscores(expected.scores.size(), NAN), dv(rows * width, NAN);
  const float *v = options.dot ? nullptr : plain.v.data(), *maxima = options.dot ? nullptr : lowered.maxima.data();
  for (int64_t t = STEPS - 1; t >= 0; --t) {
    const float* first = &expected.products[t * rows * features];
    Array product(Floats(first, first + rows * features), key.type);
    check_done("attention", attent_rnn_attention_gradients(
                                queries.data(), weights.data(), v, key.data(), options.dot ? nullptr : lowered.keys.data(), maxima,
                                values.data(), plain.lengths.data(), product.data(), options.plain ? nullptr : outputs.data(),
                                dcontexts.data(), dscores.data(), dqueries.data(), rows, STEPS, keys, width, features, t,
                                expected.query_step, expected.query_row, options.half, threads, nullptr, level));
  }
  const double bound = options.half ? ROUNDED : EXACT;
  check("  the contexts' gradient", dcontexts.numbers(), expected.contexts, bound);
  check("  the scores' gradient", dscores, expected.scores, EXACT);
  check("  the queries' gradient", pick(dqueries.numbers(), rows, expected.query_row, expected.query_step, width),
        pick(expected.queries, rows, expected.query_row, expected.query_step, width), bound);
  if (options.dot) return;
  check_done("keys", attent_rnn_attention_keys_gradients(queries.data(), dscores.data(), v, key.data(), maxima, plain.lengths.data(),
                                                         dkeys.data(), dv.data(), rows, STEPS, keys, width, options.half, threads, nullptr,
                                                         level));
  check("  the keys' gradient", dkeys.numbers(), expected.keys, bound);
  check("  the gradient of v", dv, expected.v, EXACT);
}

void attention(int64_t rows, int64_t keys, int64_t width, int64_t features, Options options) {
  const Attention plain(rows, keys, width, features, options);
  const Type type = options.half ? BFLOAT16 : FLOAT32;
  Array key(plain.key, type), values(plain.values, type), contexts = unwritten(plain.contexts.size(), type);
  Lowered lowered = lower(plain, key);
  Floats queries(plain.queries.size(), NAN), weights(plain.weights.size(), NAN);
  for (int64_t t = 0; t < STEPS; ++t) {
    const float* first = &plain.products[t * rows * plain.product_row];
    Array product(Floats(first, first + rows * plain.product_row), type);
    check_done("attention", attent_rnn_attention(product.data(), options.plain ? nullptr : plain.bias.data(),
                                                 options.dot ? nullptr : plain.v.data(), key.data(),
                                                 options.dot ? nullptr : lowered.keys.data(), options.dot ? nullptr : lowered.maxima.data(),
                                                 values.data(), plain.lengths.data(), queries.data(), weights.data(), contexts.data(), rows,
                                                 STEPS, keys, width, features, t, plain.product_row, options.half, threads, nullptr, level));
  }
  // lowered keys are rounded to bfloat16
  const double bound = options.half ? ROUNDED : EXACT;
  check((std::string(options.dot ? "attention by products" : "attention by tanh") + SUFFIXES[type]).c_str(), contexts.numbers(),
        plain.contexts, bound);
  check("  its queries", queries, plain.queries, EXACT);
  check("  its weights", weights, plain.weights, options.dot ? EXACT : bound);
  attention_gradients(plain, key, values, lowered, queries, weights);
}

}  // namespace

void check_recurrent_attention() {
  for (bool half : {false, true}) {
    for (float size : {0.5f, 2.6f, 4.0f, 30.0f}) {
      attention(1, 7, 5, 3, {half, false, true, size});
      attention(6, 19, 37, 21, {half, false, false, size});
    }
    attention(3, 33, 64, 16, {half, false, false, 1});
    attention(6, 19, 37, 21, {half, true, false, 0.5f});
    attention(2, 5, 9, 67, {half, true, true, 0.5f});
  }
}

}  // namespace harness
