// Softmax attention of short sequences, and its gradients: a sequence's keys and values and a strip of its queries are converted to
// float32 buffers that fit the cache. Lanes are queries, so that the weights of a row are summed in the order of the keys: neither
// padding nor the batch changes a bit. The dropout mask is the hash that ../dropout.py describes.

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
// The multiple that lines are padded to.
constexpr int64_t MAX_LANES = 16;
// Products below which starting a second thread costs more than it saves.
constexpr int64_t MIN_PARALLEL = 1 << 16;

// Strides of sequences, heads and rows, in numbers.
struct Steps {
  int64_t sequence, head, row;

  int64_t to(int64_t b, int64_t h, int64_t i) const { return b * sequence + h * head + i * row; }
};

// 64-bit integers, in the order of the caller's array. Half means bfloat16; the context has the values' width, and its gradient the
// context's type.
struct Shape {
  int64_t batch, heads, groups, queries, keys, width, value_width;
  int64_t is_query_half, is_key_half, is_value_half, is_context_half;
  Steps query, key, value, gradient, begin, end;
  // rows of the bias are keys; queries are contiguous, or share one number
  Steps bias;
  int64_t has_query_bias;
};

struct Problem {
  const void *query, *key, *value;
  // The range of keys of each row, or null: all keys. The bias added to the scores, or null.
  const int64_t *begin, *end;
  const float* bias;
  void* context;
  const void* gradient;
  void *dquery, *dkey, *dvalue;
  Shape shape;
  uint32_t seed_hash, threshold;
  float factor, scale;
};

inline int64_t line_of(int64_t width) { return (width + MAX_LANES - 1) / MAX_LANES * MAX_LANES; }

// The range of keys that any query of a group of heads attends to, and for each key the number of these queries; null: all keys count.
struct KeyRange {
  int64_t begin, end;
  const int32_t* counts;
};

// Count for each key the queries of a group of heads that attend to it.
KeyRange key_range_of(const Problem& job, int64_t b, int64_t group, int32_t* counts) {
  const Shape& shape = job.shape;
  if (!job.begin && !job.bias) return {0, shape.keys, nullptr};
  const int64_t heads_per_group = shape.heads / shape.groups;
  std::memset(counts, 0, 4 * (shape.keys + 1));
  for (int64_t h = group * heads_per_group; h < (group + 1) * heads_per_group; ++h) {
    if (job.begin) {
      for (int64_t i = 0; i < shape.queries; ++i) {
        int64_t begin = job.begin[shape.begin.to(b, h, i)], end = job.end[shape.end.to(b, h, i)];
        begin = begin > 0 ? begin : 0, end = end < shape.keys ? end : shape.keys;
        if (begin < end) ++counts[begin], --counts[end];
      }
      continue;
    }
    for (int64_t j = 0; j < shape.keys; ++j) {
      const float* row = job.bias + shape.bias.to(b, h, j);
      int32_t visible = 0;
      for (int64_t i = 0; i < (shape.has_query_bias ? shape.queries : 1); ++i) visible += row[i] != -INFINITY;
      counts[j] += visible;
    }
  }
  for (int64_t j = 1; job.begin && j < shape.keys; ++j) counts[j] += counts[j - 1];
  int64_t begin = 0, end = shape.keys;
  while (end && !counts[end - 1]) --end;
  while (begin < end && !counts[begin]) ++begin;
  return {begin, end, counts};
}

#define LOOPS "dense_attention-inl.h"
#include "foreach_target.h"

template <typename Task>
int run_groups(const Problem& job, Task task, int64_t scratch, int64_t threads, Parallel parallel) {
  const Shape& shape = job.shape;
  const int64_t products = shape.batch * shape.heads * shape.queries * shape.keys * shape.width;
  return run(job, task, shape.batch * shape.groups, scratch, products < MIN_PARALLEL ? 1 : threads, parallel);
}

}  // namespace

// context (B, Tq, H, Dv), contiguous. Returns 0, or 1 if out of memory.
EXPORTED int attent_dense_attention(const void* query, const void* key, const void* value, const int64_t* begin, const int64_t* end,
                                    const float* bias, void* context, const int64_t* shape, uint32_t seed, uint32_t threshold,
                                    float factor, float scale, int64_t threads, Parallel parallel, int level) {
  Problem job{query, key, value, begin, end, bias, context, nullptr, nullptr, nullptr, nullptr, {}, lowbias32(seed), threshold, factor,
              scale};
  std::memcpy(&job.shape, shape, sizeof job.shape);
  const int64_t line = line_of(job.shape.width), value_line = line_of(job.shape.value_width), keys = job.shape.keys;
  const auto task = DISPATCH(attend, level);
  // a strip holds at most two registers of queries
  return run_groups(job, task, keys * (line + value_line) + 2 * MAX_LANES * (2 * line + value_line + keys) + keys + 1, threads, parallel);
}

// dquery (B, Tq, H, D), dkey (B, Tk, G, D) and dvalue (B, Tk, G, Dv), contiguous, of the types of what they are gradients of. Returns 0,
// or 1 where memory ran out.
EXPORTED int attent_dense_attention_gradients(const void* query, const void* key, const void* value, const int64_t* begin,
                                              const int64_t* end, const float* bias, const void* gradient, void* dquery, void* dkey,
                                              void* dvalue, const int64_t* shape, uint32_t seed, uint32_t threshold, float factor,
                                              float scale, int64_t threads, Parallel parallel, int level) {
  Problem job{query, key, value, begin, end, bias, nullptr, gradient, dquery, dkey, dvalue, {}, lowbias32(seed), threshold, factor, scale};
  std::memcpy(&job.shape, shape, sizeof job.shape);
  const int64_t line = line_of(job.shape.width), value_line = line_of(job.shape.value_width), keys = job.shape.keys;
  const auto task = DISPATCH(gradients, level);
  const int64_t scratch = 2 * keys * (line + value_line) + 2 * MAX_LANES * (3 * line + 2 * value_line + 3 * keys) + keys + 1;
  return run_groups(job, task, scratch, threads, parallel);
}
