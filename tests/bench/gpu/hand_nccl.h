#pragma once

#include <cstdint>

namespace weft::bench {

// Seconds an iteration takes that does by hand, with bare calls of CUDA and NCCL, what `overlap` does with daemons over nccl: three
// processes make F16[rows, rows] values and send them, a fourth receives each and squares it; a communicator for each sender, one stream for
// the receives and one for the products, two slots a value, four iterations ahead. Forks (see RunBare). Throws with words.
double HandNcclPeriod(int64_t rows, int warm, int iterations);

}  // namespace weft::bench
