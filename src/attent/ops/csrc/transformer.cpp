// A Transformer's encoder, and a step of its decoder: rows go through all layers by themselves, some at a time.

#include <cstring>

#include "native.h"

namespace {

// What a stack of layers is, and its weights in the order in which they are read.
struct Stack {
  const float* weights;
  int64_t width, heads, groups, head, wide, layers;
  bool pre, gelu;
  float scale, epsilon;
};

// A token's features: a row of the table times the factor, plus its position's row where there are any.
struct Embedding {
  const int64_t* tokens;
  const float *table, *positions;
  float factor;
};

// Cosine and sine, a row a position; none where nothing is turned.
struct Angles {
  const float *cosine, *sine;
};

struct Encoding {
  Stack stack;
  Embedding embedding;
  Angles angles;
  const int64_t* lengths;
  float* memory;
  int64_t number, length, each;
};

// Key j of row b lies in row rows[b · stride + j] of what is written, at place j; its own, at place `count`, in row b. Those of the source
// lie in row origin[b · far].
struct Step {
  Stack stack;
  Embedding embedding;
  Angles angles;
  float* written;
  const int64_t *rows, *origin, *lengths;
  const float* source;
  float* features;
  int64_t number, count, stride, layer, row, place, sources, longest, each;
};

// Rows that go through the layers together.
constexpr int64_t TOGETHER = 96;

#define LOOPS "transformer-inl.h"
#include "foreach_target.h"

// So many of each task that every thread has one, up to the most.
int64_t shared_out(int64_t number, int64_t threads, int64_t most) {
  const int64_t each = (number + threads - 1) / threads;
  return each < 1 ? 1 : each < most ? each : most;
}

}  // namespace

// memory (B, T, E) of tokens (B, T), of which lengths (B) are real; nothing is written behind them.
EXPORTED int attent_transformer_encoder(const int64_t* tokens, const float* table, const float* positions, const float* cosine,
                                        const float* sine, const float* weights, const int64_t* lengths, float* memory,
                                        int64_t number, int64_t length, int64_t width, int64_t heads, int64_t groups, int64_t head,
                                        int64_t wide, int64_t layers, int64_t pre, int64_t gelu, float factor, float scale,
                                        float epsilon, int64_t threads, Parallel parallel, int level) {
  const Stack stack{weights, width, heads, groups, head, wide, layers, pre != 0, gelu != 0, scale, epsilon};
  const int64_t most = TOGETHER / length, each = shared_out(number, threads, most ? most : 1);
  const Encoding job{stack, {tokens, table, positions, factor}, {cosine, sine}, lengths, memory, number, length, each};
  const auto task = CHOSEN(encode, level);
  return run(job, task, (number + each - 1) / each, (CHOSEN(room, level))(stack, each * length, length), threads, parallel);
}

// features (B, E) of one token further.
EXPORTED int attent_transformer_step(const int64_t* tokens, const float* table, const float* positions, const float* cosine,
                                     const float* sine, const float* weights, float* written, const int64_t* rows,
                                     const int64_t* origin, const int64_t* lengths, const float* source, float* features,
                                     int64_t number, int64_t count, int64_t stride, int64_t layer, int64_t row, int64_t place,
                                     int64_t sources, int64_t longest, int64_t width, int64_t heads, int64_t groups, int64_t head,
                                     int64_t wide, int64_t layers, int64_t pre, int64_t gelu, float factor, float scale,
                                     float epsilon, int64_t threads, Parallel parallel, int level) {
  const Stack stack{weights, width, heads, groups, head, wide, layers, pre != 0, gelu != 0, scale, epsilon};
  const int64_t each = shared_out(number, threads, TOGETHER), most = count + 1 > longest ? count + 1 : longest;
  const Step job{stack, {tokens, table, positions, factor}, {cosine, sine}, written, rows, origin, lengths, source, features, number,
                 count, stride, layer, row, place, sources, longest, each};
  const auto task = CHOSEN(step, level);
  return run(job, task, (number + each - 1) / each, (CHOSEN(room, level))(stack, each, most), threads, parallel);
}
