// Softmax attention and its gradients, by tiles of keys and strips of queries that are converted to float32 and fit the cache, or to pairs
// of bfloat16 where all inputs are that and the processor has dot products of them: then weights and their gradients are rounded for the
// products after softmax, and scores and sums stay float32. Lanes are queries, so that the weights of a row are summed in the order of the
// keys, and tiles begin at multiples of their length: neither padding, the batch nor the number of threads changes a bit. The dropout mask
// is the hash that ../dropout.py describes.

#include "native.h"
#include "processor.h"
#include "hash.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace {

constexpr uint32_t OF_SEQUENCE = 0x9E3779B1u, OF_HEAD = 0x85EBCA77u, OF_ROW = 0xC2B2AE3Du, OF_COLUMN = 0x5BD1E995u;
// The multiple that lines are padded to.
constexpr int64_t MAX_LANES = 16;
// Products below which starting a second thread costs more than it saves.
constexpr int64_t MIN_PARALLEL = 1 << 16;
// Keys of a tile, and of a block of it, whose scores lie in the nearest cache and whose weights are summed in one go.
constexpr int64_t TILE = 256, BLOCK = 128;
// The most strips that share a tile while it lies in the cache.
constexpr int64_t MAX_PART = 16;

// Scores beyond which a row's gradients cannot bear the rounding of its context.
constexpr float LARGE_SCORE = 64.0f;

// Strides of sequences, heads and rows, in numbers.
struct Steps {
  int64_t sequence, head, row;

  int64_t to(int64_t b, int64_t h, int64_t i) const { return b * sequence + h * head + i * row; }
};

// Types of numbers; the remaining one, 2, is float16.
constexpr int64_t FLOAT32 = 0, BFLOAT16 = 1;

// 64-bit integers, in the order of the caller's array. The context has the values' width, and its gradient the context's type.
struct Shape {
  int64_t batch, heads, groups, queries, keys, width, value_width;
  int64_t query_type, key_type, value_type, context_type;
  Steps query, key, value, gradient, begin, end;
  // 0 where sequences, heads, queries or keys share a number of the bias
  Steps bias;
  int64_t bias_key;
  // of the bias's gradient, whose keys are contiguous
  Steps dbias;
  // of the heads of the bias by offset, and whether that hides pairs
  int64_t offset_head, offsets_hide;
};

struct Problem {
  const void *query, *key, *value;
  // The range of keys of each row, or null: all keys.
  const int64_t *begin, *end;
  // The biases added to the scores, or null: of pairs, and of offsets, query less key + keys − 1. −∞ hides a pair.
  const float *bias, *offset_bias;
  void* context;
  // The maximum of each row's scores and the inverse of its sum, (2, B, H, Tq); null: nobody asks for them.
  float* statistics;
  const void* gradient;
  void *dquery, *dkey, *dvalue;
  // null: nobody asks for them; that of the bias by offset is zero at first
  float *dbias, *doffset_bias;
  Shape shape;
  uint32_t seed_hash, threshold;
  // scores are capped by soft_cap · tanh(score / soft_cap) unless it is 0
  float factor, scale, soft_cap;
  // strips of a task
  int64_t part = 1;
  // Where the gradients of queries are summed, laid out as dquery, and how many tiles each strip has behind it.
  float* dquery_sums = nullptr;
  std::atomic<int32_t>* turns = nullptr;
  // Σ_j w_ij · dw_ij of rows of several tiles, (B, H, Tq), and the range of keys of each strip where it takes long to find.
  float* row_sums = nullptr;
  int64_t* strip_ranges = nullptr;
  // How many tasks added to each part of the biases' gradients.
  std::atomic<int32_t>*bias_turns = nullptr, *offset_turns = nullptr;

  bool has_hidden_pairs() const { return bias || shape.offsets_hide; }
  bool has_term_gradients() const { return dbias || doffset_bias || soft_cap != 0.0f; }
};

inline int64_t line_of(int64_t width) { return (width + MAX_LANES - 1) / MAX_LANES * MAX_LANES; }

// The number of strips of a head, of so many queries each.
inline int64_t strips_of(const Shape& shape, int64_t strip) { return (shape.queries + strip - 1) / strip; }

inline int64_t tiles_of(const Shape& shape) { return (shape.keys + TILE - 1) / TILE; }

#define LOOPS "dense_attention-inl.h"
#include "foreach_target.h"

#if defined(__x86_64__)
FOR_AVX512_BF16
namespace avx512_bf16 {
#define LANES 16
#define PAIRS
#include LOOPS
#undef PAIRS
#undef LANES
}  // namespace avx512_bf16
END_TARGET
#endif

// The number of queries of a strip at a SIMD level.
inline int64_t strip_at(int level) { return int64_t{8} << level; }

#if defined(__x86_64__)
// Return whether the processor and all inputs have dot products of bfloat16.
inline bool has_pairs(int level, const Shape& shape) {
  return level == 2 && registers().avx512_bf16 && shape.query_type == BFLOAT16 && shape.key_type == BFLOAT16 && shape.value_type == BFLOAT16;
}

#define DISPATCH_PAIRS(task, level, shape) (has_pairs(level, shape) ? avx512_bf16::task : DISPATCH(task, level))
#else
#define DISPATCH_PAIRS(task, level, shape) DISPATCH(task, level)
#endif

// Have large pages where so many numbers will be written first: a fault of each small one takes longer than what is written.
inline void take_large_pages([[maybe_unused]] float* to, [[maybe_unused]] int64_t numbers) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t PAGE = 1 << 21;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(to) + PAGE - 1) / PAGE * PAGE, last = reinterpret_cast<uintptr_t>(to + numbers) / PAGE * PAGE;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

inline int64_t threads_for(const Shape& shape, int64_t threads) {
  return shape.batch * shape.heads * shape.queries * shape.keys * shape.width < MIN_PARALLEL ? 1 : threads;
}

}  // namespace

// context (B, Tq, H, Dv), contiguous; statistics (2, B, H, Tq) or null. Returns 0, or 1 if out of memory.
EXPORTED int attent_dense_attention_context(const void* query, const void* key, const void* value, const int64_t* begin,
                                            const int64_t* end, const float* bias, const float* offset_bias, void* context,
                                            float* statistics, const int64_t* shape, uint32_t seed, uint32_t threshold, float factor,
                                            float scale, float soft_cap, int64_t threads, Parallel parallel, int level) {
  Problem job{query, key, value, begin, end, bias, offset_bias, context, statistics, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
              {}, lowbias32(seed), threshold, factor, scale, soft_cap};
  std::memcpy(&job.shape, shape, sizeof job.shape);
  threads = threads_for(job.shape, threads);
  const int64_t strip = strip_at(level), line = line_of(job.shape.width), value_line = line_of(job.shape.value_width);
  const int64_t groups = job.shape.batch * job.shape.groups, strips = strips_of(job.shape, strip) * (job.shape.heads / job.shape.groups);
  // long parts read fewer tiles, short ones leave no thread idle
  const int64_t share = strips * groups / (2 * threads);
  job.part = threads == 1 || share > MAX_PART ? MAX_PART : share > 1 ? share : 1;
  const int64_t scratch = TILE * (line + value_line + strip + 1) + MAX_LANES + strip * (line + job.part * (line + value_line));
  return run(job, DISPATCH_PAIRS(attend, level, job.shape), groups * ((strips + job.part - 1) / job.part), scratch, threads, parallel);
}

// dquery (B, Tq, H, D), dkey (B, Tk, G, D) and dvalue (B, Tk, G, Dv), contiguous, of the types of what they are gradients of; dbias and
// doffset_bias, each or null. Returns 0, or 1 where memory ran out.
EXPORTED int attent_dense_attention_gradients(const void* query, const void* key, const void* value, const int64_t* begin,
                                              const int64_t* end, const float* bias, const float* offset_bias, const void* context,
                                              const float* statistics, const void* gradient, void* dquery, void* dkey, void* dvalue,
                                              float* dbias, float* doffset_bias, const int64_t* shape, uint32_t seed, uint32_t threshold,
                                              float factor, float scale, float soft_cap, int64_t threads, Parallel parallel, int level) {
  Problem job{query, key, value, begin, end, bias, offset_bias, const_cast<void*>(context), const_cast<float*>(statistics), gradient,
              dquery, dkey, dvalue, dbias, doffset_bias, {}, lowbias32(seed), threshold, factor, scale, soft_cap};
  std::memcpy(&job.shape, shape, sizeof job.shape);
  const Shape& sizes = job.shape;
  const int64_t strip = strip_at(level), line = line_of(sizes.width), value_line = line_of(sizes.value_width);
  const int64_t tiles = tiles_of(sizes), strips = sizes.batch * sizes.heads * strips_of(sizes, strip);
  std::unique_ptr<std::atomic<int32_t>[]> turns;
  Memory memory;
  job.dquery_sums = static_cast<float*>(dquery);
  if (tiles > 1) {
    if (sizes.query_type != FLOAT32) job.dquery_sums = memory.allocate(sizes.batch * sizes.heads * sizes.queries * sizes.width);
    job.row_sums = memory.allocate(sizes.batch * sizes.heads * sizes.queries);
    if (job.has_hidden_pairs()) job.strip_ranges = reinterpret_cast<int64_t*>(memory.allocate(4 * strips));
  }
  if (tiles > 1 || dbias || doffset_bias) {
    turns.reset(new (std::nothrow) std::atomic<int32_t>[strips * (1 + tiles) + sizes.heads]());
    if (!turns || memory.failed) return 1;
    job.turns = turns.get(), job.offset_turns = job.turns + strips, job.bias_turns = job.offset_turns + sizes.heads;
  }
  if (dbias && sizes.dbias.row)
    take_large_pages(dbias, sizes.queries * sizes.keys * (sizes.dbias.head ? sizes.heads : 1) * (sizes.dbias.sequence ? sizes.batch : 1));
  threads = threads_for(sizes, threads);
  const int64_t scratch = TILE * (2 * (line + value_line) + 4 * strip + 3) + MAX_LANES + 4 * strip * (line + value_line) + TILE * line +
                          sizes.queries;
  if (tiles > 1 && run(job, DISPATCH_PAIRS(row_sums, level, sizes), strips, scratch, threads, parallel)) return 1;
  return run(job, DISPATCH_PAIRS(gradients, level, sizes), sizes.batch * sizes.groups * tiles, scratch, threads, parallel);
}
