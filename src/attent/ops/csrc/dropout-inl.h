// The loops of dropout.cpp, included once for each width of vector registers, inside a namespace of its own and under that width's
// compiler target.

// Some rows' bits.
static void keep(const Kept& job, int64_t task, float*) {
  const int64_t last = task * ROWS + ROWS < job.number ? task * ROWS + ROWS : job.number;
  for (int64_t i = task * ROWS; i < last; ++i) {
    const uint32_t row = job.rows[i], threshold = job.threshold;
    const uint32_t* __restrict columns = job.columns;
    uint8_t* __restrict kept = job.kept + i * job.width;
    for (int64_t j = 0; j < job.width; ++j) kept[j] = stays(row, columns[j], threshold);
  }
}

// Some rows' weights.
static void drop(const Dropped& job, int64_t task, float*) {
  const int64_t last = task * ROWS + ROWS < job.number ? task * ROWS + ROWS : job.number;
  for (int64_t i = task * ROWS; i < last; ++i) {
    const uint32_t row = job.rows[i], threshold = job.threshold, *columns = job.columns;
    const float factor = job.factor, *from = job.from + i * job.width;
    float* to = job.to + i * job.width;
    // no number depends on the one before, even where the weights are written over
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#elif defined(__GNUC__)
#pragma GCC ivdep
#endif
    for (int64_t j = 0; j < job.width; ++j) {
      const float times = stays(row, columns[j], threshold) ? factor : 0.0f;
      to[j] = from[j] * times;
    }
  }
}
