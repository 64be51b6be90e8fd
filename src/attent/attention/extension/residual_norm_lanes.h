// The loops of residual_norm.cpp for one width of vector registers. Included once for each, inside a namespace of its own and under
// that width's compiler target, with
//   LANES  floats in a register
//
// A row is worked on in lines of floats that end with whole registers.

#include "lanes.h"

typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

static inline float sum(Vector vector) {
  float total = 0;
  for (int l = 0; l < LANES; ++l) total += vector[l];
  return total;
}

static inline Vector wide(const uint16_t* from) {
  Halves halves;
  memcpy(&halves, from, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  Vector vector;
  memcpy(&vector, &words, sizeof vector);
  return vector;
}

// To the nearest bfloat16, ties to even.
static inline void narrow(uint16_t* to, Vector vector) {
  Words words;
  memcpy(&words, &vector, sizeof words);
  const Words rounded = (words + 0x7fff + ((words >> 16) & 1)) >> 16, number = (Words)(vector == vector);
  const Halves halves = __builtin_convertvector((rounded & number) | (0x7fc0 & ~number), Halves);
  memcpy(to, &halves, sizeof halves);
}

// A row of float32 or bfloat16 as a line, zero behind its end.
static void read(const void* from, bool half, int64_t row, int64_t width, int64_t line, float* to) {
  int64_t j = 0;
  if (half) {
    const uint16_t* numbers = static_cast<const uint16_t*>(from) + row * width;
    for (; j + LANES <= width; j += LANES) store(to + j, wide(numbers + j));
    uint16_t some[LANES] = {0};
    memcpy(some, numbers + j, 2 * (width - j));
    if (j < width) store(to + j, wide(some));
  } else {
    memcpy(to, static_cast<const float*>(from) + row * width, 4 * width);
  }
  for (j = half ? (width + LANES - 1) / LANES * LANES : width; j < line; ++j) to[j] = 0;
}

static void write(const float* line, bool half, int64_t row, int64_t width, void* to) {
  if (half) {
    uint16_t* numbers = static_cast<uint16_t*>(to) + row * width;
    int64_t j = 0;
    for (; j + LANES <= width; j += LANES) narrow(numbers + j, load(line + j));
    if (j == width) return;
    uint16_t some[LANES];
    narrow(some, load(line + j));
    memcpy(numbers + j, some, 2 * (width - j));
  } else {
    memcpy(static_cast<float*>(to) + row * width, line, 4 * width);
  }
}

// A line in which what goes is 0 and what stays is multiplied.
static void drop(const Drops& drops, int64_t row, int64_t line, float* numbers) {
  if (!drops.threshold) return;
  const uint32_t hashed = mixed(drops.start + OF_ROW * static_cast<uint32_t>(row));
  for (int64_t j = 0; j < line; j += LANES) {
    Words bits, kept;
    memcpy(&bits, drops.columns + j, sizeof bits);
    bits += hashed;
    bits = (bits ^ (bits >> 16)) * 0x7FEB352Du;
    bits = (bits ^ (bits >> 15)) * 0x846CA68Bu;
    bits ^= bits >> 16;
    const Vector product = load(numbers + j) * drops.factor;
    memcpy(&kept, &product, sizeof kept);
    kept &= (Words)(bits >= drops.threshold);
    memcpy(numbers + j, &kept, sizeof kept);
  }
}

// Some rows of the sum and of its normalised form.
static void forward(const Forward& job, int64_t task, float* scratch) {
  const int64_t width = job.width, line = job.line, last = task * ROWS + ROWS < job.number ? task * ROWS + ROWS : job.number;
  float *x = scratch, *f = scratch + line;
  for (int64_t i = task * ROWS; i < last; ++i) {
    read(job.features, false, i, width, line, x);
    Vector total = {};
    if (job.output) {
      read(job.output, job.output_half, i, width, line, f);
      drop(job.drops, i, line, f);
      for (int64_t j = 0; j < line; j += LANES) {
        const Vector together = load(x + j) + load(f + j);
        store(x + j, together);
        total += together;
      }
      write(x, false, i, width, job.together);
    } else {
      for (int64_t j = 0; j < line; j += LANES) total += load(x + j);
    }
    const float mean = sum(total) / width;
    for (int64_t j = width; j < line; ++j) x[j] = mean;
    Vector squares = {};
    for (int64_t j = 0; j < line; j += LANES) {
      const Vector apart = load(x + j) - mean;
      squares += apart * apart;
    }
    const float inverse = 1.0f / std::sqrt(sum(squares) / width + job.epsilon);
    job.statistics[2 * i] = mean, job.statistics[2 * i + 1] = inverse;
    for (int64_t j = 0; j < line; j += LANES)
      store(x + j, (load(x + j) - mean) * inverse * load(job.weight + j) + load(job.bias + j));
    write(x, job.normalised_half, i, width, job.normalised);
  }
}

// Some rows' gradients, and what they add to those of weight and bias.
static void backward(const Backward& job, int64_t task, float* scratch) {
  const int64_t width = job.width, line = job.line, last = task * ROWS + ROWS < job.number ? task * ROWS + ROWS : job.number;
  float *x = scratch, *dy = scratch + line, *dx = scratch + 2 * line;
  float *dweight = job.sums + 2 * task * line, *dbias = dweight + line;
  memset(dweight, 0, 8 * line);
  for (int64_t i = task * ROWS; i < last; ++i) {
    const float mean = job.statistics[2 * i], inverse = job.statistics[2 * i + 1];
    read(job.together, false, i, width, line, x);
    read(job.dnormalised, job.normalised_half, i, width, line, dy);
    if (job.dtogether) read(job.dtogether, false, i, width, line, dx);
    else memset(dx, 0, 4 * line);
    Vector shift = {}, scale = {};
    for (int64_t j = 0; j < line; j += LANES) {
      const Vector unit = (load(x + j) - mean) * inverse, of = load(dy + j), weighted = of * load(job.weight + j);
      store(x + j, unit);
      store(dweight + j, load(dweight + j) + of * unit);
      store(dbias + j, load(dbias + j) + of);
      store(dy + j, weighted);
      shift += weighted, scale += weighted * unit;
    }
    const float by_shift = sum(shift) / width, by_scale = sum(scale) / width;
    for (int64_t j = 0; j < line; j += LANES)
      store(dx + j, load(dx + j) + (load(dy + j) - by_shift - load(x + j) * by_scale) * inverse);
    write(dx, false, i, width, job.dfeatures);
    if (job.doutput) {
      drop(job.drops, i, line, dx);
      write(dx, job.output_half, i, width, job.doutput);
    }
  }
}
