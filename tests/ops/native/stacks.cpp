// The Transformer's encoder, and the steps of its decoder.

#include "plain_transformer.h"

extern "C" {
int attent_transformer_encoder(const int64_t*, const uint8_t*, const float*, const float*, const float*, const uint8_t*, const int64_t*,
                               float*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                               float, float, float, int64_t, Parallel, int);
int attent_transformer_step(const int64_t*, const uint8_t*, const float*, const float*, const float*, const uint8_t*, float*, const int64_t*,
                            const int64_t*, const int64_t*, const float*, float*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                            int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, float, float,
                            float, int64_t, Parallel, int);
}

namespace harness {

namespace {

// Sentences of all lengths, in weights of `size` bytes.
void encoder(const Sizes& sizes, int64_t batch, int64_t size) {
  const Transformer plain(sizes);
  const int64_t length = sizes.positions, width = sizes.width;
  const std::vector<uint8_t> weights = plain.pack(size), table = plain.pack_table(size);
  std::vector<int64_t> tokens(batch * length), lengths(batch);
  for (int64_t& token : tokens) token = dice() % sizes.vocabulary;
  for (int64_t b = 0; b < batch; ++b) lengths[b] = b == 1 ? length : 1 + 7 * b % length;
  Floats memory(batch * length * width, NAN), found, padding;
  check_done("encoder", attent_transformer_encoder(
                            tokens.data(), table.data(), plain.positions_from(0), plain.angles_from(plain.cosine, 0),
                            plain.angles_from(plain.sine, 0), weights.data(), lengths.data(), memory.data(), batch, length, width,
                            sizes.heads, sizes.groups, sizes.head, sizes.hidden, sizes.layers, sizes.pre, sizes.activation, size == 2,
                            Transformer::FACTOR, Transformer::SCALE, Norm::EPSILON, threads, nullptr, level));
  Doubles expected;
  for (int64_t b = 0; b < batch; ++b) {
    const auto first = tokens.begin() + b * length;
    for (const Doubles& row : plain.encode(std::vector<int64_t>(first, first + lengths[b])))
      expected.insert(expected.end(), row.begin(), row.end());
    const auto begin = memory.begin() + b * length * width, end = begin + lengths[b] * width;
    found.insert(found.end(), begin, end);
    for (auto number = end; number < begin + length * width; ++number) padding.push_back(std::isnan(*number));
  }
  check(size == 2 ? "encoder, bfloat16" : "encoder", found, expected, EXACT / 5);
  check("  its padding", padding, Doubles(padding.size(), 1), 0);
}

// Steps of `batch` rows, between which rows continue others; keys and values stay where they were written.
void decoder(const Sizes& sizes, int64_t batch, int64_t longest, int64_t size) {
  const Transformer plain(sizes);
  const int64_t steps = sizes.positions, cached = sizes.cached(), number = sizes.cross ? (batch + 2) / 3 : 0;
  const Sources sources(sizes, number, longest);
  const std::vector<uint8_t> weights = plain.pack(size), table = plain.pack_table(size);
  // (layers, steps, batch, cached), and the rows of each row's keys in it, (batch, steps)
  const int64_t layer_stride = steps * batch * cached + 3;
  Floats cache(sizes.layers * layer_stride, NAN), features(batch * sizes.width), found, found_keys;
  std::vector<int64_t> rows(batch * steps, -1), source_rows(batch), lengths(batch), tokens(batch);
  std::vector<Past> pasts(batch, Past(sizes.layers)), of_sources;
  for (int64_t s = 0; s < number; ++s) of_sources.push_back(sources.of(s));
  for (int64_t b = 0; b < batch && number; ++b) source_rows[b] = b / 3, lengths[b] = sources.lengths[b / 3];
  Doubles expected, expected_keys;
  for (int64_t t = 0; t < steps; ++t) {
    for (int64_t& token : tokens) token = dice() % sizes.vocabulary;
    std::fill(features.begin(), features.end(), NAN);
    check_done("step", attent_transformer_step(
                           tokens.data(), table.data(), plain.positions_from(t), plain.angles_from(plain.cosine, t),
                           plain.angles_from(plain.sine, t), weights.data(), cache.data(), rows.data(), source_rows.data(), lengths.data(),
                           sources.numbers.data(), features.data(), batch, t, steps, layer_stride, cached, batch * cached, number, longest,
                           sizes.width, sizes.heads, sizes.groups, sizes.head, sizes.hidden, sizes.layers, sizes.pre, sizes.activation,
                           size == 2, Transformer::FACTOR, Transformer::SCALE, Norm::EPSILON, threads, nullptr, level));
    found.insert(found.end(), features.begin(), features.end());
    for (int64_t b = 0; b < batch; ++b) {
      const Doubles row = plain.step(tokens[b], number ? of_sources[source_rows[b]] : Past(), &pasts[b]);
      expected.insert(expected.end(), row.begin(), row.end());
      for (int64_t l = 0; l < sizes.layers; ++l) {
        const Doubles& keys = pasts[b][l].back();
        const auto first = cache.begin() + l * layer_stride + (t * batch + b) * cached;
        expected_keys.insert(expected_keys.end(), keys.begin(), keys.end());
        found_keys.insert(found_keys.end(), first, first + cached);
      }
    }
    std::vector<int64_t> moved = rows;
    std::vector<Past> moved_pasts;
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t parent = dice() % batch;
      std::copy_n(rows.begin() + parent * steps, steps, moved.begin() + b * steps);
      moved[b * steps + t] = parent;
      moved_pasts.push_back(pasts[parent]);
    }
    rows = moved, pasts = moved_pasts;
  }
  check((std::string(number ? "decoder" : "decoder without sources") + SUFFIXES[size == 2]).c_str(), found, expected, EXACT / 5);
  check("  its keys and values", found_keys, expected_keys, EXACT / 5);
}

}  // namespace

void check_stacks() {
  for (int64_t size : {4, 2})
    for (bool pre : {false, true}) {
      encoder({37, 3, 3, 5, 71, 2, pre, 0, false, false, 29, 23}, 9, size);
      encoder({48, 4, 2, 18, 33, 3, pre, 1, true, false, 67, 19}, 7, size);
      encoder({19, 4, 1, 34, 130, 1, pre, 2, true, false, 11, 97}, 2, size);
      decoder({37, 3, 3, 5, 71, 2, pre, 0, false, true, 29, 11}, 7, 13, size);
      decoder({48, 4, 2, 18, 33, 3, pre, 1, true, true, 67, 21}, 5, 37, size);
      decoder({19, 4, 1, 34, 130, 2, pre, 2, true, false, 11, 7}, 103, 0, size);
    }
}

}  // namespace harness
