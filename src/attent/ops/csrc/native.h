// What the files of the extension share: threads, and which registers the processor has.
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

// What follows is compiled for processors that have these registers, whatever the rest is compiled for.
#if defined(__clang__)
#define FOR_AVX2 _Pragma("clang attribute push(__attribute__((target(\"avx2,fma\"))), apply_to = function)")
#define FOR_AVX512 _Pragma("clang attribute push(__attribute__((target(\"avx512f,avx512dq,avx512bw,avx512vl,fma\"))), apply_to = function)")
#define FOR_ANY _Pragma("clang attribute pop")
#else
#define FOR_AVX2 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma\")")
#define FOR_AVX512 _Pragma("GCC push_options") _Pragma("GCC target(\"avx512f,avx512dq,avx512bw,avx512vl,fma\")")
#define FOR_ANY _Pragma("GCC pop_options")
#endif

// The task for a processor's level, of those that its namespaces hold.
#if defined(__x86_64__)
#define CHOSEN(task, level) ((level) == 2 ? avx512::task : (level) == 1 ? avx2::task : baseline::task)
#else
#define CHOSEN(task, level) ((void)(level), baseline::task)
#endif

using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);

// Each file has a copy of its own.
namespace {

// Memory for as long as a call or a thread of it lasts: a few pieces, aligned to a line of the cache.
struct Memory {
  static constexpr int MOST = 8;
  void* pieces[MOST];
  int count = 0;
  bool failed = false;

  float* ask(int64_t numbers) {
    void* piece = count < MOST ? std::malloc(4 * (numbers + 16) + 64) : nullptr;
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
    float* own = memory.ask(scratch);
    if (memory.failed) failed = true;
    else
      for (int64_t one; (one = next++) < tasks;) task(*job, one, own);
  }
};

// Run by torch's own threads through the entry that OpenMP runtimes share, or by threads made for it where there is none.
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
    for (auto& one : team) one.join();
  }
  return work.failed ? 1 : 0;
}

}  // namespace
