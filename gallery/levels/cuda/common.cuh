// Eight numbers at a time: 16 bytes of bfloat16, 32 of float32, as floats in registers.
#pragma once
#include <cuda_bf16.h>

#include "levels.h"

namespace levels {

using bfloat16 = __nv_bfloat16;

__device__ __forceinline__ float as_float(float x) { return x; }
__device__ __forceinline__ float as_float(bfloat16 x) { return __bfloat162float(x); }

__device__ __forceinline__ void put(float* to, float x) { *to = x; }
__device__ __forceinline__ void put(bfloat16* to, float x) { *to = __float2bfloat16(x); }

// x Φ(x) to 2e-6: Φ(t) - 1/2 = t p(t²) / q(t²) for |t| <= 5, as in gallery/levels/layer_norm.py.
__device__ __forceinline__ float gelu_of(float x) {
  const float t = fminf(fmaxf(x, -5.0f), 5.0f), s = t * t;
  float p = 4.41221275e-06f - 1.41188227e-08f * s;
  p = 0.00555007486f + s * (0.000330587991f + s * p);
  p = 0.398941953f + s * (0.0525954077f + s * p);
  float q = 0.00277869968f + 0.000110815697f * s;
  q = 1.0f + s * (0.298498318f + s * (0.0386721381f + s * q));
  return x * (0.5f + t * __fdividef(p, q));
}

__device__ __forceinline__ void load8(const float* from, float (&to)[8]) {
  const float4 low = reinterpret_cast<const float4*>(from)[0], high = reinterpret_cast<const float4*>(from)[1];
  to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
  to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}

__device__ __forceinline__ void load8(const bfloat16* from, float (&to)[8]) {
  const uint4 bits = *reinterpret_cast<const uint4*>(from);
  const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __uint_as_float(words[i] << 16);
    to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

__device__ __forceinline__ unsigned pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}

__device__ __forceinline__ void store8(float* to, const float (&from)[8]) {
  reinterpret_cast<float4*>(to)[0] = make_float4(from[0], from[1], from[2], from[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(from[4], from[5], from[6], from[7]);
}

__device__ __forceinline__ void store8(bfloat16* to, const float (&from)[8]) {
  *reinterpret_cast<uint4*>(to) =
      make_uint4(pack(from[0], from[1]), pack(from[2], from[3]), pack(from[4], from[5]), pack(from[6], from[7]));
}

// The numbers from `at` on of a row that has `width`, zeros beyond it; `aligned` says that width is a multiple of 8.
template <class T>
__device__ __forceinline__ void load8(const T* row, int at, int width, bool aligned, float (&to)[8]) {
  if (aligned && at < width) {
    load8(row + at, to);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i] = at + i < width ? as_float(row[at + i]) : 0.0f;
}

template <class T>
__device__ __forceinline__ void store8(T* row, int at, int width, bool aligned, const float (&from)[8]) {
  if (aligned && at < width) {
    store8(row + at, from);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (at + i < width) put(row + at + i, from[i]);
}

}  // namespace levels
