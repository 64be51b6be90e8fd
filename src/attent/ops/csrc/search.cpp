// Greedy and beam search by a Transformer's decoder: all steps of a batch in one call. attent/search/search.py is the specification.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "decoder.h"

namespace {

// Positions for which keys and values have room at first.
constexpr int64_t FIRST_POSITIONS = 32;
// Multiplications that pay for another thread.
constexpr int64_t THREAD_WORK = int64_t{1} << 23;

// Uninitialized numbers on cache lines of their own. Throws std::bad_alloc.
template <typename T>
struct Array {
  std::unique_ptr<char[]> memory;
  T* data = nullptr;

  Array() = default;
  explicit Array(int64_t count) : memory(new char[sizeof(T) * count + 64]) {
    data = reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) & ~uintptr_t{63});
  }
  T& operator[](int64_t index) { return data[index]; }
};

// The decoder of a batch. Sources are (L, S, longest, 2·G·D), the output's panels those of attent_packed_gemm.
struct Decoder {
  const uint8_t* table;
  const float *positions, *cosine, *sine;
  const uint8_t *weights, *output;
  const float* source;
  int64_t longest, output_kind, width, heads, groups, head, hidden, layers, options, activation, kind;
  float factor, scale, epsilon;

  // Numbers that a layer keeps of a token.
  int64_t cached() const { return options & RECURRENT ? width : 2 * groups * head; }
};

struct Threads {
  int64_t number;
  Parallel parallel;
  int level;

  // Threads for a product of this many multiplications.
  int64_t of(int64_t work) const { return std::min(number, 1 + work / THREAD_WORK); }
};

// Of each sentence: the length of its source, its limit, and the tokens (S, P) that it begins with, padded; the first `prompt` of them
// count no log-probability. penalties[n] divides the log-probability of a hypothesis of n tokens, EOS included.
struct Task {
  const int64_t *lengths, *limits, *prefixes;
  const double* penalties;
  int64_t sentences, vocabulary, beam, n_best, minimum, prefix, prompt, steps, pad, bos, eos;
};

struct Hypothesis {
  double score;
  float total;
  std::vector<int64_t> tokens;
};

inline void check(int failed) {
  if (failed) throw std::bad_alloc();
}

// Keys and values of the rows so far, (L, capacity, R, 2·G·D). They stay where they are written: hypotheses that move take their list of
// places along.
struct Cache {
  const int64_t layers, position;  // numbers of a position
  int64_t capacity = 0;
  Array<float> numbers;

  Cache(int64_t layers, int64_t position) : layers(layers), position(position) {}
  int64_t layer() const { return capacity * position; }

  void reserve(int64_t count, int64_t maximum) {
    if (count < capacity) return;
    const int64_t larger = std::min(maximum, capacity ? 2 * capacity : FIRST_POSITIONS);
    Array<float> copy(layers * larger * position);
    for (int64_t l = 0; l < layers && count; ++l)
      std::memcpy(copy.data + l * larger * position, numbers.data + l * layer(), sizeof(float) * count * position);
    numbers = std::move(copy);
    capacity = larger;
  }
};

// What a decoder keeps of the rows: keys and values, and its last features.
struct Past {
  Cache cache;
  Array<float> features;

  Past(const Decoder& decoder, int64_t rows) : cache(decoder.layers, rows * decoder.cached()), features(rows * decoder.width) {}
};

// A sentence has `rows` rows: one before the first token, then as many as the beam has hypotheses. The distributions of several decoders
// are averaged.
struct Search {
  const std::vector<Decoder>& decoders;
  const Task& task;
  const Threads& threads;
  const int64_t maximum;  // rows
  const int64_t count;    // continuations of a sentence
  int64_t rows = 1, written = 0, smallest_limit;
  std::vector<int64_t> sentence, active;
  std::vector<float> scores, totals;
  std::vector<int64_t> indices, next, parents;
  std::vector<Past> pasts;
  Array<int64_t> places, moved, tokens, sources, lengths;  // places (R, steps) of keys in the cache, tokens (steps, R) that were read
  Array<float> logits;
  std::vector<std::vector<Hypothesis>> finished;

  Search(const std::vector<Decoder>& decoders, const Task& task, const Threads& threads)
      : decoders(decoders), task(task), threads(threads), maximum(task.sentences * task.beam),
        count(task.beam == 1 ? 1 : std::min(2 * task.beam, task.beam * task.vocabulary)), sentence(task.sentences),
        scores(task.sentences), totals(task.sentences * count), indices(totals.size()), next(maximum), parents(maximum),
        places(maximum * task.steps), moved(maximum * task.steps), tokens(task.steps * maximum), sources(maximum), lengths(maximum),
        logits(decoders.size() * maximum * task.vocabulary), finished(task.sentences) {
    for (const Decoder& decoder : decoders) pasts.emplace_back(decoder, maximum);
    smallest_limit = *std::min_element(task.limits, task.limits + task.sentences);
    for (int64_t s = 0; s < task.sentences; ++s) sentence[s] = s, sources[s] = s, lengths[s] = task.lengths[s], tokens[s] = task.bos;
  }

  int64_t number() const { return static_cast<int64_t>(sentence.size()) * rows; }

  // Logits after the tokens that were written last; of several decoders, the logarithm of the mean of their softmax.
  void step() {
    const int64_t batch = number(), decoded = decoders.size();
    for (int64_t i = 0; i < decoded; ++i) {
      const Decoder& d = decoders[i];
      Past& past = pasts[i];
      past.cache.reserve(written, task.steps);
      const int64_t work = batch * d.layers * d.width * (2 * d.hidden + 4 * d.heads * d.head + d.cached());
      check(attent_transformer_step(
          tokens.data + written * maximum, d.table, d.positions ? d.positions + written * d.width : nullptr,
          d.cosine ? d.cosine + written * (d.head / 2) : nullptr, d.sine ? d.sine + written * (d.head / 2) : nullptr, d.weights,
          past.cache.numbers.data, places.data, sources.data, lengths.data, d.source, past.features.data, batch, written, task.steps,
          past.cache.layer(), d.cached(), past.cache.position, task.sentences, d.longest, d.width, d.heads, d.groups, d.head, d.hidden,
          d.layers, d.options, d.activation, d.kind, d.factor, d.scale, d.epsilon, threads.of(work), threads.parallel, threads.level));
      check(attent_packed_gemm(past.features.data, d.output, logits.data + i * batch * task.vocabulary, batch, d.width, task.vocabulary,
                               d.output_kind, threads.of(batch * d.width * task.vocabulary), threads.parallel, threads.level));
    }
    if (decoded > 1)
      check(attent_log_mean_softmax(logits.data, decoded, batch, task.vocabulary, threads.of(decoded * batch * task.vocabulary * 8),
                                    threads.parallel, threads.level));
  }

  // Set what a row's sentence may not continue with to −∞.
  void constrain(int64_t s, float* log_probs) const {
    const float low = -HUGE_VALF;
    const int64_t prefix_token = written < task.prefix ? task.prefixes[s * task.prefix + written] : task.pad;
    const int64_t forced = prefix_token == task.pad && task.limits[s] <= written ? task.eos : prefix_token;
    if (forced != task.pad) {
      const float kept = written < task.prompt && prefix_token != task.pad ? 0.0f : log_probs[forced];
      std::fill_n(log_probs, task.vocabulary, low);
      log_probs[forced] = kept;
      return;
    }
    log_probs[task.pad] = log_probs[task.bos] = low;
    if (written < task.minimum) log_probs[task.eos] = low;
  }

  // The best continuations of each sentence.
  void rank() {
    const bool is_constrained = written < task.minimum || written < task.prefix || written >= smallest_limit;
    const int64_t used = threads.of(number() * task.vocabulary * 8);
    if (is_constrained) {
      check(attent_log_softmax(logits.data, number(), task.vocabulary, used, threads.parallel, threads.level));
      for (int64_t r = 0; r < number(); ++r) constrain(sentence[r / rows], logits.data + r * task.vocabulary);
    }
    check(attent_beam_topk(scores.data(), logits.data, totals.data(), indices.data(), sentence.size(), rows, task.vocabulary, count,
                           !is_constrained, task.pad, task.bos, task.eos, used, threads.parallel, threads.level));
  }

  // Keep the hypotheses that ended if they are among their sentence's best.
  void finish() {
    for (int64_t i = 0; i < static_cast<int64_t>(sentence.size()); ++i)
      for (int64_t c = i * count, end = c + std::min(task.beam, count); c < end; ++c) {
        if (indices[c] % task.vocabulary != task.eos || totals[c] == -HUGE_VALF) continue;
        std::vector<Hypothesis>& best = finished[sentence[i]];
        const double score = totals[c] / task.penalties[written + 1];
        if (static_cast<int64_t>(best.size()) == task.n_best && !(score > best.back().score)) continue;
        auto place = best.end();
        while (place != best.begin() && score > std::prev(place)->score) --place;
        best.insert(place, {score, totals[c], prefix(i * rows + indices[c] / task.vocabulary)});
        if (static_cast<int64_t>(best.size()) > task.n_best) best.pop_back();
      }
  }

  // The tokens that a row has written.
  std::vector<int64_t> prefix(int64_t row) {
    std::vector<int64_t> result(written);
    for (int64_t j = 1; j <= written; ++j) result[j - 1] = tokens[j * maximum + (j < written ? places[row * task.steps + j] : row)];
    return result;
  }

  // Whether no hypothesis that goes on, the best of which has this log-probability, can become one of a sentence's best.
  bool is_finished(int64_t s, double running) const {
    const std::vector<Hypothesis>& best = finished[s];
    if (running == -HUGE_VAL) return true;
    if (static_cast<int64_t>(best.size()) < task.n_best) return false;
    return task.beam == 1 || best.back().score >= running / task.penalties[task.limits[s] + 1];
  }

  // The hypotheses that go on, those of finished sentences left out. Returns whether there are any.
  bool proceed() {
    const int64_t vocabulary = task.vocabulary, beam = task.beam, sentences = sentence.size();
    int64_t kept = 0;
    scores.resize(sentences * beam);
    for (int64_t i = 0; i < sentences; ++i) {
      int64_t filled = 0;
      for (const bool is_eos : {false, true})
        for (int64_t c = i * count; c < (i + 1) * count && filled < beam; ++c) {
          const int64_t token = indices[c] % vocabulary;
          if ((token == task.eos) != is_eos) continue;
          const int64_t row = kept * beam + filled++;
          next[row] = token, parents[row] = i * rows + indices[c] / vocabulary, scores[row] = is_eos ? -HUGE_VALF : totals[c];
        }
      // A sentence whose hypotheses all ended is finished; so is one without any.
      if (is_finished(sentence[i], scores[kept * beam])) continue;
      sentence[kept++] = sentence[i];
    }
    sentence.resize(kept), scores.resize(kept * beam);
    return kept;
  }

  // Give every row that goes on its parent's past.
  void move(int64_t before) {
    const int64_t after = sentence.size() * task.beam;
    bool is_same = after == before;
    for (int64_t r = 0; r < after && is_same; ++r) is_same = parents[r] == r;
    if (!is_same) {
      for (int64_t r = 0; r < after; ++r)
        std::memcpy(moved.data + r * task.steps, places.data + parents[r] * task.steps, sizeof(int64_t) * written);
      std::swap(places, moved);
    }
    for (int64_t r = 0; r < after; ++r) {
      places[r * task.steps + written] = parents[r];
      tokens[(written + 1) * maximum + r] = next[r];
      sources[r] = sentence[r / task.beam], lengths[r] = task.lengths[sources[r]];
    }
    rows = task.beam;
  }

  void run() {
    for (;; ++written) {
      const int64_t before = number();
      step();
      rank();
      finish();
      if (!proceed()) return;
      move(before);
    }
  }
};

}  // namespace

// Translate each sentence by the mean of M decoders' distributions. addresses (M, 7), sizes (M, 11) and numbers (M, 3) are the members of
// Decoder, in their order. tokens (S, n_best, steps), lengths (S, n_best) and totals (S, n_best) are those of the hypotheses, the best
// first; where there is none the length is −1. Positions and angles have `steps` rows, one more than the largest limit. Returns 0, or 1
// if out of memory.
EXPORTED int attent_transformer_search(const int64_t* addresses, const int64_t* sizes, const float* numbers, const int64_t* lengths,
                                       const int64_t* limits, const int64_t* prefixes, const double* penalties, int64_t* to_tokens,
                                       int64_t* to_lengths, float* to_totals, int64_t decoded, int64_t sentences, int64_t vocabulary,
                                       int64_t beam, int64_t n_best, int64_t minimum, int64_t prefix, int64_t prompt, int64_t steps,
                                       int64_t pad, int64_t bos, int64_t eos, int64_t count, Parallel parallel, int level) try {
  std::vector<Decoder> decoders;
  for (int64_t i = 0; i < decoded; ++i) {
    const int64_t *a = addresses + 7 * i, *n = sizes + 11 * i;
    const auto bytes = [&](int64_t j) { return reinterpret_cast<const uint8_t*>(a[j]); };
    const auto floats = [&](int64_t j) { return reinterpret_cast<const float*>(a[j]); };
    const float* f = numbers + 3 * i;
    decoders.push_back({bytes(0), floats(1), floats(2), floats(3), bytes(4), bytes(5), floats(6), n[0], n[1], n[2], n[3], n[4], n[5], n[6],
                        n[7], n[8], n[9], n[10], f[0], f[1], f[2]});
  }
  const Task task{lengths, limits, prefixes, penalties, sentences, vocabulary, beam, n_best, minimum, prefix, prompt, steps, pad, bos, eos};
  const Threads threads{count, parallel, level};
  Search search(decoders, task, threads);
  search.run();
  for (int64_t s = 0; s < sentences; ++s)
    for (int64_t n = 0; n < n_best; ++n) {
      const int64_t i = s * n_best + n;
      to_lengths[i] = -1;
      if (n >= static_cast<int64_t>(search.finished[s].size())) continue;
      const Hypothesis& hypothesis = search.finished[s][n];
      to_lengths[i] = hypothesis.tokens.size(), to_totals[i] = hypothesis.total;
      std::copy(hypothesis.tokens.begin(), hypothesis.tokens.end(), to_tokens + i * steps);
    }
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
}
