// The loops of residual_norm.cpp for one width of vector registers. Included once for each, inside a namespace of its own and under
// that width's compiler target, with
//   LANES  floats in a register
//
// A row is worked on in lines of floats that end with whole registers.

#include "simd.h"

#include "bfloat16.h"

// All lanes, in an order of its own.
static inline float sum(Vector vector) {
  typedef float Four __attribute__((vector_size(16)));
  float numbers[LANES];
  store(numbers, vector);
  Four total = {};
  for (int l = 0; l < LANES; l += 4) {
    Four some;
    memcpy(&some, numbers + l, sizeof some);
    total += some;
  }
  return (total[0] + total[2]) + (total[1] + total[3]);
}

// A row of float32 or bfloat16 as a line, zero behind its end.
static void read(const void* from, bool half, int64_t row, int64_t width, int64_t line, float* to) {
  int64_t j = 0;
  if (half) {
    const uint16_t* numbers = static_cast<const uint16_t*>(from) + row * width;
    for (; j + LANES <= width; j += LANES) store(to + j, load(numbers + j));
    uint16_t some[LANES] = {0};
    memcpy(some, numbers + j, 2 * (width - j));
    if (j < width) store(to + j, load(some));
  } else {
    memcpy(to, static_cast<const float*>(from) + row * width, 4 * width);
  }
  for (j = half ? (width + LANES - 1) / LANES * LANES : width; j < line; ++j) to[j] = 0;
}

static void write(const float* line, bool half, int64_t row, int64_t width, void* to) {
  if (half) {
    uint16_t* numbers = static_cast<uint16_t*>(to) + row * width;
    int64_t j = 0;
    for (; j + LANES <= width; j += LANES) store(numbers + j, load(line + j));
    if (j == width) return;
    uint16_t some[LANES];
    store(some, load(line + j));
    memcpy(numbers + j, some, 2 * (width - j));
  } else {
    memcpy(static_cast<float*>(to) + row * width, line, 4 * width);
  }
}

// A row of float32 or bfloat16 as a line: where it stands if it ends with a whole register, else copied.
static inline const float* at(const void* from, bool half, int64_t row, int64_t width, int64_t line, float* to) {
  if (!half && width == line) return static_cast<const float*>(from) + row * width;
  read(from, half, row, width, line, to);
  return to;
}

// Where a line is to be made: where it is to stand, or in `aside`, to be written.
static inline float* place(void* to, bool half, int64_t row, int64_t width, int64_t line, float* aside) {
  return !half && width == line ? static_cast<float*>(to) + row * width : aside;
}

// A line in which what goes is 0 and what stays is multiplied; the two may be one.
static void drop(const Drops& drops, int64_t row, int64_t line, const float* numbers, float* to) {
  if (!drops.threshold) {
    for (int64_t j = 0; j < line; j += LANES) store(to + j, load(numbers + j));
    return;
  }
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
    memcpy(to + j, &kept, sizeof kept);
  }
}

// Some rows of the sum and of its normalised form.
static void forward(const Forward& job, int64_t task, float* scratch) {
  const int64_t width = job.width, line = job.line, last = task * ROWS + ROWS < job.number ? task * ROWS + ROWS : job.number;
  float *aside = scratch, *f = scratch + line;
  for (int64_t i = task * ROWS; i < last; ++i) {
    const float* x = at(job.features, false, i, width, line, aside);
    Vector total = {};
    if (job.output) {
      float* together = place(job.together, false, i, width, line, aside);
      read(job.output, job.output_half, i, width, line, f);
      if (job.drops.threshold) drop(job.drops, i, line, f, f);
      for (int64_t j = 0; j < line; j += LANES) {
        const Vector both = load(x + j) + load(f + j);
        store(together + j, both);
        total += both;
      }
      if (together == aside) write(together, false, i, width, job.together);
      x = together;
    } else {
      for (int64_t j = 0; j < line; j += LANES) total += load(x + j);
    }
    const float mean = sum(total) / width;
    // then x stands aside
    if (width < line)
      for (int64_t j = width; j < line; ++j) aside[j] = mean;
    Vector squares = {};
    for (int64_t j = 0; j < line; j += LANES) {
      const Vector apart = load(x + j) - mean;
      squares += apart * apart;
    }
    const float inverse = 1.0f / std::sqrt(sum(squares) / width + job.epsilon);
    job.statistics[2 * i] = mean, job.statistics[2 * i + 1] = inverse;
    float* normalised = place(job.normalised, job.normalised_half, i, width, line, f);
    for (int64_t j = 0; j < line; j += LANES)
      store(normalised + j, (load(x + j) - mean) * inverse * load(job.weight + j) + load(job.bias + j));
    if (normalised == f) write(f, job.normalised_half, i, width, job.normalised);
  }
}

// Some rows' gradients, and what they add to those of weight and bias.
static void backward(const Backward& job, int64_t task, float* scratch) {
  const int64_t width = job.width, line = job.line, last = task * ROWS + ROWS < job.number ? task * ROWS + ROWS : job.number;
  float *unit = scratch, *weighted = scratch + line, *aside = scratch + 2 * line;
  float *dweight = job.sums + 2 * task * line, *dbias = dweight + line;
  memset(dweight, 0, 8 * line);
  for (int64_t i = task * ROWS; i < last; ++i) {
    const float mean = job.statistics[2 * i], inverse = job.statistics[2 * i + 1];
    const float* x = at(job.together, false, i, width, line, unit);
    const float* dy = at(job.dnormalised, job.normalised_half, i, width, line, weighted);
    Vector shift = {}, scale = {};
    for (int64_t j = 0; j < line; j += LANES) {
      const Vector one = (load(x + j) - mean) * inverse, of = load(dy + j), together = of * load(job.weight + j);
      store(unit + j, one);
      store(dweight + j, load(dweight + j) + of * one);
      store(dbias + j, load(dbias + j) + of);
      store(weighted + j, together);
      shift += together, scale += together * one;
    }
    const float by_shift = sum(shift) / width, by_scale = sum(scale) / width;
    float* dx = place(job.dfeatures, false, i, width, line, aside);
    if (job.dtogether) {
      const float* more = at(job.dtogether, false, i, width, line, aside);
      for (int64_t j = 0; j < line; j += LANES)
        store(dx + j, load(more + j) + (load(weighted + j) - by_shift - load(unit + j) * by_scale) * inverse);
    } else {
      for (int64_t j = 0; j < line; j += LANES) store(dx + j, (load(weighted + j) - by_shift - load(unit + j) * by_scale) * inverse);
    }
    if (dx == aside) write(dx, false, i, width, job.dfeatures);
    if (!job.doutput) continue;
    float* doutput = place(job.doutput, job.output_half, i, width, line, aside);
    drop(job.drops, i, line, dx, doutput);
    if (doutput == aside) write(aside, job.output_half, i, width, job.doutput);
  }
}
