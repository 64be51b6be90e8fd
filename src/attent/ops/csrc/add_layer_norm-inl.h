// The loops of add_layer_norm.cpp for one width of vector registers (LANES floats). foreach_target.h includes this file for each width.
//
// Rows are computed as lines of floats padded to whole registers.

#include "simd.h"

#include "bfloat16.h"

// The sum of all lanes.
static inline float sum(Vector vector) {
  typedef float Four __attribute__((vector_size(16)));
  float numbers[LANES];
  store(numbers, vector);
  Four row_sum = {};
  for (int l = 0; l < LANES; l += 4) {
    Four part;
    memcpy(&part, numbers + l, sizeof part);
    row_sum += part;
  }
  return (row_sum[0] + row_sum[2]) + (row_sum[1] + row_sum[3]);
}

// Read a row of float32 or bfloat16 as a line, padded with zeros.
static void read_line(const void* from, bool is_half, int64_t row, int64_t width, int64_t line, float* to) {
  int64_t j = 0;
  if (is_half) {
    const uint16_t* numbers = static_cast<const uint16_t*>(from) + row * width;
    for (; j + LANES <= width; j += LANES) store(to + j, load(numbers + j));
    uint16_t part[LANES] = {0};
    memcpy(part, numbers + j, 2 * (width - j));
    if (j < width) store(to + j, load(part));
  } else {
    memcpy(to, static_cast<const float*>(from) + row * width, 4 * width);
  }
  for (j = is_half ? (width + LANES - 1) / LANES * LANES : width; j < line; ++j) to[j] = 0;
}

static void write_line(const float* line, bool is_half, int64_t row, int64_t width, void* to) {
  if (is_half) {
    uint16_t* numbers = static_cast<uint16_t*>(to) + row * width;
    int64_t j = 0;
    for (; j + LANES <= width; j += LANES) store(numbers + j, load(line + j));
    if (j == width) return;
    uint16_t part[LANES];
    store(part, load(line + j));
    memcpy(numbers + j, part, 2 * (width - j));
  } else {
    memcpy(static_cast<float*>(to) + row * width, line, 4 * width);
  }
}

// A row as a line: in place if it is float32 and needs no padding, else copied.
static inline const float* line_at(const void* from, bool is_half, int64_t row, int64_t width, int64_t line, float* to) {
  if (!is_half && width == line) return static_cast<const float*>(from) + row * width;
  read_line(from, is_half, row, width, line, to);
  return to;
}

// Memory to compute a line in: the output row itself, or the buffer, to be written later.
static inline float* output_line(void* to, bool is_half, int64_t row, int64_t width, int64_t line, float* buffer) {
  return !is_half && width == line ? static_cast<float*>(to) + row * width : buffer;
}

// Apply dropout to a line; input and output may be the same.
static void drop(const DropoutState& dropout, int64_t row, int64_t line, const float* numbers, float* to) {
  if (!dropout.threshold) {
    for (int64_t j = 0; j < line; j += LANES) store(to + j, load(numbers + j));
    return;
  }
  const uint32_t row_hash = lowbias32(dropout.start + OF_ROW * static_cast<uint32_t>(row));
  for (int64_t j = 0; j < line; j += LANES) {
    Words bits, result;
    memcpy(&bits, dropout.columns + j, sizeof bits);
    bits += row_hash;
    bits = (bits ^ (bits >> 16)) * 0x7FEB352Du;
    bits = (bits ^ (bits >> 15)) * 0x846CA68Bu;
    bits ^= bits >> 16;
    const Vector product = load(numbers + j) * dropout.factor;
    memcpy(&result, &product, sizeof result);
    result &= (Words)(bits >= dropout.threshold);
    memcpy(to + j, &result, sizeof result);
  }
}

// The sum and its normalization for a task's rows.
static void forward(const Forward& job, int64_t task, float* scratch) {
  const int64_t width = job.width, line = job.line, end = task * ROWS + ROWS < job.number ? task * ROWS + ROWS : job.number;
  float *buffer = scratch, *f = scratch + line;
  for (int64_t i = task * ROWS; i < end; ++i) {
    const float* x = line_at(job.features, false, i, width, line, buffer);
    Vector row_sum = {};
    if (job.output) {
      float* total = output_line(job.total, false, i, width, line, buffer);
      read_line(job.output, job.is_output_half, i, width, line, f);
      if (job.dropout.threshold) drop(job.dropout, i, line, f, f);
      for (int64_t j = 0; j < line; j += LANES) {
        const Vector added = load(x + j) + load(f + j);
        store(total + j, added);
        row_sum += added;
      }
      if (total == buffer) write_line(total, false, i, width, job.total);
      x = total;
    } else {
      for (int64_t j = 0; j < line; j += LANES) row_sum += load(x + j);
    }
    const float mean = sum(row_sum) / width;
    // x is the buffer here: pad it with the mean
    if (width < line)
      for (int64_t j = width; j < line; ++j) buffer[j] = mean;
    Vector squares = {};
    for (int64_t j = 0; j < line; j += LANES) {
      const Vector centered = load(x + j) - mean;
      squares += centered * centered;
    }
    const float inverse = 1.0f / std::sqrt(sum(squares) / width + job.epsilon);
    job.statistics[2 * i] = mean, job.statistics[2 * i + 1] = inverse;
    float* normalized = output_line(job.normalized, job.is_normalized_half, i, width, line, f);
    for (int64_t j = 0; j < line; j += LANES)
      store(normalized + j, (load(x + j) - mean) * inverse * load(job.weight + j) + load(job.bias + j));
    if (normalized == f) write_line(f, job.is_normalized_half, i, width, job.normalized);
  }
}

// The gradients of a task's rows, and their part of those of weight and bias.
static void backward(const Backward& job, int64_t task, float* scratch) {
  const int64_t width = job.width, line = job.line, end = task * ROWS + ROWS < job.number ? task * ROWS + ROWS : job.number;
  float *x_hat = scratch, *weighted = scratch + line, *buffer = scratch + 2 * line;
  float *dweight = job.sums + 2 * task * line, *dbias = dweight + line;
  memset(dweight, 0, 8 * line);
  for (int64_t i = task * ROWS; i < end; ++i) {
    const float mean = job.statistics[2 * i], inverse = job.statistics[2 * i + 1];
    const float* x = line_at(job.total, false, i, width, line, x_hat);
    const float* dy = line_at(job.dnormalized, job.is_normalized_half, i, width, line, weighted);
    Vector shift = {}, scale = {};
    for (int64_t j = 0; j < line; j += LANES) {
      const Vector x_hat_j = (load(x + j) - mean) * inverse, dy_j = load(dy + j), total = dy_j * load(job.weight + j);
      store(x_hat + j, x_hat_j);
      store(dweight + j, load(dweight + j) + dy_j * x_hat_j);
      store(dbias + j, load(dbias + j) + dy_j);
      store(weighted + j, total);
      shift += total, scale += total * x_hat_j;
    }
    const float by_shift = sum(shift) / width, by_scale = sum(scale) / width;
    float* dx = output_line(job.dfeatures, false, i, width, line, buffer);
    if (job.dtotal) {
      const float* dtotal_line = line_at(job.dtotal, false, i, width, line, buffer);
      for (int64_t j = 0; j < line; j += LANES)
        store(dx + j, load(dtotal_line + j) + (load(weighted + j) - by_shift - load(x_hat + j) * by_scale) * inverse);
    } else {
      for (int64_t j = 0; j < line; j += LANES) store(dx + j, (load(weighted + j) - by_shift - load(x_hat + j) * by_scale) * inverse);
    }
    if (dx == buffer) write_line(dx, false, i, width, job.dfeatures);
    if (!job.doutput) continue;
    float* doutput = output_line(job.doutput, job.is_output_half, i, width, line, buffer);
    drop(job.dropout, i, line, dx, doutput);
    if (doutput == buffer) write_line(buffer, job.is_output_half, i, width, job.doutput);
  }
}
