// Shared by all files of the library: threads, memory and the choice of the processor's vector registers.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#if defined(_WIN32)
#define EXPORTED extern "C" __declspec(dllexport)
#else
#define EXPORTED extern "C" __attribute__((visibility("default")))
#endif

// Compile the code up to END_TARGET for processors with these registers, whatever the rest is compiled for.
#if defined(__clang__)
#define FOR_AVX2 _Pragma("clang attribute push(__attribute__((target(\"avx2,fma,f16c\"))), apply_to = function)")
#define FOR_AVX512 _Pragma("clang attribute push(__attribute__((target(\"avx512f,avx512dq,avx512bw,avx512vl,fma\"))), apply_to = function)")
#define FOR_AVX512_BF16 \
  _Pragma("clang attribute push(__attribute__((target(\"avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,fma\"))), apply_to = function)")
#define END_TARGET _Pragma("clang attribute pop")
#else
#define FOR_AVX2 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma,f16c\")")
#define FOR_AVX512 _Pragma("GCC push_options") _Pragma("GCC target(\"avx512f,avx512dq,avx512bw,avx512vl,fma\")")
#define FOR_AVX512_BF16 \
  _Pragma("GCC push_options") _Pragma("GCC target(\"avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,fma\")")
#define END_TARGET _Pragma("GCC pop_options")
#endif

// The version of a task for a SIMD level: 2 for AVX-512, 1 for AVX2, 0 for the baseline.
#if defined(__x86_64__)
#define DISPATCH(task, level) ((level) == 2 ? avx512::task : (level) == 1 ? avx2::task : baseline::task)
#else
#define DISPATCH(task, level) ((void)(level), baseline::task)
#endif

// In processor.cpp and linear.cpp.
EXPORTED int attent_simd_level();
EXPORTED int attent_has_amx();

using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);

// Anonymous: each file has its own copy.
namespace {

// Owns a few pieces of memory, aligned to cache lines, for the length of a call or of a thread's part in it.
struct Memory {
  static constexpr int MAX_PIECES = 8;
  void* pieces[MAX_PIECES];
  int count = 0;
  bool failed = false;

  float* allocate(int64_t numbers) {
    void* piece = count < MAX_PIECES ? std::malloc(4 * (numbers + 16) + 64) : nullptr;
    if (!piece) {
      failed = true;
      return nullptr;
    }
    pieces[count++] = piece;
    return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(piece) + 63) & ~uintptr_t{63});
  }
  ~Memory() {
    for (int i = 0; i < count; ++i) std::free(pieces[i]);
  }
};

template <typename Job>
struct Work {
  const Job* job;
  void (*task)(const Job&, int64_t, float*);
  int64_t tasks, scratch;
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};

  void take() {
    Memory memory;
    float* buffer = memory.allocate(scratch);
    if (memory.failed) failed = true;
    else
      for (int64_t index; (index = next++) < tasks;) task(*job, index, buffer);
  }
};

// Run tasks on torch's own threads, through the entry point that OpenMP runtimes share; without it, on new threads.
template <typename Job>
int run(const Job& job, void (*task)(const Job&, int64_t, float*), int64_t tasks, int64_t scratch, int64_t threads, Parallel parallel) {
  Work<Job> work{&job, task, tasks, scratch};
  if (threads > tasks) threads = tasks;
  if (threads <= 1) {
    work.take();
  } else if (parallel) {
    parallel([](void* of) { static_cast<Work<Job>*>(of)->take(); }, &work, static_cast<unsigned>(threads), 0);
  } else {
    std::vector<std::thread> team;
    for (int64_t i = 1; i < threads; ++i) team.emplace_back([&work] { work.take(); });
    work.take();
    for (auto& index : team) index.join();
  }
  return work.failed ? 1 : 0;
}

}  // namespace
