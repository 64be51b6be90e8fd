// Greedy and beam search by a Transformer's decoder, against the same search over a Transformer in double.

#include "plain_transformer.h"

extern "C" {
int attent_transformer_search(const uint8_t*, const float*, const float*, const float*, const uint8_t*, const uint8_t*, const float*,
                              const int64_t*, const int64_t*, const int64_t*, const double*, int64_t*, int64_t*, float*, int64_t, int64_t,
                              int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                              int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, float, float, float, int64_t, Parallel,
                              int);
}

namespace harness {

namespace {

constexpr int64_t PAD = 0, BOS = 1, EOS = 2;
// Log-probabilities that float32 may put in another order.
constexpr double NEAR_TIE = 1e-4;

// What a search looks for: `prefix` tokens begin each translation, the first `prompt` of them without log-probabilities.
struct Task {
  int64_t sentences, longest, beam, n_best, minimum, prefix, prompt;
  // of the length, in the divisor of log-probabilities
  double exponent;
};

struct Hypothesis {
  std::vector<int64_t> tokens;
  double total, score;
  Past past;
};

// The search of one sentence, all hypotheses of a step sorted.
struct PlainSearch {
  const Transformer& model;
  const Linear& output;
  const Task& task;
  const std::vector<double>& penalties;
  const Past source;
  const int64_t limit;
  const int64_t* const prefix;
  std::vector<Hypothesis> running, best;
  // the smallest difference that decided anything
  double closest = INFINITY;

  Doubles log_probabilities(Hypothesis* hypothesis) const {
    const int64_t token = hypothesis->tokens.empty() ? BOS : hypothesis->tokens.back();
    Doubles result = output(model.step(token, source, &hypothesis->past));
    double sum = 0;
    for (double logit : result) sum += std::exp(logit);
    for (double& logit : result) logit -= std::log(sum);
    constrain(static_cast<int64_t>(hypothesis->tokens.size()), &result);
    return result;
  }

  void constrain(int64_t written, Doubles* log_probs) const {
    const bool is_prefix = written < task.prefix && prefix[written] != PAD;
    if (is_prefix || written >= limit) {
      const int64_t forced = is_prefix ? prefix[written] : EOS;
      const double kept = is_prefix && written < task.prompt ? 0 : (*log_probs)[forced];
      std::fill(log_probs->begin(), log_probs->end(), -INFINITY);
      (*log_probs)[forced] = kept;
      return;
    }
    (*log_probs)[PAD] = (*log_probs)[BOS] = -INFINITY;
    if (written < task.minimum) (*log_probs)[EOS] = -INFINITY;
  }

  // One step; returns whether there is another.
  bool advance(int64_t written) {
    struct Continuation {
      double total;
      size_t parent;
      int64_t token;
    };
    std::vector<Continuation> all;
    for (size_t k = 0; k < running.size(); ++k) {
      const Doubles log_probs = log_probabilities(&running[k]);
      for (size_t token = 0; token < log_probs.size(); ++token)
        if (log_probs[token] != -INFINITY) all.push_back({running[k].total + log_probs[token], k, static_cast<int64_t>(token)});
    }
    std::stable_sort(all.begin(), all.end(), [](const Continuation& a, const Continuation& b) { return a.total > b.total; });
    const size_t count = task.beam > 1 ? 2 * task.beam : 1;
    for (size_t c = 1; c < all.size() && c <= count; ++c) closest = std::min(closest, all[c - 1].total - all[c].total);
    if (all.size() > count) all.resize(count);
    std::vector<Hypothesis> next;
    for (size_t c = 0; c < all.size(); ++c) {
      const Hypothesis& parent = running[all[c].parent];
      if (all[c].token != EOS) {
        if (static_cast<int64_t>(next.size()) == task.beam) continue;
        next.push_back({parent.tokens, all[c].total, 0, parent.past});
        next.back().tokens.push_back(all[c].token);
      } else if (static_cast<int64_t>(c) < task.beam) {
        best.push_back({parent.tokens, all[c].total, all[c].total / penalties[written + 1], {}});
      }
    }
    std::stable_sort(best.begin(), best.end(), [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    for (size_t n = 1; n < best.size(); ++n) closest = std::min(closest, best[n - 1].score - best[n].score);
    if (static_cast<int64_t>(best.size()) > task.n_best) best.erase(best.begin() + task.n_best, best.end());
    running = std::move(next);
    if (running.empty()) return false;
    if (static_cast<int64_t>(best.size()) < task.n_best) return true;
    const double hope = running[0].total / penalties[limit + 1];
    if (task.beam > 1) closest = std::min(closest, std::fabs(best.back().score - hope));
    return task.beam > 1 && best.back().score < hope;
  }

  void run() {
    running.push_back({{}, 0, 0, Past(model.sizes.layers)});
    for (int64_t written = 0; advance(written); ++written) {}
  }
};

// In weights of `size` bytes. The end token's bias makes translations of several lengths.
void search(const Sizes& sizes, const Task& task, int64_t size, float end_bias) {
  const Transformer plain(sizes);
  Linear output(sizes.width, sizes.vocabulary);
  output.bias[EOS] += end_bias;
  const Sources sources(sizes, task.sentences, task.longest);
  const int64_t steps = sizes.positions, count = task.sentences * task.n_best;
  std::vector<int64_t> limits(task.sentences), prefixes(task.sentences * task.prefix);
  for (int64_t s = 0; s < task.sentences; ++s)
    limits[s] = s == 1 ? steps - 1 : s == 3 ? 0 : task.minimum + task.prefix + 1 + 3 * s % (steps - 7);
  // prefixes of several lengths
  for (size_t i = 0; i < prefixes.size(); ++i) prefixes[i] = static_cast<int64_t>(i % 4 == 3 ? PAD : 3 + dice() % (sizes.vocabulary - 3));
  for (size_t i = 1; i < prefixes.size(); ++i)
    if (i % task.prefix && prefixes[i - 1] == PAD) prefixes[i] = PAD;
  std::vector<double> penalties(steps + 1);
  for (int64_t n = 0; n <= steps; ++n) penalties[n] = std::pow((5 + n) / 6.0, task.exponent);
  const std::vector<uint8_t> weights = plain.pack(size), table = plain.pack_table(size);
  std::vector<uint8_t> output_weights;
  append_panels(output.weight, output.bias, size, &output_weights);
  std::vector<int64_t> tokens(count * steps, -1), lengths(count, -2);
  Floats totals(count, NAN);
  check_done("search", attent_transformer_search(
                           table.data(), plain.positions_from(0), plain.angles_from(plain.cosine, 0), plain.angles_from(plain.sine, 0),
                           weights.data(), output_weights.data(), sources.numbers.data(), sources.lengths.data(), limits.data(),
                           prefixes.data(), penalties.data(), tokens.data(), lengths.data(), totals.data(), task.sentences, task.longest,
                           sizes.vocabulary, size == 2, task.beam, task.n_best, task.minimum, task.prefix, task.prompt, steps, PAD, BOS,
                           EOS, sizes.width, sizes.heads, sizes.groups, sizes.head, sizes.hidden, sizes.layers, sizes.pre,
                           sizes.activation, size == 2, Transformer::FACTOR, Transformer::SCALE, Norm::EPSILON, threads, nullptr, level));
  Floats found, found_totals;
  Doubles expected, expected_totals;
  int64_t left_out = 0;
  for (int64_t s = 0; s < task.sentences; ++s) {
    PlainSearch search{plain, output, task, penalties, sources.of(s), limits[s], prefixes.data() + s * task.prefix, {}, {}};
    search.run();
    if (search.closest < NEAR_TIE) {
      ++left_out;
      continue;
    }
    for (int64_t n = 0; n < task.n_best; ++n) {
      const int64_t i = s * task.n_best + n, length = std::max<int64_t>(lengths[i], 0);
      found.push_back(static_cast<float>(lengths[i]));
      found.insert(found.end(), &tokens[i * steps], &tokens[i * steps] + length);
      if (n >= static_cast<int64_t>(search.best.size())) {
        expected.push_back(-1);
        continue;
      }
      const Hypothesis& hypothesis = search.best[n];
      expected.push_back(static_cast<double>(hypothesis.tokens.size()));
      expected.insert(expected.end(), hypothesis.tokens.begin(), hypothesis.tokens.end());
      found_totals.push_back(totals[i]), expected_totals.push_back(hypothesis.total);
    }
  }
  check((std::string(task.beam > 1 ? "beam search's tokens" : "greedy search's tokens") + SUFFIXES[size == 2]).c_str(), found, expected, 0);
  check_done("search meets near ties, choose other numbers", 3 * left_out > task.sentences);
  check("  their log-probabilities", found_totals, expected_totals, EXACT);
}

}  // namespace

void check_search() {
  for (int64_t size : {4, 2})
    for (bool pre : {false, true}) {
      const Sizes small{20, 2, 2, 7, 29, 2, pre, 0, false, true, 13, 17}, large{33, 4, 2, 10, 45, 2, pre, 2, true, true, 83, 41};
      search(small, {5, 9, 1, 1, 0, 0, 0, 0}, size, 1);
      search(large, {6, 5, 1, 1, 2, 3, 1, 0}, size, 2);
      search(small, {4, 9, 4, 1, 0, 0, 0, 0.6}, size, 1);
      search(large, {7, 11, 3, 3, 2, 3, 2, 2.5}, size, 2);
      search(small, {1, 3, 9, 9, 0, 2, 0, 0.6}, size, 1);
    }
}

}  // namespace harness
