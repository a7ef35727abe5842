// CUDA C++ on a CPU, for tests: a block's threads take turns on one, and give way where they wait for each other.
// Each round the turns go the other way, shared memory begins as NaN, and copies arrive no sooner than they are waited
// for, so that a missing barrier or wait gives another answer.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct float4 {
  float x, y, z, w;
};
struct uint4 {
  unsigned x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline int min(int a, int b) { return a < b ? a : b; }
inline float __fdividef(float x, float y) { return x / y; }
inline float __uint_as_float(unsigned bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

using cudaStream_t = void*;
constexpr int cudaFuncAttributeMaxDynamicSharedMemorySize = 0;
template <class Kernel>
void cudaFuncSetAttribute(Kernel, int, int) {}

namespace cpu {

struct Barrier {
  int arrived = 0, passed = 0;
};

struct Warp {
  Barrier barrier;
  unsigned words[32][6];
  const void* rows[32];
};

struct Copy {
  void* to;
  const void* from;
  bool zeros;
};

struct Thread {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(1 << 17);
  dim3 index;
  bool done;
  std::vector<Copy> begun;
  std::deque<std::vector<Copy>> groups;
};

inline std::deque<Thread> threads;
inline Thread* self;
inline ucontext_t scheduler;
inline std::vector<Warp> warps;
inline Barrier block_barrier;
inline int live;
inline bool moved;
inline dim3 block_index, grid_size;
inline std::function<void()> body;
alignas(128) inline unsigned char dynamic_shared[1 << 18];

inline void wait(Barrier& barrier, int expected) {
  const int passed = barrier.passed;
  if (++barrier.arrived == expected) {
    barrier.arrived = 0, ++barrier.passed, moved = true;
    return;
  }
  while (barrier.passed == passed) swapcontext(&self->context, &scheduler);
}

inline int lane() { return self->index.x % 32; }
inline Warp& warp() { return warps[self->index.x / 32]; }
inline void wait_for_warp() { wait(warp().barrier, 32); }

inline void run_thread() {
  body();
  self->done = moved = true;
  --live;
  swapcontext(&self->context, &scheduler);
}

inline void run_block(unsigned count) {
  while (threads.size() < count) threads.emplace_back();
  warps.assign((count + 31) / 32, Warp());
  block_barrier = Barrier();
  std::memset(dynamic_shared, 0xff, sizeof dynamic_shared);
  for (unsigned i = 0; i < count; ++i) {
    Thread& thread = threads[i];
    thread.index = dim3(i), thread.done = false, thread.begun.clear(), thread.groups.clear();
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.data();
    thread.context.uc_stack.ss_size = thread.stack.size();
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, run_thread, 0);
  }
  live = count;
  for (bool forward = true; live > 0; forward = !forward) {
    moved = false;
    for (unsigned i = 0; i < count; ++i) {
      self = &threads[forward ? i : count - 1 - i];
      if (!self->done) swapcontext(&scheduler, &self->context);
    }
    if (!moved) {
      std::fprintf(stderr, "all threads of a block wait\n");
      std::abort();
    }
  }
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, unsigned count, std::size_t shared, cudaStream_t,
            Arguments... arguments) {
  if (shared > sizeof dynamic_shared) std::abort();
  grid_size = grid;
  body = [=] { kernel(arguments...); };
  for (block_index.y = 0; block_index.y < grid.y; ++block_index.y)
    for (block_index.x = 0; block_index.x < grid.x; ++block_index.x) run_block(count);
}

}  // namespace cpu

#define threadIdx (cpu::self->index)
#define blockIdx cpu::block_index
#define gridDim cpu::grid_size

inline void __syncthreads() { cpu::wait(cpu::block_barrier, cpu::live); }

inline float __shfl_xor_sync(unsigned, float value, int far) {
  std::memcpy(&cpu::warp().words[cpu::lane()][0], &value, sizeof value);
  cpu::wait_for_warp();
  const float found = __uint_as_float(cpu::warp().words[cpu::lane() ^ far][0]);
  cpu::wait_for_warp();
  return found;
}
