// Softmax attention and the scores of tanh, with their gradients.

#include "harness.h"

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
}

namespace harness {

namespace {

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

}  // namespace

void check_attention() {
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
  for (float size : {0.5f, 5.0f, 30.0f}) tanh_score(3, 3, 71, 37, 19, size);
  tanh_score(2, 1, 5, 67, 33, 1);
}

}  // namespace harness
