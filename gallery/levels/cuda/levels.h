// What the .cu files offer to binding.cpp, and nothing of torch: they compile alone.
#pragma once
#include <cuda_runtime.h>

namespace levels {

// y[rows, width] = GELU or not of the normalised rows of x; width is at most MOST_WIDTH. bfloat16 or float32.
constexpr int MOST_WIDTH = 4096;
void layer_norm(const void* x, const void* weight, const void* bias, void* y, long rows, int width, bool gelu,
                float epsilon, bool bfloat16, cudaStream_t stream);

// y[rows, outputs] = GELU or not of x[rows, inputs] weight[outputs, inputs]ᵀ + bias, + residual unless null. bfloat16.
void linear(const void* x, const void* weight, const void* bias, const void* residual, void* y, int rows, int outputs,
            int inputs, bool gelu, cudaStream_t stream);

// y[batch, tokens, heads, size] from q, k, v [batch, heads, tokens, size] of these strides. bfloat16, size 64 or 128.
void attention(const void* q, const void* k, const void* v, void* y, int batch, int heads, int tokens, int size,
               long batch_stride, long token_stride, bool causal, cudaStream_t stream);

// y[nodes, width]: the sum of weights[e] · x[sources[e]] over offsets[i] ≤ e < offsets[i + 1]. bfloat16 or float32.
void messages(const void* x, const int* offsets, const int* sources, const void* weights, void* y, int nodes, int width,
              bool bfloat16, cudaStream_t stream);

// y[rows] of x[rows, features], features at most 64. float32.
void polynomial(const float* x, const float* mean, const float* scale, const float* coefficients,
                const float* intercept, float* y, long rows, int features, cudaStream_t stream);

}  // namespace levels
