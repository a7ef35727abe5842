// A thread has a row in its registers; coefficients are in shared memory, where all threads read the same one at once.
#include "common.cuh"

namespace levels {
namespace {

constexpr int THREADS = 128;

// FEATURES is a power of two; features beyond `features` have coefficients of zero.
template <int FEATURES>
__global__ void __launch_bounds__(THREADS) polynomial_kernel(const float* x, const float* mean, const float* scale,
                                                             const float* coefficients, const float* intercept,
                                                             float* y, long rows, int features) {
  __shared__ __align__(16) float form[FEATURES][FEATURES];  // row i has c(i, j), zero for j < i
  __shared__ float linear[FEATURES], middle[FEATURES], factor[FEATURES];
  for (int k = threadIdx.x; k < FEATURES * FEATURES; k += THREADS) {
    const int i = k / FEATURES, j = k % FEATURES;
    const int at = features + i * features - i * (i - 1) / 2 + j - i;
    form[i][j] = i <= j && j < features ? coefficients[at] : 0.0f;
  }
  for (int i = threadIdx.x; i < FEATURES; i += THREADS) {
    linear[i] = i < features ? coefficients[i] : 0.0f;
    middle[i] = i < features ? mean[i] : 0.0f;
    factor[i] = i < features ? 1.0f / scale[i] : 0.0f;
  }
  __syncthreads();
  const float constant = *intercept;
  const bool aligned = features % 8 == 0;
  for (long row = blockIdx.x * static_cast<long>(THREADS) + threadIdx.x; row < rows;
       row += gridDim.x * static_cast<long>(THREADS)) {
    float z[FEATURES];
#pragma unroll
    for (int first = 0; first < FEATURES; first += 8) {
      float eight[8];
      load8(x + row * features, first, features, aligned, eight);
#pragma unroll
      for (int i = 0; i < 8; ++i) z[first + i] = (eight[i] - middle[first + i]) * factor[first + i];
    }
    asm volatile("" ::: "memory");  // else all coefficients are read before the loop, and registers overflow
    float total = constant;
#pragma unroll
    for (int i = 0; i < FEATURES; ++i) {
      float inner = linear[i];
#pragma unroll
      for (int first = i / 4 * 4; first < FEATURES; first += 4) {
        const float4 four = *reinterpret_cast<const float4*>(&form[i][first]);
        inner += four.x * z[first] + four.y * z[first + 1] + four.z * z[first + 2] + four.w * z[first + 3];
      }
      total += z[i] * inner;
    }
    y[row] = total;
  }
}

template <int FEATURES>
void launch(const float* x, const float* mean, const float* scale, const float* coefficients, const float* intercept,
            float* y, long rows, int features, cudaStream_t stream) {
  const long blocks = (rows + THREADS - 1) / THREADS;
  const int most = 2048;  // each fills its shared memory once
  polynomial_kernel<FEATURES><<<blocks < most ? blocks : most, THREADS, 0, stream>>>(
      x, mean, scale, coefficients, intercept, y, rows, features);
}

}  // namespace

void polynomial(const float* x, const float* mean, const float* scale, const float* coefficients,
                const float* intercept, float* y, long rows, int features, cudaStream_t stream) {
  const auto fits = features <= 16 ? launch<16> : features <= 32 ? launch<32> : launch<64>;
  fits(x, mean, scale, coefficients, intercept, y, rows, features, stream);
}

}  // namespace levels
