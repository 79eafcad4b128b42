#pragma once

// Numbers that depend on their coordinates alone, not on who draws them when: the same on every worker, in any order, and easy to
// compute again elsewhere.

#include <cstdint>

namespace weft {

// The finaliser of splitmix64: a bijection of 64 bits in which every input bit moves every output bit.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// 64 bits for element `index` of stream `stream` under `seed`: Mix64(Mix64(Mix64(seed) + stream) + index).
constexpr uint64_t CounterBits(uint64_t seed, uint64_t stream, uint64_t index) {
  return Mix64(Mix64(Mix64(seed) + stream) + index);
}

// Uniform in [0, 1): the top 53 bits.
constexpr double UniformDouble(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }
// Uniform in [0, 1) as a float: the top 24 bits.
constexpr float UniformFloat(uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-24f; }

}  // namespace weft
