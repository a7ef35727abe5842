// Tiles of bfloat16 in shared memory, copied while others are multiplied.
#pragma once
#include "ptx.cuh"

namespace levels {

// Where 8 numbers of a row of WIDTH lie: places are swapped by row, so that eight rows at the same place fall into
// different banks.
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
    copy16(place<WIDTH>(tile, row, chunk), inside ? from + row * stride + chunk * 8 : from, !inside);
  }
}

// The left operand of a product: 16 rows from `row` on, 16 columns from chunk `chunk` on.
template <int WIDTH>
__device__ __forceinline__ void load_left(unsigned (&to)[4], bfloat16* tile, int row, int chunk) {
  const int lane = threadIdx.x % 32;
  load_matrices(to, place<WIDTH>(tile, row + lane % 16, chunk + lane / 16));
}

// The right operands of two products side by side, whose columns are 16 rows of the tile: words 0, 1 and words 2, 3.
template <int WIDTH>
__device__ __forceinline__ void load_right(unsigned (&to)[4], bfloat16* tile, int row, int chunk) {
  const int lane = threadIdx.x % 32;
  load_matrices(to, place<WIDTH>(tile, row + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2));
}

// The same where the products' columns are 16 columns of the tile, and its rows are summed over.
template <int WIDTH>
__device__ __forceinline__ void load_right_upright(unsigned (&to)[4], bfloat16* tile, int row, int chunk) {
  const int lane = threadIdx.x % 32;
  load_transposed(to, place<WIDTH>(tile, row + lane % 16, chunk + lane / 16));
}

}  // namespace levels
