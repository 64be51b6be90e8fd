// Include the file LOOPS once for each width of vector registers (LANES floats), in its own namespace and for that compiler target.

namespace baseline {
#define LANES 4
#include LOOPS
#undef LANES
}  // namespace baseline

#if defined(__x86_64__)
FOR_AVX2
namespace avx2 {
#define LANES 8
#include LOOPS
#undef LANES
}  // namespace avx2
END_TARGET
FOR_AVX512
namespace avx512 {
#define LANES 16
#include LOOPS
#undef LANES
}  // namespace avx512
END_TARGET
#endif
