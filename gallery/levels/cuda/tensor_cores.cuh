// Tiles of bfloat16 in shared memory, and the products of 16 × 8 × 16 that a warp makes of them (compute capability 8.0).
#pragma once
#include "common.cuh"

namespace levels {

// Where 8 numbers of a row of WIDTH lie. Eight rows at the same place fall into different banks: places are swapped by row.
template <int WIDTH>
__device__ __forceinline__ bfloat16* place(bfloat16* tile, int row, int chunk) {
  return tile + row * WIDTH + (chunk ^ (row & 7)) * 8;
}

// Begins to copy TILE_ROWS rows of WIDTH numbers, `stride` apart, with zeros from row `rows` and column `columns` on.
template <int TILE_ROWS, int WIDTH, int THREADS>
__device__ __forceinline__ void copy_tile(bfloat16* tile, const bfloat16* from, long stride, int rows, int columns) {
  constexpr int CHUNKS = WIDTH / 8;
  static_assert(TILE_ROWS * CHUNKS % THREADS == 0, "every thread copies as much");
#pragma unroll
  for (int i = 0; i < TILE_ROWS * CHUNKS / THREADS; ++i) {
    const int number = i * THREADS + threadIdx.x, row = number / CHUNKS, chunk = number % CHUNKS;
    const bool inside = row < rows && chunk * 8 < columns;
    const unsigned to = __cvta_generic_to_shared(place<WIDTH>(tile, row, chunk));
    const bfloat16* source = inside ? from + row * stride + chunk * 8 : from;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(source), "r"(inside ? 16 : 0) : "memory");
  }
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the last PENDING groups of copies of this thread are done.
template <int PENDING>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Four matrices of 8 × 8; a lane gives the address of one row of one of them. Left operand: 16 rows × 16 columns, lane l
// gives row l % 16 and chunk l / 16. Right operand, whose rows are columns of the product: row l / 16 · 8 + l % 8, chunk
// l / 8 % 2; the first two numbers belong to the first 8 columns of the product.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], const bfloat16* row) {
  const unsigned from = __cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

// The same, each matrix transposed: a right operand whose rows are the summed index, addressed as a left one.
__device__ __forceinline__ void load_transposed(unsigned (&to)[4], const bfloat16* row) {
  const unsigned from = __cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

// sum[16 × 8] += left[16 × 16] right[16 × 8]: lane l has rows l / 4 (first two) and l / 4 + 8, columns 2 · (l % 4) and + 1.
__device__ __forceinline__ void multiply(float (&sum)[4], const unsigned (&left)[4], unsigned right, unsigned right_high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right), "r"(right_high));
}

}  // namespace levels
