// The functions of levels.h under names that ctypes finds.
#include "levels.h"

extern "C" {

void layer_norm(const void* x, const void* weight, const void* bias, void* y, long rows, int width, bool gelu,
                float epsilon, bool bfloat16) {
  levels::layer_norm(x, weight, bias, y, rows, width, gelu, epsilon, bfloat16, nullptr);
}

void linear(const void* x, const void* weight, const void* bias, const void* residual, void* y, int rows, int outputs,
            int inputs, bool gelu) {
  levels::linear(x, weight, bias, residual, y, rows, outputs, inputs, gelu, nullptr);
}

void attention(const void* q, const void* k, const void* v, void* y, int batch, int heads, int tokens, int size,
               long batch_stride, long token_stride, bool causal) {
  levels::attention(q, k, v, y, batch, heads, tokens, size, batch_stride, token_stride, causal, nullptr);
}

void messages(const void* x, const int* offsets, const int* sources, const void* weights, void* y, int nodes, int width,
              bool bfloat16) {
  levels::messages(x, offsets, sources, weights, y, nodes, width, bfloat16, nullptr);
}

void polynomial(const float* x, const float* mean, const float* scale, const float* coefficients,
                const float* intercept, float* y, long rows, int features) {
  levels::polynomial(x, mean, scale, coefficients, intercept, y, rows, features, nullptr);
}
}
