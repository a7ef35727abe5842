// The five functions as operators of torch; Python has checked shapes and types.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <cstdint>
#include <optional>

#include "levels.h"

namespace {

using at::Tensor;

cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream(); }

// A tensor whose rows lie one after the other and begin at a multiple of 16 bytes: what it is, or a copy.
Tensor in_rows(const Tensor& x) {
  const Tensor rows = x.contiguous();
  return reinterpret_cast<std::uintptr_t>(rows.const_data_ptr()) % 16 == 0 ? rows : rows.clone();
}

bool of_bfloat16(const Tensor& x) {
  TORCH_CHECK(x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat, "'x' is ", x.scalar_type(),
              "; float32 and bfloat16 are accepted.");
  return x.scalar_type() == at::kBFloat16;
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, bool gelu, double epsilon) {
  const c10::cuda::CUDAGuard guard(x.device());
  const Tensor rows = in_rows(x), gamma = in_rows(weight), beta = in_rows(bias);
  const int64_t width = x.size(-1);
  TORCH_CHECK(width <= levels::MOST_WIDTH, "Rows of ", width, " numbers are too long; ", levels::MOST_WIDTH,
              " are accepted.");
  Tensor y = at::empty_like(rows);
  if (x.numel() == 0) return y;
  levels::layer_norm(rows.const_data_ptr(), gamma.const_data_ptr(), beta.const_data_ptr(), y.mutable_data_ptr(),
                     x.numel() / width, width, gelu, epsilon, of_bfloat16(x), stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const std::optional<Tensor>& residual,
              bool gelu) {
  const c10::cuda::CUDAGuard guard(x.device());
  const Tensor rows = in_rows(x), w = in_rows(weight), b = in_rows(bias);
  const Tensor other = residual ? in_rows(*residual) : Tensor();
  const int64_t outputs = weight.size(0), inputs = weight.size(1);
  auto shape = x.sizes().vec();
  shape.back() = outputs;
  Tensor y = at::empty(shape, x.options());
  if (y.numel() == 0) return y;
  levels::linear(rows.const_data_ptr(), w.const_data_ptr(), b.const_data_ptr(),
                 residual ? other.const_data_ptr() : nullptr, y.mutable_data_ptr(), y.numel() / outputs, outputs,
                 inputs, gelu, stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

// q, k and v lie alike, a head's numbers side by side and a token's heads too.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  const c10::cuda::CUDAGuard guard(q.device());
  const int64_t batch = q.size(0), heads = q.size(1), tokens = q.size(2), size = q.size(3);
  TORCH_CHECK(size == 64 || size == 128, "Heads of ", size, " are not accepted; 64 or 128 are.");
  Tensor y = at::empty({batch, tokens, heads, size}, q.options());
  if (y.numel() == 0) return y;
  levels::attention(q.const_data_ptr(), k.const_data_ptr(), v.const_data_ptr(), y.mutable_data_ptr(), batch, heads,
                    tokens, size, q.stride(0), q.stride(2), causal, stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

Tensor messages(const Tensor& x, const Tensor& offsets, const Tensor& sources, const Tensor& weights) {
  const c10::cuda::CUDAGuard guard(x.device());
  const Tensor rows = in_rows(x), w = in_rows(weights);
  const Tensor begins = in_rows(offsets), from = in_rows(sources);
  Tensor y = at::empty_like(rows);
  if (x.numel() == 0) return y;
  levels::messages(rows.const_data_ptr(), begins.const_data_ptr<int>(), from.const_data_ptr<int>(), w.const_data_ptr(),
                   y.mutable_data_ptr(), x.size(0), x.size(1), of_bfloat16(x), stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

Tensor polynomial(const Tensor& x, const Tensor& mean, const Tensor& scale, const Tensor& coefficients,
                  const Tensor& intercept) {
  const c10::cuda::CUDAGuard guard(x.device());
  const Tensor rows = in_rows(x), m = in_rows(mean), s = in_rows(scale), c = in_rows(coefficients);
  Tensor y = at::empty({x.size(0)}, x.options());
  if (y.numel() == 0) return y;
  levels::polynomial(rows.const_data_ptr<float>(), m.const_data_ptr<float>(), s.const_data_ptr<float>(),
                     c.const_data_ptr<float>(), intercept.const_data_ptr<float>(), y.mutable_data_ptr<float>(),
                     x.size(0), x.size(1), stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

}  // namespace

TORCH_LIBRARY(gallery_levels, library) {
  library.def("layer_norm", &layer_norm);
  library.def("linear", &linear);
  library.def("attention", &attention);
  library.def("messages", &messages);
  library.def("polynomial", &polynomial);
}
