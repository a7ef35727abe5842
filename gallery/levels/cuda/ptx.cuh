// The instructions of the GPU that C++ has no words for, each a function (PTX ISA 8, compute capability 8.0).
#pragma once
#include "common.cuh"

namespace levels {

// Begins to copy 16 bytes into shared memory, or zeros; `from` is not read for zeros.
__device__ __forceinline__ void copy16(void* to, const void* from, bool zeros) {
  const unsigned shared = __cvta_generic_to_shared(to);
  const int bytes = zeros ? 0 : 16;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the last PENDING groups of copies of this thread are done.
template <int PENDING>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Four matrices of 8 × 8 for a warp: lane 8 m + r gives where row r of matrix m is, and gets of each matrix the numbers
// 2 (l % 4) and + 1 of row l / 4.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], const bfloat16* row) {
  const unsigned from = __cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

// The same, but lane l gets the numbers l / 4 of rows 2 (l % 4) and + 1.
__device__ __forceinline__ void load_transposed(unsigned (&to)[4], const bfloat16* row) {
  const unsigned from = __cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

// sum[16 × 8] += left[16 × 16] right[16 × 8]: lane l has rows l / 4 (first two) and l / 4 + 8 of the sum, and of these
// the columns 2 (l % 4) and + 1.
__device__ __forceinline__ void multiply(float (&sum)[4], const unsigned (&left)[4], unsigned right,
                                         unsigned right_high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right), "r"(right_high));
}

}  // namespace levels
