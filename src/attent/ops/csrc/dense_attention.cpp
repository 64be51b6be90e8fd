// Softmax of dot products in sequences that are short, and its gradients, on a CPU: of a sequence's keys and values and of a few of its
// queries, floats are made where they stay in the cache, and nothing else is kept. Queries lie side by side in registers, so that a row
// of weights is summed key by key, in the order of the keys: neither padding behind them nor what is computed beside it changes a bit.
// What dropout keeps is the hash that ../dropout.py describes.

#include "native.h"
#include "hash.h"

#include <cmath>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

constexpr uint32_t OF_SEQUENCE = 0x9E3779B1u, OF_HEAD = 0x85EBCA77u, OF_ROW = 0xC2B2AE3Du, OF_COLUMN = 0x5BD1E995u;
// What lines of all register widths are a multiple of.
constexpr int64_t MOST_LANES = 16;
// Products that one thread has done before another has begun.
constexpr int64_t FEW = 1 << 16;

// How far apart sequences, heads and rows are, in numbers.
struct Steps {
  int64_t sequence, head, row;

  int64_t to(int64_t b, int64_t h, int64_t i) const { return b * sequence + h * head + i * row; }
};

// As the caller lays it out, all of it 64-bit integers. A side is half where it is bfloat16; the context is as wide as the values, and its
// gradient of its type.
struct Shape {
  int64_t batch, heads, groups, queries, keys, width, value_width;
  int64_t query_half, key_half, value_half, context_half;
  Steps query, key, value, gradient, first, behind;
  // of the term its keys are rows; queries lie beside each other, or are all alike
  Steps term;
  int64_t term_along;
};

struct Short {
  const void *query, *key, *value;
  // Of each row the first key it sees and the one behind the last, or none: all are seen. What is added to the scores, or none.
  const int64_t *first, *behind;
  const float* term;
  void* context;
  const void* gradient;
  void *dquery, *dkey, *dvalue;
  Shape shape;
  uint32_t start, threshold;
  float factor, scale;
};

inline int64_t line_of(int64_t width) { return (width + MOST_LANES - 1) / MOST_LANES * MOST_LANES; }

// The keys that any query of some heads sees lie from `first` to before `behind`; `seen` says which of these, if not all.
struct Reach {
  int64_t first, behind;
  const int32_t* seen;
};

// Counts for each key the queries of a group of heads that see it.
Reach reach_of(const Short& job, int64_t b, int64_t group, int32_t* seen) {
  const Shape& shape = job.shape;
  if (!job.first && !job.term) return {0, shape.keys, nullptr};
  const int64_t share = shape.heads / shape.groups;
  std::memset(seen, 0, 4 * (shape.keys + 1));
  for (int64_t h = group * share; h < (group + 1) * share; ++h) {
    if (job.first) {
      for (int64_t i = 0; i < shape.queries; ++i) {
        int64_t first = job.first[shape.first.to(b, h, i)], behind = job.behind[shape.behind.to(b, h, i)];
        first = first > 0 ? first : 0, behind = behind < shape.keys ? behind : shape.keys;
        if (first < behind) ++seen[first], --seen[behind];
      }
      continue;
    }
    for (int64_t j = 0; j < shape.keys; ++j) {
      const float* row = job.term + shape.term.to(b, h, j);
      int32_t some = 0;
      for (int64_t i = 0; i < (shape.term_along ? shape.queries : 1); ++i) some += row[i] != -INFINITY;
      seen[j] += some;
    }
  }
  for (int64_t j = 1; job.first && j < shape.keys; ++j) seen[j] += seen[j - 1];
  int64_t first = 0, behind = shape.keys;
  while (behind && !seen[behind - 1]) --behind;
  while (first < behind && !seen[first]) ++first;
  return {first, behind, seen};
}

#define LOOPS "dense_attention-inl.h"
#include "foreach_target.h"

template <typename Task>
int spread(const Short& job, Task task, int64_t scratch, int64_t threads, Parallel parallel) {
  const Shape& shape = job.shape;
  const int64_t products = shape.batch * shape.heads * shape.queries * shape.keys * shape.width;
  return run(job, task, shape.batch * shape.groups, scratch, products < FEW ? 1 : threads, parallel);
}

}  // namespace

// context (B, Tq, H, Dv), contiguous. Returns 0, or 1 where memory ran out.
EXPORTED int attent_dense_attention(const void* query, const void* key, const void* value, const int64_t* first,
                                    const int64_t* behind, const float* term, void* context, const int64_t* shape, uint32_t seed,
                                    uint32_t threshold, float factor, float scale, int64_t threads, Parallel parallel, int level) {
  Short job{query, key, value, first, behind, term, context, nullptr, nullptr, nullptr, nullptr, {}, mixed(seed), threshold, factor, scale};
  std::memcpy(&job.shape, shape, sizeof job.shape);
  const int64_t line = line_of(job.shape.width), value_line = line_of(job.shape.value_width), keys = job.shape.keys;
  const auto task = CHOSEN(attend, level);
  // a strip holds at most two registers of queries
  return spread(job, task, keys * (line + value_line) + 2 * MOST_LANES * (2 * line + value_line + keys) + keys + 1, threads, parallel);
}

// dquery (B, Tq, H, D), dkey (B, Tk, G, D) and dvalue (B, Tk, G, Dv), contiguous, of the types of what they are gradients of. Returns 0,
// or 1 where memory ran out.
EXPORTED int attent_dense_attention_gradients(const void* query, const void* key, const void* value, const int64_t* first,
                                              const int64_t* behind, const float* term, const void* gradient, void* dquery,
                                              void* dkey, void* dvalue, const int64_t* shape, uint32_t seed, uint32_t threshold,
                                              float factor, float scale, int64_t threads, Parallel parallel, int level) {
  Short job{query, key, value, first, behind, term, nullptr, gradient, dquery, dkey, dvalue, {}, mixed(seed), threshold, factor, scale};
  std::memcpy(&job.shape, shape, sizeof job.shape);
  const int64_t line = line_of(job.shape.width), value_line = line_of(job.shape.value_width), keys = job.shape.keys;
  const auto task = CHOSEN(gradients, level);
  const int64_t scratch = 2 * keys * (line + value_line) + 2 * MOST_LANES * (3 * line + 2 * value_line + 3 * keys) + keys + 1;
  return spread(job, task, scratch, threads, parallel);
}
