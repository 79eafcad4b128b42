#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace weft::bench {

// What bare calls take between process 0 and process 1, each on its own GPU where there are two, by size in bytes. They fork (see RunBare).
// Wrong data is a failure.
struct BareTimes {
  std::map<uint64_t, double> seconds;  // of all sizes, or, after a failure, of those that were measured before
  std::string problem;                 // the failure
};

// Seconds a transfer takes, many enqueued, by ncclSend and ncclRecv from 0 to 1.
BareTimes BareNcclTransfers(const std::vector<uint64_t>& sizes);
// Seconds of cudaMemcpyAsync into 1 out of 0's memory, opened through CUDA IPC; many enqueued.
BareTimes BareIpcCopies(const std::vector<uint64_t>& sizes);
// Seconds a hop takes of a value that goes back and forth over NCCL, with a small kernel after each: the difference of a chain of `many` hops
// and one of `few` (both even). Launched call by call, with one stream or with streams as weft's lanes, whichever is faster; with `captured` as
// CUDA graphs.
BareTimes BareNcclHops(const std::vector<uint64_t>& sizes, bool captured, int few, int many);

}  // namespace weft::bench
