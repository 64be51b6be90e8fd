// Functions of the library that its search calls at every step.
#pragma once

#include "native.h"

// Options of a stack: a norm ends it, and a recurrent unit takes the place of self-attention.
enum Options : int64_t { PRE = 1, RECURRENT = 2 };

EXPORTED int attent_packed_gemm(const float* rows, const uint8_t* panels, float* to, int64_t number, int64_t depth, int64_t columns,
                                int64_t kind, int64_t threads, Parallel parallel, int level);

EXPORTED int attent_transformer_step(const int64_t* tokens, const uint8_t* table, const float* positions, const float* cosine,
                                     const float* sine, const uint8_t* weights, float* cache, const int64_t* rows,
                                     const int64_t* source_rows, const int64_t* lengths, const float* source, float* features,
                                     int64_t batch, int64_t count, int64_t stride, int64_t layer_stride, int64_t row_stride,
                                     int64_t key_stride, int64_t sources, int64_t longest, int64_t width, int64_t heads,
                                     int64_t groups, int64_t head, int64_t hidden, int64_t layers, int64_t options, int64_t activation,
                                     int64_t kind, float factor, float scale, float epsilon, int64_t threads, Parallel parallel, int level);

EXPORTED int attent_beam_topk(const float* scores, float* log_probs, float* totals, int64_t* indices, int64_t number, int64_t width,
                              int64_t vocabulary, int64_t count, int64_t logits, int64_t forbidden0, int64_t forbidden1,
                              int64_t eos, int64_t threads, Parallel parallel, int level);

EXPORTED int attent_log_softmax(float* logits, int64_t number, int64_t vocabulary, int64_t threads, Parallel parallel, int level);

EXPORTED int attent_log_mean_softmax(float* logits, int64_t count, int64_t number, int64_t vocabulary, int64_t threads, Parallel parallel,
                                     int level);
