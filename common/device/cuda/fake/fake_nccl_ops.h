#pragma once

// What one fused group of calls on a communicator of FakeNccl does when its turn on the stream comes.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/device/cuda/fake/fake_cuda.h"
#include "common/device/cuda/fake/fake_nccl_mesh.h"

namespace weft {

struct FakeNcclOp {
  enum Kind { kSend, kRecv, kAllReduce, kAllGather, kReduceScatter, kBroadcast };
  Kind kind;
  const void* from;  // all but kRecv
  void* to;          // all but kSend
  size_t count;      // of one rank, as NCCL's calls take it
  int type, op;      // NcclType, NcclOp
  int peer;          // kSend, kRecv: the other end; kBroadcast: the root
};

// Bytes of an element; 0: no such type.
size_t NcclTypeSize(int type);
const char* FakeNcclName(FakeNcclOp::Kind kind);
// Bytes that rank `rank` reads and writes.
uint64_t FakeNcclReads(const FakeNcclOp& op, int rank, int ranks);
uint64_t FakeNcclWrites(const FakeNcclOp& op, int rank, int ranks);

// Runs on a stream of `cuda`; the same ops may run again. Sums are made in the order of ranks, as common/tensor/combine.h does.
void RunFakeNccl(FakeCuda* cuda, FakeNcclMesh* mesh, const std::vector<FakeNcclOp>& ops);

}  // namespace weft
