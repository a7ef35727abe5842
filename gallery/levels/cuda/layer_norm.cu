// A warp has a row in its registers, 8 numbers a lane and chunk: no shared memory, nothing to wait for but shuffles.
#include "common.cuh"

namespace levels {
namespace {

constexpr int WARPS = 4;

__device__ float sum_of_warp(float value) {
#pragma unroll
  for (int far = 16; far > 0; far /= 2) value += __shfl_xor_sync(0xffffffffu, value, far);
  return value;
}

template <class T, int CHUNKS, bool GELU>
__global__ void __launch_bounds__(32 * WARPS) layer_norm_kernel(const T* x, const T* weight, const T* bias, T* y,
                                                                long rows, int width, float epsilon) {
  const long row = blockIdx.x * static_cast<long>(WARPS) + threadIdx.x / 32;
  if (row >= rows) return;
  const int lane = threadIdx.x % 32;
  const bool aligned = width % 8 == 0;
  float value[CHUNKS][8];
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    load8(x + row * width, (c * 32 + lane) * 8, width, aligned, value[c]);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += value[c][i];
  }
  const float mean = sum_of_warp(sum) / width;
  float squares = 0.0f;
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float centred = value[c][i] - mean;
      if ((c * 32 + lane) * 8 + i < width) squares += centred * centred;
    }
  const float factor = rsqrtf(sum_of_warp(squares) / width + epsilon);
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    const int at = (c * 32 + lane) * 8;
    float gamma[8], beta[8];
    load8(weight, at, width, aligned, gamma);
    load8(bias, at, width, aligned, beta);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float normal = (value[c][i] - mean) * factor * gamma[i] + beta[i];
      value[c][i] = GELU ? gelu_of(normal) : normal;
    }
    store8(y + row * width, at, width, aligned, value[c]);
  }
}

template <class T, int CHUNKS>
void launch(const void* x, const void* weight, const void* bias, void* y, long rows, int width, bool gelu,
            float epsilon, cudaStream_t stream) {
  const auto kernel = gelu ? layer_norm_kernel<T, CHUNKS, true> : layer_norm_kernel<T, CHUNKS, false>;
  kernel<<<(rows + WARPS - 1) / WARPS, 32 * WARPS, 0, stream>>>(
      static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<const T*>(bias), static_cast<T*>(y), rows,
      width, epsilon);
}

template <class T>
void choose(const void* x, const void* weight, const void* bias, void* y, long rows, int width, bool gelu,
            float epsilon, cudaStream_t stream) {
  const auto fits = width <= 256    ? launch<T, 1>
                    : width <= 1024 ? launch<T, 4>
                                    : launch<T, MOST_WIDTH / 256>;
  fits(x, weight, bias, y, rows, width, gelu, epsilon, stream);
}

}  // namespace

void layer_norm(const void* x, const void* weight, const void* bias, void* y, long rows, int width, bool gelu,
                float epsilon, bool of_bfloat16, cudaStream_t stream) {
  (of_bfloat16 ? choose<bfloat16> : choose<float>)(x, weight, bias, y, rows, width, gelu, epsilon, stream);
}

}  // namespace levels
