// The abilities of the processor, and what the library was compiled from.

#include "processor.h"

#include "native.h"

#if defined(__x86_64__)
#include <cpuid.h>

namespace {

bool bit(unsigned word, int index) { return word >> index & 1; }

Registers ask() {
  unsigned a, b, c, d, enabled = 0, high;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return {};
  const bool fma = bit(c, 12), f16c = bit(c, 29);
  // in assembly: its intrinsic needs -mxsave
  if (bit(c, 27)) asm volatile("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
  const bool ymm = (enabled & 0x6) == 0x6, zmm = (enabled & 0xE6) == 0xE6;
  if (!ymm || !fma || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return {};
  Registers found{};
  found.avx2 = f16c && bit(b, 5);
  // AVX512F, AVX512DQ, AVX512BW, AVX512VL
  found.avx512 = zmm && bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31);
  found.avx512_bf16 = found.avx512 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && bit(a, 5);
  return found;
}

}  // namespace

const Registers& registers() {
  static const Registers found = ask();
  return found;
}
#endif

// The widest registers that this processor has: 2 for AVX-512, 1 for AVX2, 0 for any.
EXPORTED int attent_simd_level() {
#if defined(__x86_64__)
  return registers().avx512 ? 2 : registers().avx2 ? 1 : 0;
#else
  return 0;
#endif
}

// The digest of the C++ sources that the build was given (build_extension.py); without one, the macro's own name.
EXPORTED const char* attent_sources() {
#define QUOTED(text) #text
#define EXPANDED(macro) QUOTED(macro)
  return EXPANDED(ATTENT_SOURCES);
}
