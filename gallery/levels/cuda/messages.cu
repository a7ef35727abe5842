// A warp owns a node: 16 lanes for every 128 numbers of its row, all edges one after the other, so no atomics.
#include "common.cuh"

namespace levels {
namespace {

constexpr int WARPS = 4;
constexpr int AHEAD = 4;  // edges whose rows are asked for before the first of them is added

// LANES lanes hold 8 columns each; the warp's 32 / LANES groups take edges in turn and are added in a fixed order.
template <class T, int LANES>
__global__ void __launch_bounds__(32 * WARPS) messages_kernel(const T* x, const int* offsets, const int* sources,
                                                              const T* weights, T* y, int nodes, int width) {
  const int node = blockIdx.x * WARPS + threadIdx.x / 32;
  if (node >= nodes) return;
  constexpr int GROUPS = 32 / LANES;
  const int lane = threadIdx.x % 32, group = lane / LANES;
  const int at = (blockIdx.y * LANES + lane % LANES) * 8;
  const bool aligned = width % 8 == 0;
  const int end = offsets[node + 1];
  float sum[8] = {};
  for (int first = offsets[node] + group; first < end; first += AHEAD * GROUPS) {
    float value[AHEAD][8], weight[AHEAD];
#pragma unroll
    for (int ahead = 0; ahead < AHEAD; ++ahead) {
      const int edge = first + ahead * GROUPS;
      weight[ahead] = edge < end ? as_float(weights[edge]) : 0.0f;
      const long source = edge < end ? sources[edge] : 0;
      load8(x + source * width, at, edge < end ? width : 0, aligned, value[ahead]);
    }
#pragma unroll
    for (int ahead = 0; ahead < AHEAD; ++ahead)
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i] += weight[ahead] * value[ahead][i];
  }
#pragma unroll
  for (int far = LANES; far < 32; far *= 2)
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], far);
  if (group == 0) store8(y + static_cast<long>(node) * width, at, width, aligned, sum);
}

template <class T, int LANES>
void launch(const void* x, const int* offsets, const int* sources, const void* weights, void* y, int nodes, int width,
            cudaStream_t stream) {
  const dim3 blocks((nodes + WARPS - 1) / WARPS, (width + 8 * LANES - 1) / (8 * LANES));
  messages_kernel<T, LANES><<<blocks, 32 * WARPS, 0, stream>>>(static_cast<const T*>(x), offsets, sources,
                                                               static_cast<const T*>(weights), static_cast<T*>(y),
                                                               nodes, width);
}

template <class T>
void choose(const void* x, const int* offsets, const int* sources, const void* weights, void* y, int nodes, int width,
            cudaStream_t stream) {
  const auto fits = width <= 64 ? launch<T, 8> : width <= 128 ? launch<T, 16> : launch<T, 32>;
  fits(x, offsets, sources, weights, y, nodes, width, stream);
}

}  // namespace

void messages(const void* x, const int* offsets, const int* sources, const void* weights, void* y, int nodes, int width,
              bool of_bfloat16, cudaStream_t stream) {
  (of_bfloat16 ? choose<bfloat16> : choose<float>)(x, offsets, sources, weights, y, nodes, width, stream);
}

}  // namespace levels
