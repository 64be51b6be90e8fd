// The loops of transformer.cpp for one width of vector registers, LANES. Included once for each, inside a namespace of its own and under
// that width's compiler target.

#include "simd.h"
#include "decode_attention.h"
#include "packed_gemm.h"

struct Norm {
  const float *weight, *bias;
};

// The weights of a stack, read from front to back.
struct Reader {
  const float* at;

  const float* take(int64_t numbers) {
    const float* here = at;
    at += padded(numbers);
    return here;
  }
  Norm norm(int64_t width) {
    const float* weight = take(width);
    return {weight, take(width)};
  }
  Product product(int64_t depth, int64_t columns) {
    const float* panels = take(depth * padded(columns));
    return {panels, take(columns), depth, columns};
  }
};

// erf(x), to about one unit in the last place: x · p(x²) near 0, elsewhere 1 − e^p(|x|). After N. Juffa.
static inline Vector error_function(Vector x) {
  const Vector square = x * x, size = x < 0.0f ? -x : x, t = size < 4.0f ? size : all(4.0f), tt = t * t;
  Vector far = (t * -1.72853470e-5f + 3.83197126e-4f) * tt + (t * -3.88396438e-3f + 2.42546219e-2f);
  far = far * t + -1.06777877e-1f;
  far = far * t + -6.34846687e-1f;
  far = far * t + -1.28717512e-1f;
  far = 1.0f - exponential(far * t - t);
  Vector near = square * -5.96761703e-4f + 4.99119423e-3f;
  near = near * square + -2.67681349e-2f;
  near = near * square + 1.12819925e-1f;
  near = near * square + -3.76125336e-1f;
  near = near * square + 1.28379166e-1f;
  near = near * x + x;
  return size < 0.927734375f ? near : x < 0.0f ? -far : far;
}

static inline int64_t broadest(const Stack& stack) {
  const int64_t projected = padded((stack.heads + 2 * stack.groups) * stack.head), wide = padded(stack.wide);
  return projected > wide ? projected : wide;
}

// Rows on their way through the layers; each kind of them padded to whole panels.
struct Block {
  const Stack& stack;
  int64_t number, narrow, broad, inner;
  float *stream, *read, *output, *context, *projected, *weights;
  int64_t* at;

  Block(const Stack& stack, int64_t rows, int64_t most, float* scratch)
      : stack(stack), number(rows), narrow(padded(stack.width)), broad(broadest(stack)), inner(padded(stack.heads * stack.head)) {
    stream = scratch;
    read = stream + rows * narrow;
    output = read + rows * narrow;
    context = output + rows * narrow;
    projected = context + rows * inner;
    at = reinterpret_cast<int64_t*>(projected + rows * broad);
    weights = reinterpret_cast<float*>(at + most);
  }
  Heads heads() const { return {stack.heads, stack.groups, stack.head, stack.scale}; }
};

// Numbers that a block of so many rows takes, each of which looks at up to so many keys.
static inline int64_t room(const Stack& stack, int64_t rows, int64_t most) {
  return rows * (3 * padded(stack.width) + padded(stack.heads * stack.head) + broadest(stack)) + 3 * most + LANES;
}

static void embed(const Embedding& from, int64_t token, const float* position, int64_t width, float* to) {
  const float* row = from.table + token * width;
  for (int64_t d = 0; d < width; ++d) to[d] = from.factor * row[d] + (position ? position[d] : 0.0f);
}

// Σ (x − less) or Σ (x − less)².
template <bool SQUARED>
static inline float summed(const float* x, int64_t width, float less) {
  Vector sums[2] = {};
  int64_t d = 0;
  for (; d + 2 * LANES <= width; d += 2 * LANES)
    for (int64_t s = 0; s < 2; ++s) {
      const Vector here = load(x + d + s * LANES) - less;
      sums[s] += SQUARED ? here * here : here;
    }
  float sum = total(sums[0] + sums[1]);
  for (; d < width; ++d) sum += SQUARED ? (x[d] - less) * (x[d] - less) : x[d] - less;
  return sum;
}

static void normalise(const float* x, int64_t width, const Norm& norm, float epsilon, float* to) {
  const float mean = summed<false>(x, width, 0.0f) / width;
  const float share = 1.0f / __builtin_sqrtf(summed<true>(x, width, mean) / width + epsilon);
  int64_t d = 0;
  for (; d + LANES <= width; d += LANES) store(to + d, (load(x + d) - mean) * share * load(norm.weight + d) + load(norm.bias + d));
  for (; d < width; ++d) to[d] = (x[d] - mean) * share * norm.weight[d] + norm.bias[d];
}

// What a sub-layer reads.
static const float* enter(Block& block, const Norm& norm) {
  const Stack& stack = block.stack;
  if (!stack.pre) return block.stream;
  for (int64_t i = 0; i < block.number; ++i)
    normalise(block.stream + i * block.narrow, stack.width, norm, stack.epsilon, block.read + i * block.narrow);
  return block.read;
}

// The stream with what a sub-layer has put out.
static void leave(Block& block, const Norm& norm) {
  const Stack& stack = block.stack;
  for (int64_t i = 0; i < block.number; ++i) {
    float *__restrict stream = block.stream + i * block.narrow, *__restrict output = block.output + i * block.narrow;
    for (int64_t d = 0; d < stack.width; ++d) stream[d] += output[d];
    if (!stack.pre) normalise(stream, stack.width, norm, stack.epsilon, stream);
  }
}

static void feed_forward(Block& block, Reader& reader) {
  const Stack& stack = block.stack;
  const Norm norm = reader.norm(stack.width);
  const Product widen = reader.product(stack.width, stack.wide), narrow = reader.product(stack.wide, stack.width);
  multiply(widen, enter(block, norm), block.number, block.narrow, 0, stack.wide, block.projected, block.broad);
  for (int64_t i = 0; i < block.number; ++i)
    for (float *x = block.projected + i * block.broad, *end = x + padded(stack.wide); x < end; x += LANES) {
      const Vector here = load(x);
      store(x, stack.gelu ? 0.5f * here * (1.0f + error_function(here * 0.70710678118654752f)) : here > 0.0f ? here : Vector{});
    }
  multiply(narrow, block.projected, block.number, block.broad, 0, stack.width, block.output, block.narrow);
  leave(block, norm);
}

// Turns pairs of features of queries and keys, the first of each pair in the first half of a head.
static void turn(const Stack& stack, const Angles& angles, int64_t position, float* heads) {
  const int64_t half = stack.head / 2;
  const float *__restrict cosine = angles.cosine + position * half, *__restrict sine = angles.sine + position * half;
  for (int64_t h = 0; h < stack.heads + stack.groups; ++h, heads += stack.head) {
    float *__restrict one = heads, *__restrict other = heads + half;
    for (int64_t d = 0; d < half; ++d) {
      const float first = one[d], second = other[d];
      one[d] = first * cosine[d] - second * sine[d];
      other[d] = first * sine[d] + second * cosine[d];
    }
  }
}

// What a stack of layers makes of the rows.
static void finish(Block& block, Reader& reader, int64_t i, float* to) {
  const Stack& stack = block.stack;
  const float* stream = block.stream + i * block.narrow;
  if (stack.pre) normalise(stream, stack.width, Reader(reader).norm(stack.width), stack.epsilon, to);
  else memcpy(to, stream, 4 * stack.width);
}

// Some sentences, without their padding.
static void encode(const Encoding& job, int64_t task, float* scratch) {
  const Stack& stack = job.stack;
  const int64_t first = task * job.each, last = first + job.each < job.number ? first + job.each : job.number;
  int64_t number = 0, longest = 0;
  for (int64_t b = first; b < last; ++b) {
    number += job.lengths[b];
    longest = job.lengths[b] > longest ? job.lengths[b] : longest;
  }
  Block block(stack, number, longest, scratch);
  float* stream = block.stream;
  const float* positions = job.embedding.positions;
  for (int64_t b = first; b < last; ++b)
    for (int64_t j = 0; j < job.lengths[b]; ++j, stream += block.narrow)
      embed(job.embedding, job.embedding.tokens[b * job.length + j], positions ? positions + j * stack.width : nullptr, stack.width, stream);
  for (int64_t j = 0; j < longest; ++j) block.at[j] = j * block.broad;
  const int64_t keys = stack.heads * stack.head;
  Reader reader{stack.weights};
  for (int64_t l = 0; l < stack.layers; ++l) {
    const Norm norm = reader.norm(stack.width);
    const Product project = reader.product(stack.width, keys + 2 * stack.groups * stack.head), output = reader.product(keys, stack.width);
    multiply(project, enter(block, norm), number, block.narrow, 0, project.columns, block.projected, block.broad);
    float *here = block.projected, *context = block.context;
    for (int64_t b = first; b < last; ++b) {
      const int64_t length = job.lengths[b];
      if (job.angles.cosine)
        for (int64_t j = 0; j < length; ++j) turn(stack, job.angles, j, here + j * block.broad);
      for (int64_t j = 0; j < length; ++j, context += block.inner)
        look(block.heads(), here + j * block.broad, here + keys, block.at, length, block.weights, context);
      here += length * block.broad;
    }
    multiply(output, block.context, number, block.inner, 0, stack.width, block.output, block.narrow);
    leave(block, norm);
    feed_forward(block, reader);
  }
  int64_t i = 0;
  for (int64_t b = first; b < last; ++b)
    for (int64_t j = 0; j < job.lengths[b]; ++j, ++i) finish(block, reader, i, job.memory + (b * job.length + j) * stack.width);
}

// So many numbers, on their way to the cache.
static inline void fetch(const float* from, int64_t numbers) {
  for (int64_t d = 0; d < numbers; d += 16) __builtin_prefetch(from + d);
}

// Some rows, one token further.
static void step(const Step& job, int64_t task, float* scratch) {
  const Stack& stack = job.stack;
  const int64_t first = task * job.each, number = first + job.each < job.number ? job.each : job.number - first;
  Block block(stack, number, job.count + 1 > job.longest ? job.count + 1 : job.longest, scratch);
  for (int64_t i = 0; i < number; ++i)
    embed(job.embedding, job.embedding.tokens[first + i], job.embedding.positions, stack.width, block.stream + i * block.narrow);
  const int64_t keys = stack.heads * stack.head, kept = 2 * stack.groups * stack.head;
  Reader reader{stack.weights};
  for (int64_t l = 0; l < stack.layers; ++l) {
    Norm norm = reader.norm(stack.width);
    const Product project = reader.product(stack.width, keys + kept), output = reader.product(keys, stack.width);
    multiply(project, enter(block, norm), number, block.narrow, 0, project.columns, block.projected, block.broad);
    float* written = job.written + l * job.layer;
    for (int64_t i = 0; i < number; ++i) {
      const int64_t b = first + i, *rows = job.rows + b * job.stride;
      // where the next row's lie nobody could guess
      if (i + 1 < number)
        for (int64_t j = 0; j < job.count; ++j) fetch(written + rows[job.stride + j] * job.row + j * job.place, kept);
      float* here = block.projected + i * block.broad;
      if (job.angles.cosine) turn(stack, job.angles, 0, here);
      for (int64_t j = 0; j < job.count; ++j) block.at[j] = rows[j] * job.row + j * job.place;
      block.at[job.count] = b * job.row + job.count * job.place;
      memcpy(written + block.at[job.count], here + keys, 4 * kept);
      look(block.heads(), here, written, block.at, job.count + 1, block.weights, block.context + i * block.inner);
    }
    multiply(output, block.context, number, block.inner, 0, stack.width, block.output, block.narrow);
    leave(block, norm);
    norm = reader.norm(stack.width);
    const Product question = reader.product(stack.width, keys), answer = reader.product(keys, stack.width);
    multiply(question, enter(block, norm), number, block.narrow, 0, keys, block.projected, block.broad);
    for (int64_t i = 0; i < number; ++i) {
      const int64_t b = first + i, length = job.lengths[b];
      if (i + 1 < number && job.origin[b + 1] != job.origin[b])
        fetch(job.source + (l * job.sources + job.origin[b + 1]) * job.longest * kept, job.lengths[b + 1] * kept);
      for (int64_t j = 0; j < length; ++j) block.at[j] = j * kept;
      const float* source = job.source + (l * job.sources + job.origin[b]) * job.longest * kept;
      look(block.heads(), block.projected + i * block.broad, source, block.at, length, block.weights, block.context + i * block.inner);
    }
    multiply(answer, block.context, number, block.inner, 0, stack.width, block.output, block.narrow);
    leave(block, norm);
    feed_forward(block, reader);
  }
  for (int64_t i = 0; i < number; ++i) finish(block, reader, i, job.features + (first + i) * stack.width);
}
