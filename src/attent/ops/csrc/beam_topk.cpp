// The likeliest continuations of some hypotheses, found in three sweeps over each row of logits, or in one over log-probabilities.

#include <cmath>
#include <cstring>

#include "native.h"

namespace {

// Of each sentence `width` rows of `size` numbers; `count` of them are wanted.
struct Ranking {
  const float* so_far;
  float *told, *scores;
  int64_t* places;
  int64_t number, width, size, count, stop;
  const int64_t barred[2];
  bool logits;
};

// Sentences that make a task.
constexpr int64_t SENTENCES = 4;

#define LOOPS "beam_topk-inl.h"
#include "foreach_target.h"

}  // namespace

// scores and places (S, C) of so_far (S, K) and told (S, K, V): the highest sums, of equals the first, −∞ and 0 behind the last. Logits are
// normalised first, and the two barred tokens are then set to −∞ in place; where they hold NaN the one place is `stop`. Returns 0, or 1
// where memory ran out.
EXPORTED int attent_beam_topk(const float* so_far, float* told, float* scores, int64_t* places, int64_t number, int64_t width,
                              int64_t size, int64_t count, int64_t logits, int64_t one, int64_t other, int64_t stop,
                              int64_t threads, Parallel parallel, int level) {
  const Ranking job{so_far, told, scores, places, number, width, size, count, stop, {one, other}, logits != 0};
  const auto task = CHOSEN(rank, level);
  return run(job, task, (number + SENTENCES - 1) / SENTENCES, 0, threads, parallel);
}
