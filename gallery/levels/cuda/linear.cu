// Tiles of 128 × 128, copied two steps ahead; eight warps make 64 × 32 each, and what follows it while in registers.
#include "tensor_cores.cuh"

namespace levels {
namespace {

constexpr int ROWS = 128, OUTPUTS = 128, INPUTS = 64, STAGES = 3, THREADS = 256, GROUP = 8;
constexpr int WARP_ROWS = 64, WARP_OUTPUTS = 32;

struct Stage {
  bfloat16 x[ROWS * INPUTS], weight[OUTPUTS * INPUTS];
};

template <bool GELU, bool RESIDUAL>
__global__ void __launch_bounds__(THREADS, 2)
    linear_kernel(const bfloat16* x, const bfloat16* weight, const bfloat16* bias, const bfloat16* residual,
                  bfloat16* y, int rows, int outputs, int inputs) {
  extern __shared__ __align__(128) unsigned char shared[];
  Stage* stages = reinterpret_cast<Stage*>(shared);

  // GROUP tiles of rows are made before the next tile of outputs: what they share is then still in L2.
  const int row_tiles = (rows + ROWS - 1) / ROWS, output_tiles = (outputs + OUTPUTS - 1) / OUTPUTS;
  const int group = blockIdx.x / (GROUP * output_tiles), within = blockIdx.x % (GROUP * output_tiles);
  const int height = min(row_tiles - group * GROUP, GROUP);
  const int row = (group * GROUP + within % height) * ROWS, output = within / height * OUTPUTS;

  const bfloat16* x_tile = x + static_cast<long>(row) * inputs;
  const bfloat16* weight_tile = weight + static_cast<long>(output) * inputs;
  const int steps = (inputs + INPUTS - 1) / INPUTS;
  const auto copy = [&](int step) {
    if (step < steps) {
      const int k = step * INPUTS;
      Stage& stage = stages[step % STAGES];
      copy_tile<ROWS, INPUTS, THREADS>(stage.x, x_tile + k, inputs, rows - row, inputs - k);
      copy_tile<OUTPUTS, INPUTS, THREADS>(stage.weight, weight_tile + k, inputs, outputs - output, inputs - k);
    }
    commit_copies();  // an empty group too, so that groups count steps
  };
  for (int step = 0; step < STAGES - 1; ++step) copy(step);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_row = warp / 4 * WARP_ROWS, warp_output = warp % 4 * WARP_OUTPUTS;
  float sum[WARP_ROWS / 16][WARP_OUTPUTS / 8][4] = {};
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<STAGES - 2>();
    __syncthreads();
    copy(step + STAGES - 1);
    Stage& stage = stages[step % STAGES];
#pragma unroll
    for (int k = 0; k < INPUTS / 8; k += 2) {
      unsigned left[WARP_ROWS / 16][4], right[WARP_OUTPUTS / 16][4];
#pragma unroll
      for (int m = 0; m < WARP_ROWS / 16; ++m)
        load_left<INPUTS>(left[m], stage.x, warp_row + m * 16, k);
#pragma unroll
      for (int n = 0; n < WARP_OUTPUTS / 16; ++n)
        load_right<INPUTS>(right[n], stage.weight, warp_output + n * 16, k);
#pragma unroll
      for (int m = 0; m < WARP_ROWS / 16; ++m)
#pragma unroll
        for (int n = 0; n < WARP_OUTPUTS / 8; ++n)
          multiply(sum[m][n], left[m], right[n / 2][n % 2 * 2], right[n / 2][n % 2 * 2 + 1]);
    }
  }

#pragma unroll
  for (int n = 0; n < WARP_OUTPUTS / 8; ++n) {
    const int column = output + warp_output + n * 8 + lane % 4 * 2;
    if (column >= outputs) continue;
    const float low = as_float(bias[column]), high = as_float(bias[column + 1]);
#pragma unroll
    for (int m = 0; m < WARP_ROWS / 16; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = row + warp_row + m * 16 + half * 8 + lane / 4;
        if (at >= rows) continue;
        float first = sum[m][n][2 * half] + low, second = sum[m][n][2 * half + 1] + high;
        if (GELU) first = gelu_of(first), second = gelu_of(second);
        const long place = static_cast<long>(at) * outputs + column;
        if (RESIDUAL) {
          const unsigned pair = *reinterpret_cast<const unsigned*>(residual + place);
          first += __uint_as_float(pair << 16), second += __uint_as_float(pair & 0xffff0000u);
        }
        *reinterpret_cast<unsigned*>(y + place) = pack(first, second);
      }
  }
}

}  // namespace

void linear(const void* x, const void* weight, const void* bias, const void* residual, void* y, int rows, int outputs,
            int inputs, bool gelu, cudaStream_t stream) {
  const auto kernel = gelu ? (residual ? linear_kernel<true, true> : linear_kernel<true, false>)
                           : (residual ? linear_kernel<false, true> : linear_kernel<false, false>);
  constexpr int bytes = STAGES * sizeof(Stage);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  const int tiles = ((rows + ROWS - 1) / ROWS) * ((outputs + OUTPUTS - 1) / OUTPUTS);
  kernel<<<tiles, THREADS, bytes, stream>>>(static_cast<const bfloat16*>(x), static_cast<const bfloat16*>(weight),
                                            static_cast<const bfloat16*>(bias), static_cast<const bfloat16*>(residual),
                                            static_cast<bfloat16*>(y), rows, outputs, inputs);
}

}  // namespace levels
