// A Transformer's encoder, and a step of its decoder: blocks of rows go through all layers independently.

#include <cstring>

#include "decoder.h"
#include "int8.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// The nonlinearity of the feed-forward network, in the order of `attent.models.transformer_packing.ACTIVATIONS`.
enum Activation : int64_t { RELU, GELU, SILU };

// Sizes and options of a stack of layers, and its weights in reading order.
struct Stack {
  const uint8_t* weights;
  int64_t width, heads, groups, head, hidden, layers;
  bool pre, recurrent;
  Activation activation;
  int64_t kind;
  float scale, epsilon;
};

// A token's features: a row of the table times the factor, plus its position's row, if there are positions. A table in another type than
// float32 is packed: tokens are its columns.
struct Embedding {
  const int64_t* tokens;
  const uint8_t* table;
  const float* positions;
  float factor;
};

// Cosine and sine of rotary positions, a row a position; null without them.
struct Angles {
  const float *cosine, *sine;
};

struct Encoding {
  Stack stack;
  Embedding embedding;
  Angles angles;
  const int64_t* lengths;
  float* memory;
  int64_t batch, length, chunk;
};

// Key j of row b lies in the cache's row rows[b · stride + j] at position j; the row's new key goes to row b at position `count`. The
// source of row b is source_rows[b]; a stack without sources has no attention to them. In place of keys, a recurrent stack has states.
struct Step {
  Stack stack;
  Embedding embedding;
  Angles angles;
  float* cache;
  const int64_t *rows, *source_rows, *lengths;
  const float* source;
  float* features;
  int64_t batch, count, stride, layer_stride, row_stride, key_stride, sources, longest, chunk;
};

// Rows of a block.
constexpr int64_t BLOCK_ROWS = 96;

#define LOOPS "transformer-inl.h"
#include "foreach_target.h"

// Rows of a task such that every thread gets one, up to a maximum.
int64_t rows_per_task(int64_t batch, int64_t threads, int64_t maximum) {
  const int64_t chunk = (batch + threads - 1) / threads;
  return chunk < 1 ? 1 : chunk < maximum ? chunk : maximum;
}

}  // namespace

// memory (B, T, E) of tokens (B, T), of which lengths (B) are real; padding is not written.
EXPORTED int attent_transformer_encoder(const int64_t* tokens, const uint8_t* table, const float* positions, const float* cosine,
                                        const float* sine, const uint8_t* weights, const int64_t* lengths, float* memory,
                                        int64_t batch, int64_t length, int64_t width, int64_t heads, int64_t groups, int64_t head,
                                        int64_t hidden, int64_t layers, int64_t options, int64_t activation, int64_t kind, float factor,
                                        float scale, float epsilon, int64_t threads, Parallel parallel, int level) {
  const Stack stack{weights, width, heads, groups, head, hidden, layers, (options & PRE) != 0, (options & RECURRENT) != 0, Activation(activation), kind, scale, epsilon};
  const int64_t maximum = BLOCK_ROWS / length, chunk = rows_per_task(batch, threads, maximum ? maximum : 1);
  const Encoding job{stack, {tokens, table, positions, factor}, {cosine, sine}, lengths, memory, batch, length, chunk};
  const auto task = DISPATCH(encode, level);
  return run(job, task, (batch + chunk - 1) / chunk, (DISPATCH(workspace_size, level))(stack, chunk * length, length), threads, parallel);
}

// features (B, E) after one more token.
EXPORTED int attent_transformer_step(const int64_t* tokens, const uint8_t* table, const float* positions, const float* cosine,
                                     const float* sine, const uint8_t* weights, float* cache, const int64_t* rows,
                                     const int64_t* source_rows, const int64_t* lengths, const float* source, float* features,
                                     int64_t batch, int64_t count, int64_t stride, int64_t layer_stride, int64_t row_stride,
                                     int64_t key_stride, int64_t sources, int64_t longest, int64_t width, int64_t heads,
                                     int64_t groups, int64_t head, int64_t hidden, int64_t layers, int64_t options, int64_t activation,
                                     int64_t kind, float factor, float scale, float epsilon, int64_t threads, Parallel parallel, int level) {
  const Stack stack{weights, width, heads, groups, head, hidden, layers, (options & PRE) != 0, (options & RECURRENT) != 0, Activation(activation), kind, scale, epsilon};
  const int64_t chunk = rows_per_task(batch, threads, BLOCK_ROWS), maximum = count + 1 > longest ? count + 1 : longest;
  const Step job{stack, {tokens, table, positions, factor}, {cosine, sine}, cache, rows, source_rows, lengths, source, features, batch,
                 count, stride, layer_stride, row_stride, key_stride, sources, longest, chunk};
  const auto task = DISPATCH(step, level);
  return run(job, task, (batch + chunk - 1) / chunk, (DISPATCH(workspace_size, level))(stack, chunk, maximum), threads, parallel);
}
