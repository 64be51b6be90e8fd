// The loops of dropout.cpp for one width of vector registers (LANES floats). foreach_target.h includes this file for each width.

// The mask of a task's rows.
static void mask_rows(const MaskProblem& job, int64_t task, float*) {
  const int64_t end = task * ROWS + ROWS < job.number ? task * ROWS + ROWS : job.number;
  for (int64_t i = task * ROWS; i < end; ++i) {
    const uint32_t row = job.rows[i], threshold = job.threshold;
    const uint32_t* __restrict columns = job.columns;
    uint8_t* __restrict mask = job.mask + i * job.width;
    for (int64_t j = 0; j < job.width; ++j) mask[j] = is_kept(row, columns[j], threshold);
  }
}

// The weights of a task's rows.
static void dropout_rows(const DropoutProblem& job, int64_t task, float*) {
  const int64_t end = task * ROWS + ROWS < job.number ? task * ROWS + ROWS : job.number;
  for (int64_t i = task * ROWS; i < end; ++i) {
    const uint32_t row = job.rows[i], threshold = job.threshold, *columns = job.columns;
    const float factor = job.factor, *input = job.input + i * job.width;
    float* output = job.output + i * job.width;
    // elements are independent, even if output and input are the same array
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#elif defined(__GNUC__)
#pragma GCC ivdep
#endif
    for (int64_t j = 0; j < job.width; ++j) {
      const float scale = is_kept(row, columns[j], threshold) ? factor : 0.0f;
      output[j] = input[j] * scale;
    }
  }
}
