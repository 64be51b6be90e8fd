// The loops of transformer.cpp for one width of vector registers (LANES floats). foreach_target.h includes this file for each width.

#include "simd.h"
#include "bfloat16.h"
#include "decode_attention.h"
#include "packed_gemm.h"

struct Norm {
  const float *weight, *bias;
};

// The weights of a stack, read from front to back.
struct Reader {
  const uint8_t* next;
  int64_t kind;

  explicit Reader(const Stack& stack) : next(stack.weights), kind(stack.kind) {}
  const float* take(int64_t numbers) {
    const float* begin = reinterpret_cast<const float*>(next);
    next += 4 * padded(numbers);
    return begin;
  }
  Norm norm(int64_t width) {
    const float* weight = take(width);
    return {weight, take(width)};
  }
  Product product(int64_t depth, int64_t columns) {
    const uint8_t* panels = next;
    next += padded(columns) / PANEL * panel_size(kind, depth);
    return {panels, depth, columns, kind};
  }
};

// erf(x), to about one unit in the last place: x · p(x²) near 0, elsewhere 1 − e^p(|x|). After N. Juffa.
static inline Vector error_function(Vector x) {
  const Vector square = x * x, magnitude = x < 0.0f ? -x : x, t = magnitude < 4.0f ? magnitude : broadcast(4.0f), t_squared = t * t;
  Vector outer = (t * -1.72853470e-5f + 3.83197126e-4f) * t_squared + (t * -3.88396438e-3f + 2.42546219e-2f);
  outer = outer * t + -1.06777877e-1f;
  outer = outer * t + -6.34846687e-1f;
  outer = outer * t + -1.28717512e-1f;
  outer = 1.0f - exponential(outer * t - t);
  Vector inner = square * -5.96761703e-4f + 4.99119423e-3f;
  inner = inner * square + -2.67681349e-2f;
  inner = inner * square + 1.12819925e-1f;
  inner = inner * square + -3.76125336e-1f;
  inner = inner * square + 1.28379166e-1f;
  inner = inner * x + x;
  return magnitude < 0.927734375f ? inner : x < 0.0f ? -outer : outer;
}

// x / (1 + e^−x), the exponential's argument kept within its range: beyond it the result is x or all but 0.
static inline Vector silu(Vector x) {
  const Vector least = x < -87.0f ? broadcast(-87.0f) : x, clamped = least > 87.0f ? broadcast(87.0f) : least;
  return x / (1.0f + exponential(-clamped));
}

static inline Vector sigmoid(Vector x) {
  const Vector least = x < -87.0f ? broadcast(-87.0f) : x, clamped = least > 87.0f ? broadcast(87.0f) : least;
  return 1.0f / (1.0f + exponential(-clamped));
}

static inline Vector activate(Activation activation, Vector x) {
  if (activation == GELU) return 0.5f * x * (1.0f + error_function(x * 0.70710678118654752f));
  return activation == SILU ? silu(x) : x > 0.0f ? x : Vector{};
}

static inline int64_t widest_row(const Stack& stack) {
  const int64_t numbers = stack.recurrent ? 2 * stack.width : (stack.heads + 2 * stack.groups) * stack.head;
  const int64_t projected = padded(numbers), hidden = padded(stack.hidden);
  return projected > hidden ? projected : hidden;
}

// Buffers of a block of rows, padded to whole panels.
struct Block {
  const Stack& stack;
  int64_t number, padded_width, padded_hidden, padded_heads;
  float *stream, *normalized, *output, *context, *projected, *weights;
  int64_t* offsets;

  Block(const Stack& stack, int64_t rows, int64_t max_keys, float* scratch)
      : stack(stack), number(rows), padded_width(padded(stack.width)), padded_hidden(widest_row(stack)),
          padded_heads(padded(stack.heads * stack.head)) {
    stream = scratch;
    normalized = stream + rows * padded_width;
    output = normalized + rows * padded_width;
    context = output + rows * padded_width;
    projected = context + rows * padded_heads;
    offsets = reinterpret_cast<int64_t*>(projected + rows * padded_hidden);
    weights = reinterpret_cast<float*>(offsets + max_keys);
  }
  Heads heads() const { return {stack.heads, stack.groups, stack.head, stack.scale}; }
};

// Numbers that a block of `rows` rows needs, each with up to `max_keys` keys.
static inline int64_t workspace_size(const Stack& stack, int64_t rows, int64_t max_keys) {
  return rows * (3 * padded(stack.width) + padded(stack.heads * stack.head) + widest_row(stack)) + 3 * max_keys + LANES;
}

// Read a column of packed weights.
static void unpack(const uint8_t* panels, int64_t kind, int64_t depth, int64_t column, float* to) {
  const uint8_t* panel = panels + column / PANEL * panel_size(kind, depth);
  const int64_t c = column % PANEL;
  if (kind == BFLOAT16) {
    for (int64_t d = 0; d < depth; ++d) {
      const uint32_t bits = static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(panel)[d * PANEL + c]) << 16;
      memcpy(to + d, &bits, 4);
    }
  } else {
    const float scale = reinterpret_cast<const float*>(panel + PANEL * filled(depth))[c];
    for (int64_t d = 0; d < depth; ++d) to[d] = scale * static_cast<int8_t>(panel[d / 4 * 4 * PANEL + 4 * c + d % 4]);
  }
}

static void embed(const Stack& stack, const Embedding& from, int64_t token, const float* position, float* to) {
  const float* row = reinterpret_cast<const float*>(from.table) + token * stack.width;
  if (stack.kind != FLOAT32) {
    unpack(from.table, stack.kind, stack.width, token, to);
    row = to;
  }
  for (int64_t d = 0; d < stack.width; ++d) to[d] = from.factor * row[d] + (position ? position[d] : 0.0f);
}

// Σ (x − center) or Σ (x − center)².
template <bool SQUARED>
static inline float centered_sum(const float* x, int64_t width, float center) {
  Vector sums[2] = {};
  int64_t d = 0;
  for (; d + 2 * LANES <= width; d += 2 * LANES)
    for (int64_t s = 0; s < 2; ++s) {
      const Vector centered = load(x + d + s * LANES) - center;
      sums[s] += SQUARED ? centered * centered : centered;
    }
  float sum = total(sums[0] + sums[1]);
  for (; d < width; ++d) sum += SQUARED ? (x[d] - center) * (x[d] - center) : x[d] - center;
  return sum;
}

static void layer_norm(const float* x, int64_t width, const Norm& norm, float epsilon, float* to) {
  const float mean = centered_sum<false>(x, width, 0.0f) / width;
  const float inverse_std = 1.0f / __builtin_sqrtf(centered_sum<true>(x, width, mean) / width + epsilon);
  int64_t d = 0;
  for (; d + LANES <= width; d += LANES) store(to + d, (load(x + d) - mean) * inverse_std * load(norm.weight + d) + load(norm.bias + d));
  for (; d < width; ++d) to[d] = (x[d] - mean) * inverse_std * norm.weight[d] + norm.bias[d];
}

// The input of a sub-layer.
static const float* sublayer_input(Block& block, const Norm& norm) {
  const Stack& stack = block.stack;
  if (!stack.pre) return block.stream;
  for (int64_t i = 0; i < block.number; ++i)
    layer_norm(block.stream + i * block.padded_width, stack.width, norm, stack.epsilon, block.normalized + i * block.padded_width);
  return block.normalized;
}

// Add the output of a sub-layer to the residual stream.
static void add_residual(Block& block, const Norm& norm) {
  const Stack& stack = block.stack;
  for (int64_t i = 0; i < block.number; ++i) {
    float *__restrict stream = block.stream + i * block.padded_width, *__restrict output = block.output + i * block.padded_width;
    for (int64_t d = 0; d < stack.width; ++d) stream[d] += output[d];
    if (!stack.pre) layer_norm(stream, stack.width, norm, stack.epsilon, stream);
  }
}

static void feed_forward(Block& block, Reader& reader) {
  const Stack& stack = block.stack;
  const Norm norm = reader.norm(stack.width);
  const Product widen = reader.product(stack.width, stack.hidden), padded_width = reader.product(stack.hidden, stack.width);
  multiply(widen, sublayer_input(block, norm), block.number, block.padded_width, 0, stack.hidden, block.projected, block.padded_hidden);
  for (int64_t i = 0; i < block.number; ++i)
    for (float *x = block.projected + i * block.padded_hidden, *end = x + padded(stack.hidden); x < end; x += LANES)
      store(x, activate(stack.activation, load(x)));
  multiply(padded_width, block.projected, block.number, block.padded_hidden, 0, stack.width, block.output, block.padded_width);
  add_residual(block, norm);
}

// Rotate pairs of features of queries and keys; the first of each pair lies in the first half of a head.
static void rotate(const Stack& stack, const Angles& angles, int64_t position, float* heads) {
  const int64_t half = stack.head / 2;
  const float *__restrict cosine = angles.cosine + position * half, *__restrict sine = angles.sine + position * half;
  for (int64_t h = 0; h < stack.heads + stack.groups; ++h, heads += stack.head) {
    float *__restrict a = heads, *__restrict b = heads + half;
    for (int64_t d = 0; d < half; ++d) {
      const float first = a[d], second = b[d];
      a[d] = first * cosine[d] - second * sine[d];
      b[d] = first * sine[d] + second * cosine[d];
    }
  }
}

// Write the output of the stack for one row.
static void write_output(Block& block, Reader& reader, int64_t i, float* to) {
  const Stack& stack = block.stack;
  const float* stream = block.stream + i * block.padded_width;
  if (stack.pre) layer_norm(stream, stack.width, Reader(reader).norm(stack.width), stack.epsilon, to);
  else memcpy(to, stream, 4 * stack.width);
}

// Encode a task's sentences, without their padding.
static void encode(const Encoding& job, int64_t task, float* scratch) {
  const Stack& stack = job.stack;
  const int64_t first = task * job.chunk, last = first + job.chunk < job.batch ? first + job.chunk : job.batch;
  int64_t number = 0, longest = 0;
  for (int64_t b = first; b < last; ++b) {
    number += job.lengths[b];
    longest = job.lengths[b] > longest ? job.lengths[b] : longest;
  }
  Block block(stack, number, longest, scratch);
  float* stream = block.stream;
  const float* positions = job.embedding.positions;
  for (int64_t b = first; b < last; ++b)
    for (int64_t j = 0; j < job.lengths[b]; ++j, stream += block.padded_width)
      embed(stack, job.embedding, job.embedding.tokens[b * job.length + j], positions ? positions + j * stack.width : nullptr, stream);
  for (int64_t j = 0; j < longest; ++j) block.offsets[j] = j * block.padded_hidden;
  const int64_t keys = stack.heads * stack.head;
  Reader reader(stack);
  for (int64_t l = 0; l < stack.layers; ++l) {
    const Norm norm = reader.norm(stack.width);
    const Product project = reader.product(stack.width, keys + 2 * stack.groups * stack.head), output = reader.product(keys, stack.width);
    multiply(project, sublayer_input(block, norm), number, block.padded_width, 0, project.columns, block.projected, block.padded_hidden);
    float *projected = block.projected, *context = block.context;
    for (int64_t b = first; b < last; ++b) {
      const int64_t length = job.lengths[b];
      if (job.angles.cosine)
        for (int64_t j = 0; j < length; ++j) rotate(stack, job.angles, j, projected + j * block.padded_hidden);
      for (int64_t j = 0; j < length; ++j, context += block.padded_heads)
        decode_attention(block.heads(), projected + j * block.padded_hidden, projected + keys, block.offsets, length, block.weights,
                         context);
      projected += length * block.padded_hidden;
    }
    multiply(output, block.context, number, block.padded_heads, 0, stack.width, block.output, block.padded_width);
    add_residual(block, norm);
    feed_forward(block, reader);
  }
  int64_t i = 0;
  for (int64_t b = first; b < last; ++b)
    for (int64_t j = 0; j < job.lengths[b]; ++j, ++i) write_output(block, reader, i, job.memory + (b * job.length + j) * stack.width);
}

// Prefetch `numbers` numbers.
static inline void prefetch(const float* from, int64_t numbers) {
  for (int64_t d = 0; d < numbers; d += 16) __builtin_prefetch(from + d);
}

// The attention of a task's rows to their sources, and its residual connection.
static void attend_to_source(const Step& job, Block& block, Reader& reader, int64_t l, int64_t first) {
  const Stack& stack = job.stack;
  const int64_t keys = stack.heads * stack.head, cached = 2 * stack.groups * stack.head;
  const Norm norm = reader.norm(stack.width);
  const Product project_query = reader.product(stack.width, keys), project_context = reader.product(keys, stack.width);
  multiply(project_query, sublayer_input(block, norm), block.number, block.padded_width, 0, keys, block.projected, block.padded_hidden);
  for (int64_t i = 0; i < block.number; ++i) {
    const int64_t b = first + i, length = job.lengths[b];
    if (i + 1 < block.number && job.source_rows[b + 1] != job.source_rows[b])
      prefetch(job.source + (l * job.sources + job.source_rows[b + 1]) * job.longest * cached, job.lengths[b + 1] * cached);
    for (int64_t j = 0; j < length; ++j) block.offsets[j] = j * cached;
    const float* source = job.source + (l * job.sources + job.source_rows[b]) * job.longest * cached;
    decode_attention(block.heads(), block.projected + i * block.padded_hidden, source, block.offsets, length, block.weights,
                     block.context + i * block.padded_heads);
  }
  multiply(project_context, block.context, block.number, block.padded_heads, 0, stack.width, block.output, block.padded_width);
  add_residual(block, norm);
}

// f = σ(x'), c = f c⁻ + (1 − f) x'', output max(0, c) of one row; `former` is c⁻, null at the start.
static void recur(const float* gates, const float* former, int64_t width, float* state, float* output) {
  float tail[4][LANES] = {};
  for (int64_t d = 0; d < width; d += LANES) {
    const int64_t count = width - d < LANES ? width - d : LANES;
    const float* from[3] = {gates + d, gates + width + d, former ? former + d : tail[2]};
    if (count < LANES)
      for (int64_t s = 0; s < 3; ++s) from[s] = static_cast<float*>(memcpy(tail[s], from[s], 4 * count));
    const Vector keep = sigmoid(load(from[0])), entered = load(from[1]), before = former ? load(from[2]) : Vector{};
    const Vector cell = keep * before + (1.0f - keep) * entered;
    store(tail[3], cell);
    memcpy(state + d, tail[3], 4 * count);
    store(tail[3], cell > 0.0f ? cell : Vector{});
    memcpy(output + d, tail[3], 4 * count);
  }
}

// The recurrent unit of a task's rows, and its residual connection.
static void recur_rows(const Step& job, Block& block, Reader& reader, int64_t l, int64_t first) {
  const Stack& stack = job.stack;
  const Norm norm = reader.norm(stack.width);
  const Product project = reader.product(stack.width, 2 * stack.width);
  multiply(project, sublayer_input(block, norm), block.number, block.padded_width, 0, project.columns, block.projected,
           block.padded_hidden);
  float* states = job.cache + l * job.layer_stride;
  for (int64_t i = 0; i < block.number; ++i) {
    const int64_t b = first + i, last = job.count - 1;
    const float* former = job.count ? states + job.rows[b * job.stride + last] * job.row_stride + last * job.key_stride : nullptr;
    recur(block.projected + i * block.padded_hidden, former, stack.width, states + b * job.row_stride + job.count * job.key_stride,
          block.output + i * block.padded_width);
  }
  add_residual(block, norm);
}

// The self-attention of a task's rows, and its residual connection.
static void attend_to_target(const Step& job, Block& block, Reader& reader, int64_t l, int64_t first) {
  const Stack& stack = job.stack;
  const int64_t keys = stack.heads * stack.head, cached = 2 * stack.groups * stack.head, number = block.number;
  const Norm norm = reader.norm(stack.width);
  const Product project = reader.product(stack.width, keys + cached), output = reader.product(keys, stack.width);
  multiply(project, sublayer_input(block, norm), number, block.padded_width, 0, project.columns, block.projected, block.padded_hidden);
  float* cache = job.cache + l * job.layer_stride;
  for (int64_t i = 0; i < number; ++i) {
    const int64_t b = first + i, *rows = job.rows + b * job.stride;
    // hardware prefetching cannot predict the next row's keys
    if (i + 1 < number)
      for (int64_t j = 0; j < job.count; ++j) prefetch(cache + rows[job.stride + j] * job.row_stride + j * job.key_stride, cached);
    float* projected = block.projected + i * block.padded_hidden;
    if (job.angles.cosine) rotate(stack, job.angles, 0, projected);
    for (int64_t j = 0; j < job.count; ++j) block.offsets[j] = rows[j] * job.row_stride + j * job.key_stride;
    block.offsets[job.count] = b * job.row_stride + job.count * job.key_stride;
    memcpy(cache + block.offsets[job.count], projected + keys, 4 * cached);
    decode_attention(block.heads(), projected, cache, block.offsets, job.count + 1, block.weights,
                     block.context + i * block.padded_heads);
  }
  multiply(output, block.context, number, block.padded_heads, 0, stack.width, block.output, block.padded_width);
  add_residual(block, norm);
}

// Decode one token of a task's rows.
static void step(const Step& job, int64_t task, float* scratch) {
  const Stack& stack = job.stack;
  const int64_t first = task * job.chunk, number = first + job.chunk < job.batch ? job.chunk : job.batch - first;
  Block block(stack, number, job.count + 1 > job.longest ? job.count + 1 : job.longest, scratch);
  for (int64_t i = 0; i < number; ++i)
    embed(stack, job.embedding, job.embedding.tokens[first + i], job.embedding.positions, block.stream + i * block.padded_width);
  Reader reader(stack);
  for (int64_t l = 0; l < stack.layers; ++l) {
    stack.recurrent ? recur_rows(job, block, reader, l, first) : attend_to_target(job, block, reader, l, first);
    if (job.sources) attend_to_source(job, block, reader, l, first);
    feed_forward(block, reader);
  }
  for (int64_t i = 0; i < number; ++i) write_output(block, reader, i, job.features + (first + i) * stack.width);
}
