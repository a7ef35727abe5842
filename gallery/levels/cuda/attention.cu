// Eight warps have 16 queries each in registers, and Y of them; keys and values come 64 at a time, one block ahead.
#include "tensor_cores.cuh"

namespace levels {
namespace {

constexpr int QUERIES = 128, KEYS = 64, THREADS = 256;

template <int SIZE>
struct Tiles {
  bfloat16 q[QUERIES * SIZE], k[2][KEYS * SIZE], v[2][KEYS * SIZE];
};

__device__ float largest_of_four(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

__device__ float sum_of_four(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

template <int SIZE, bool CAUSAL>
__global__ void __launch_bounds__(THREADS, SIZE == 64 ? 2 : 1)
    attention_kernel(const bfloat16* q, const bfloat16* k, const bfloat16* v, bfloat16* y, int heads, int tokens,
                     long batch_stride, long token_stride, float factor) {
  extern __shared__ __align__(128) unsigned char shared[];
  Tiles<SIZE>& tiles = *reinterpret_cast<Tiles<SIZE>*>(shared);
  const int head = blockIdx.y % heads, batch = blockIdx.y / heads;
  const int first_query = (gridDim.x - 1 - blockIdx.x) * QUERIES;  // the longest first
  const long begins = batch * batch_stride + head * SIZE;
  const int end = CAUSAL ? min(tokens, first_query + QUERIES) : tokens, steps = (end + KEYS - 1) / KEYS;
  const auto copy = [&](int step) {
    const long from = begins + step * KEYS * token_stride;
    copy_tile<KEYS, SIZE, THREADS>(tiles.k[step % 2], k + from, token_stride, tokens - step * KEYS, SIZE);
    copy_tile<KEYS, SIZE, THREADS>(tiles.v[step % 2], v + from, token_stride, tokens - step * KEYS, SIZE);
    commit_copies();
  };
  copy_tile<QUERIES, SIZE, THREADS>(tiles.q, q + begins + first_query * token_stride, token_stride,
                                    tokens - first_query, SIZE);
  copy(0);
  wait_for_copies<0>();
  __syncthreads();

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned queries[SIZE / 16][4];
#pragma unroll
  for (int d = 0; d < SIZE / 16; ++d)
    load_left<SIZE>(queries[d], tiles.q, warp * 16, d * 2);
  const int query = first_query + warp * 16 + lane / 4;  // and query + 8
  float out[SIZE / 8][4] = {}, largest[2] = {-1e30f, -1e30f}, total[2] = {};

  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) copy(step + 1);
    bfloat16 *keys = tiles.k[step % 2], *values = tiles.v[step % 2];
    float score[KEYS / 8][4] = {};
#pragma unroll
    for (int d = 0; d < SIZE / 16; ++d)
#pragma unroll
      for (int n = 0; n < KEYS / 16; ++n) {
        unsigned right[4];
        load_right<SIZE>(right, keys, n * 16, d * 2);
        multiply(score[2 * n], queries[d], right[0], right[1]);
        multiply(score[2 * n + 1], queries[d], right[2], right[3]);
      }
    const int first_key = step * KEYS;
    if (first_key + KEYS > tokens || (CAUSAL && first_key + KEYS > first_query + warp * 16)) {
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = first_key + n * 8 + lane % 4 * 2 + i % 2;
          if (key >= tokens || (CAUSAL && key > query + i / 2 * 8)) score[n][i] = -INFINITY;
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = score[0][2 * half];
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) most = fmaxf(most, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
      most = fmaxf(largest[half], largest_of_four(most) * factor);
      const float shrunk = exp2f(largest[half] - most);
      largest[half] = most;
      total[half] *= shrunk;
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          score[n][i] = exp2f(score[n][i] * factor - most);
          total[half] += score[n][i];
        }
#pragma unroll
      for (int d = 0; d < SIZE / 8; ++d) out[d][2 * half] *= shrunk, out[d][2 * half + 1] *= shrunk;
    }
    // What a lane has of the scores is what it needs of them as the left operand.
#pragma unroll
    for (int n = 0; n < KEYS / 16; ++n) {
      const unsigned left[4] = {pack(score[2 * n][0], score[2 * n][1]), pack(score[2 * n][2], score[2 * n][3]),
                                pack(score[2 * n + 1][0], score[2 * n + 1][1]),
                                pack(score[2 * n + 1][2], score[2 * n + 1][3])};
#pragma unroll
      for (int d = 0; d < SIZE / 16; ++d) {
        unsigned right[4];
        load_right_upright<SIZE>(right, values, n * 16, d * 2);
        multiply(out[2 * d], left, right[0], right[1]);
        multiply(out[2 * d + 1], left, right[2], right[3]);
      }
    }
    wait_for_copies<0>();
    __syncthreads();
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = query + half * 8;
    const float share = 1.0f / sum_of_four(total[half]);
    if (token >= tokens) continue;
    bfloat16* row = y + ((static_cast<long>(batch) * tokens + token) * heads + head) * SIZE;
#pragma unroll
    for (int d = 0; d < SIZE / 8; ++d)
      *reinterpret_cast<unsigned*>(row + d * 8 + lane % 4 * 2) =
          pack(out[d][2 * half] * share, out[d][2 * half + 1] * share);
  }
}

template <int SIZE>
void launch(const void* q, const void* k, const void* v, void* y, int batch, int heads, int tokens, long batch_stride,
            long token_stride, bool causal, cudaStream_t stream) {
  const auto kernel = causal ? attention_kernel<SIZE, true> : attention_kernel<SIZE, false>;
  constexpr int bytes = sizeof(Tiles<SIZE>);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  const float factor = 1.4426950408889634f * rsqrtf(static_cast<float>(SIZE));
  kernel<<<dim3((tokens + QUERIES - 1) / QUERIES, batch * heads), THREADS, bytes, stream>>>(
      static_cast<const bfloat16*>(q), static_cast<const bfloat16*>(k), static_cast<const bfloat16*>(v),
      static_cast<bfloat16*>(y), heads, tokens, batch_stride, token_stride, factor);
}

}  // namespace

void attention(const void* q, const void* k, const void* v, void* y, int batch, int heads, int tokens, int size,
               long batch_stride, long token_stride, bool causal, cudaStream_t stream) {
  (size == 64 ? launch<64> : launch<128>)(q, k, v, y, batch, heads, tokens, batch_stride, token_stride, causal, stream);
}

}  // namespace levels
