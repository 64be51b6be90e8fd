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
  const uint8_t *table, *weights, *output;
  const float *positions, *cosine, *sine, *source;
  int64_t longest, vocabulary, output_kind, width, heads, groups, head, hidden, layers, options, activation, kind;
  float factor, scale, epsilon;
  int64_t threads;
  Parallel parallel;
  int level;

  // Numbers that a layer keeps of a token.
  int64_t cached() const { return options & RECURRENT ? width : 2 * groups * head; }
  // Threads for a product of this many multiplications.
  int64_t threads_for(int64_t work) const { return std::min(threads, 1 + work / THREAD_WORK); }
};

// Of each sentence: the length of its source, its limit, and the tokens (S, P) that it begins with, padded; the first `prompt` of them
// count no log-probability. penalties[n] divides the log-probability of a hypothesis of n tokens, EOS included.
struct Task {
  const int64_t *lengths, *limits, *prefixes;
  const double* penalties;
  int64_t sentences, beam, n_best, minimum, prefix, prompt, steps, pad, bos, eos;
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

// A sentence has `rows` rows: one before the first token, then as many as the beam has hypotheses.
struct Search {
  const Decoder& decoder;
  const Task& task;
  const int64_t maximum;  // rows
  const int64_t count;    // continuations of a sentence
  int64_t rows = 1, written = 0, smallest_limit;
  std::vector<int64_t> sentence, active;
  std::vector<float> scores, totals;
  std::vector<int64_t> indices, next, parents;
  Cache cache;
  Array<int64_t> places, moved, tokens, sources, lengths;  // places (R, steps) of keys in the cache, tokens (steps, R) that were read
  Array<float> features, logits;
  std::vector<std::vector<Hypothesis>> finished;

  Search(const Decoder& decoder, const Task& task)
      : decoder(decoder), task(task), maximum(task.sentences * task.beam),
        count(task.beam == 1 ? 1 : std::min(2 * task.beam, task.beam * decoder.vocabulary)), sentence(task.sentences),
        scores(task.sentences), totals(task.sentences * count), indices(totals.size()), next(maximum), parents(maximum),
        cache(decoder.layers, maximum * decoder.cached()), places(maximum * task.steps), moved(maximum * task.steps),
        tokens(task.steps * maximum), sources(maximum), lengths(maximum), features(maximum * decoder.width),
        logits(maximum * decoder.vocabulary), finished(task.sentences) {
    smallest_limit = *std::min_element(task.limits, task.limits + task.sentences);
    for (int64_t s = 0; s < task.sentences; ++s) sentence[s] = s, sources[s] = s, lengths[s] = task.lengths[s], tokens[s] = task.bos;
  }

  int64_t number() const { return static_cast<int64_t>(sentence.size()) * rows; }

  // Logits after the tokens that were written last.
  void step() {
    const Decoder& d = decoder;
    const int64_t batch = number();
    cache.reserve(written, task.steps);
    const int64_t work = batch * d.layers * d.width * (2 * d.hidden + 4 * d.heads * d.head + d.cached());
    check(attent_transformer_step(
        tokens.data + written * maximum, d.table, d.positions ? d.positions + written * d.width : nullptr,
        d.cosine ? d.cosine + written * (d.head / 2) : nullptr, d.sine ? d.sine + written * (d.head / 2) : nullptr, d.weights,
        cache.numbers.data, places.data, sources.data, lengths.data, d.source, features.data, batch, written, task.steps, cache.layer(),
        d.cached(), cache.position, task.sentences, d.longest, d.width, d.heads, d.groups, d.head, d.hidden, d.layers, d.options,
        d.activation, d.kind, d.factor, d.scale, d.epsilon, d.threads_for(work), d.parallel, d.level));
    check(attent_packed_gemm(features.data, d.output, logits.data, batch, d.width, d.vocabulary, d.output_kind,
                             d.threads_for(batch * d.width * d.vocabulary), d.parallel, d.level));
  }

  // Set what a row's sentence may not continue with to −∞.
  void constrain(int64_t s, float* log_probs) const {
    const float low = -HUGE_VALF;
    const int64_t prefix_token = written < task.prefix ? task.prefixes[s * task.prefix + written] : task.pad;
    const int64_t forced = prefix_token == task.pad && task.limits[s] <= written ? task.eos : prefix_token;
    if (forced != task.pad) {
      const float kept = written < task.prompt && prefix_token != task.pad ? 0.0f : log_probs[forced];
      std::fill_n(log_probs, decoder.vocabulary, low);
      log_probs[forced] = kept;
      return;
    }
    log_probs[task.pad] = log_probs[task.bos] = low;
    if (written < task.minimum) log_probs[task.eos] = low;
  }

  // The best continuations of each sentence.
  void rank() {
    const Decoder& d = decoder;
    const bool is_constrained = written < task.minimum || written < task.prefix || written >= smallest_limit;
    const int64_t threads = d.threads_for(number() * d.vocabulary * 8);
    if (is_constrained) {
      check(attent_log_softmax(logits.data, number(), d.vocabulary, threads, d.parallel, d.level));
      for (int64_t r = 0; r < number(); ++r) constrain(sentence[r / rows], logits.data + r * d.vocabulary);
    }
    check(attent_beam_topk(scores.data(), logits.data, totals.data(), indices.data(), sentence.size(), rows, d.vocabulary, count,
                           !is_constrained, task.pad, task.bos, task.eos, threads, d.parallel, d.level));
  }

  // Keep the hypotheses that ended if they are among their sentence's best.
  void finish() {
    for (int64_t i = 0; i < static_cast<int64_t>(sentence.size()); ++i)
      for (int64_t c = i * count, end = c + std::min(task.beam, count); c < end; ++c) {
        if (indices[c] % decoder.vocabulary != task.eos || totals[c] == -HUGE_VALF) continue;
        std::vector<Hypothesis>& best = finished[sentence[i]];
        const double score = totals[c] / task.penalties[written + 1];
        if (static_cast<int64_t>(best.size()) == task.n_best && !(score > best.back().score)) continue;
        auto place = best.end();
        while (place != best.begin() && score > std::prev(place)->score) --place;
        best.insert(place, {score, totals[c], prefix(i * rows + indices[c] / decoder.vocabulary)});
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
    const int64_t vocabulary = decoder.vocabulary, beam = task.beam, sentences = sentence.size();
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

// Translate each sentence. tokens (S, n_best, steps), lengths (S, n_best) and totals (S, n_best) are those of the hypotheses, the best
// first; where there is none the length is −1. Positions and angles have `steps` rows, one more than the largest limit. Returns 0, or 1
// if out of memory.
EXPORTED int attent_transformer_search(const uint8_t* table, const float* positions, const float* cosine, const float* sine,
                                       const uint8_t* weights, const uint8_t* output, const float* source, const int64_t* lengths,
                                       const int64_t* limits, const int64_t* prefixes, const double* penalties, int64_t* to_tokens,
                                       int64_t* to_lengths, float* to_totals, int64_t sentences, int64_t longest, int64_t vocabulary,
                                       int64_t output_kind, int64_t beam, int64_t n_best, int64_t minimum, int64_t prefix,
                                       int64_t prompt, int64_t steps, int64_t pad, int64_t bos, int64_t eos, int64_t width, int64_t heads,
                                       int64_t groups, int64_t head, int64_t hidden, int64_t layers, int64_t options, int64_t activation,
                                       int64_t kind, float factor, float scale, float epsilon, int64_t threads, Parallel parallel,
                                       int level) try {
  const Decoder decoder{table, weights, output, positions, cosine, sine, source, longest, vocabulary, output_kind, width, heads,
                        groups, head, hidden, layers, options, activation, kind, factor, scale, epsilon, threads, parallel, level};
  const Task task{lengths, limits, prefixes, penalties, sentences, beam, n_best, minimum, prefix, prompt, steps, pad, bos, eos};
  Search search(decoder, task);
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
