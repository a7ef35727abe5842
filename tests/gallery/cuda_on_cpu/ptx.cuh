// The instructions of gallery/levels/cuda/ptx.cuh on a CPU, written after PTX's description of where lanes have what.
#pragma once
#include "common.cuh"

namespace levels {

inline void copy16(void* to, const void* from, bool zeros) { cpu::self->begun.push_back({to, from, zeros}); }

inline void commit_copies() {
  cpu::self->groups.push_back(cpu::self->begun);
  cpu::self->begun.clear();
}

template <int PENDING>
void wait_for_copies() {
  for (; cpu::self->groups.size() > PENDING; cpu::self->groups.pop_front())
    for (const cpu::Copy& copy : cpu::self->groups.front())
      copy.zeros ? std::memset(copy.to, 0, 16) : std::memcpy(copy.to, copy.from, 16);
}

inline void load_matrices(unsigned (&to)[4], const bfloat16* row) {
  cpu::Warp& warp = cpu::warp();
  const int lane = cpu::lane();
  warp.rows[lane] = row;
  cpu::wait_for_warp();
  for (int m = 0; m < 4; ++m)
    std::memcpy(&to[m], static_cast<const bfloat16*>(warp.rows[8 * m + lane / 4]) + lane % 4 * 2, 4);
  cpu::wait_for_warp();
}

inline void load_transposed(unsigned (&to)[4], const bfloat16* row) {
  cpu::Warp& warp = cpu::warp();
  const int lane = cpu::lane();
  warp.rows[lane] = row;
  cpu::wait_for_warp();
  for (int m = 0; m < 4; ++m) {
    bfloat16 pair[2];
    for (int i = 0; i < 2; ++i) pair[i] = static_cast<const bfloat16*>(warp.rows[8 * m + lane % 4 * 2 + i])[lane / 4];
    std::memcpy(&to[m], pair, 4);
  }
  cpu::wait_for_warp();
}

inline void multiply(float (&sum)[4], const unsigned (&left)[4], unsigned right, unsigned right_high) {
  cpu::Warp& warp = cpu::warp();
  const int lane = cpu::lane();
  std::memcpy(warp.words[lane], left, sizeof left);
  warp.words[lane][4] = right, warp.words[lane][5] = right_high;
  cpu::wait_for_warp();
  const auto half = [](unsigned pair, int i) { return __uint_as_float(i % 2 ? pair & 0xffff0000u : pair << 16); };
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k)
      sum[i] += half(warp.words[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k) *
                half(warp.words[column * 4 + k % 8 / 2][4 + k / 8], k);
  }
  cpu::wait_for_warp();
}

}  // namespace levels
