// The best continuations of a beam's hypotheses: three sweeps over each row of logits, or one over log-probabilities.

#include <cmath>
#include <cstring>

#include "decoder.h"

namespace {

// The `count` best of each sentence's `width` rows of `vocabulary` numbers.
struct TopK {
  const float* scores;
  float *log_probs, *totals;
  int64_t* indices;
  int64_t number, width, vocabulary, count, eos;
  const int64_t forbidden[2];
  bool logits;
};

// Rows of logits, to be replaced by their log-softmax.
struct LogSoftmax {
  float* logits;
  int64_t number, vocabulary;
};

// Logits (count, number, vocabulary) of several models.
struct LogMeanSoftmax {
  float* logits;
  int64_t count, number, vocabulary;

  int64_t stride() const { return number * vocabulary; }
};

// Sentences of a task; rows of a task.
constexpr int64_t SENTENCES = 4, ROWS = 16;

#define LOOPS "beam_topk-inl.h"
#include "foreach_target.h"

}  // namespace

// totals and indices (S, C) of scores (S, K) and log_probs (S, K, V): the highest sums, the first of equal ones, padded with −∞ and 0.
// Logits are normalized first, and the two forbidden tokens set to −∞ in place; a row with NaN yields only `eos`.
// Returns 0, or 1 if out of memory.
EXPORTED int attent_beam_topk(const float* scores, float* log_probs, float* totals, int64_t* indices, int64_t number, int64_t width,
                              int64_t vocabulary, int64_t count, int64_t logits, int64_t forbidden0, int64_t forbidden1,
                              int64_t eos, int64_t threads, Parallel parallel, int level) {
  const TopK job{scores, log_probs, totals, indices, number, width, vocabulary, count, eos, {forbidden0, forbidden1}, logits != 0};
  const auto task = DISPATCH(topk, level);
  return run(job, task, (number + SENTENCES - 1) / SENTENCES, 0, threads, parallel);
}

// Replace logits (N, V) by their log-softmax; a row with NaN becomes NaN. Returns 0, or 1 if out of memory.
EXPORTED int attent_log_softmax(float* logits, int64_t number, int64_t vocabulary, int64_t threads, Parallel parallel, int level) {
  const LogSoftmax job{logits, number, vocabulary};
  const auto task = DISPATCH(log_softmax, level);
  return run(job, task, (number + ROWS - 1) / ROWS, 0, threads, parallel);
}

// Replace the first of the logits (M, N, V) of M models by the logarithm of the mean of their softmax. A row with NaN becomes NaN.
// Returns 0, or 1 if out of memory.
EXPORTED int attent_log_mean_softmax(float* logits, int64_t count, int64_t number, int64_t vocabulary, int64_t threads, Parallel parallel,
                                     int level) {
  const LogMeanSoftmax job{logits, count, number, vocabulary};
  const auto task = DISPATCH(log_mean_softmax, level);
  return run(job, task, (number + ROWS - 1) / ROWS, count * (2 + vocabulary), threads, parallel);
}
