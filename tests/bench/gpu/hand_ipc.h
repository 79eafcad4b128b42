#pragma once

#include <cstdint>

namespace weft::bench {

// Seconds an iteration takes that does by hand, with bare CUDA calls, what `overlap` does with daemons over ipc: three processes make F16[rows, rows]
// values, a fourth copies each out of their memory and squares it; flags in shared memory, two slots a value, four iterations ahead. Forks (see
// RunBare). Throws with words.
double HandIpcPeriod(int64_t rows, int warm, int iterations);

}  // namespace weft::bench
