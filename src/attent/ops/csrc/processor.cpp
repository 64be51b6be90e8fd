// The abilities of the processor, and what the library was compiled from.

#include "native.h"

#if defined(__x86_64__)
#include <cpuid.h>

namespace {

// Whether the processor converts float16 (F16C), which some compilers cannot ask by name.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

}  // namespace
#endif

// The widest registers that this processor has: 2 for AVX-512, 1 for AVX2, 0 for any.
EXPORTED int attent_simd_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
    return 2;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) return 1;
#endif
  return 0;
}

// The digest of the C++ sources that the build was given (build_extension.py); without one, the macro's own name.
EXPORTED const char* attent_sources() {
#define QUOTED(text) #text
#define EXPANDED(macro) QUOTED(macro)
  return EXPANDED(ATTENT_SOURCES);
}
