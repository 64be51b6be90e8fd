// The registers that the processor has and the operating system saves, for which the functions of some compilers' libraries answer no.
#pragma once

#if defined(__x86_64__)
struct Registers {
  bool avx2, avx512, avx512_bf16;
};

const Registers& registers();
#endif
