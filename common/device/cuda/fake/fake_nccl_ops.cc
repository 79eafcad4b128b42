#include "common/device/cuda/fake/fake_nccl_ops.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>

#include "common/device/cuda/api/nccl_api.h"
#include "common/tensor/combine.h"

namespace weft {
namespace {

DType ToDType(int type) {
  switch (type) {
    case kNcclInt8: return v1::I8;
    case kNcclUint8: return v1::U8;
    case kNcclInt32: return v1::I32;
    case kNcclInt64: return v1::I64;
    case kNcclFloat16: return v1::F16;
    case kNcclFloat32: return v1::F32;
    case kNcclFloat64: return v1::F64;
    case kNcclBfloat16: return v1::BF16;
    default: return v1::DTYPE_UNSPECIFIED;
  }
}

v1::ReduceOp ToReduce(int op) {
  switch (op) {
    case kNcclProd: return v1::PROD;
    case kNcclMax: return v1::MAX;
    case kNcclMin: return v1::MIN;
    default: return v1::SUM;
  }
}

// Types that weft's tensors do not have.
template <typename T>
void CombineUnsigned(int op, const std::vector<const void*>& inputs, void* out, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    T acc = static_cast<const T*>(inputs[0])[i];
    for (size_t a = 1; a < inputs.size(); ++a) {
      const T x = static_cast<const T*>(inputs[a])[i];
      switch (op) {
        case kNcclProd: acc *= x; break;
        case kNcclMax: acc = std::max(acc, x); break;
        case kNcclMin: acc = std::min(acc, x); break;
        default: acc += x; break;
      }
    }
    static_cast<T*>(out)[i] = acc;
  }
}

void CombineAll(int type, int op, const std::vector<const void*>& inputs, void* out, size_t n) {
  if (type == kNcclUint32) return CombineUnsigned<uint32_t>(op, inputs, out, n);
  if (type == kNcclUint64) return CombineUnsigned<uint64_t>(op, inputs, out, n);
  const absl::Status s = Combine(ToDType(type), ToReduce(op), inputs, out, static_cast<int64_t>(n));
  if (!s.ok()) std::fprintf(stderr, "fake NCCL: %s\n", std::string(s.message()).c_str());  // the call has checked both
}

bool Reduces(FakeNcclOp::Kind kind) { return kind == FakeNcclOp::kAllReduce || kind == FakeNcclOp::kReduceScatter; }

// Both ends of a transfer must say the same. Sends and receives care for bytes only.
uint64_t Signature(const FakeNcclOp& op) {
  if (op.kind == FakeNcclOp::kSend || op.kind == FakeNcclOp::kRecv) return 1;
  const uint64_t reduce = Reduces(op.kind) ? static_cast<uint64_t>(op.op) << 16 : 0;
  return 2 + op.kind + (static_cast<uint64_t>(op.type) << 8) + reduce;
}

// One run of one group.
class Work {
 public:
  Work(FakeCuda* cuda, FakeNcclMesh* mesh) : cuda_(cuda), mesh_(mesh), me_(mesh->rank()), ranks_(mesh->ranks()) {}

  void Add(const FakeNcclOp& op) {
    const uint64_t bytes = op.count * NcclTypeSize(op.type);
    char* const from = static_cast<char*>(const_cast<void*>(op.from));
    char* const to = static_cast<char*>(op.to);
    switch (op.kind) {
      case FakeNcclOp::kSend:
        if (op.peer == me_) {
          own_sends_.push_back(from);
        } else {
          Transfer(op, true, op.peer, from, bytes);
        }
        break;
      case FakeNcclOp::kRecv:
        if (op.peer == me_) {
          own_recvs_.push_back({to, bytes});
        } else {
          Transfer(op, false, op.peer, to, bytes);
        }
        break;
      case FakeNcclOp::kAllReduce:
      case FakeNcclOp::kReduceScatter: {
        const bool scatter = op.kind == FakeNcclOp::kReduceScatter;
        Combined c{op, {}};
        for (int r = 0; r < ranks_; ++r) {
          if (r == me_) {
            c.inputs.push_back(scatter ? from + me_ * bytes : from);
            continue;
          }
          scratch_.push_back(std::make_unique<char[]>(bytes));
          c.inputs.push_back(scratch_.back().get());
          Transfer(op, false, r, scratch_.back().get(), bytes);
          Transfer(op, true, r, scatter ? from + r * bytes : from, bytes);
        }
        combined_.push_back(std::move(c));
        break;
      }
      case FakeNcclOp::kAllGather:
        copies_.push_back({to + me_ * bytes, from, bytes});
        for (int r = 0; r < ranks_; ++r) {
          if (r == me_) continue;
          Transfer(op, false, r, to + r * bytes, bytes);
          Transfer(op, true, r, from, bytes);
        }
        break;
      case FakeNcclOp::kBroadcast:
        if (op.peer != me_) {
          Transfer(op, false, op.peer, to, bytes);
          break;
        }
        copies_.push_back({to, from, bytes});
        for (int r = 0; r < ranks_; ++r) {
          if (r != me_) Transfer(op, true, r, from, bytes);
        }
        break;
    }
  }

  void Run() {
    for (size_t i = 0; i < own_recvs_.size(); ++i) std::memmove(own_recvs_[i].to, own_sends_[i], own_recvs_[i].bytes);
    if (!mesh_->Run(transfers_, [this] { return cuda_->ended(); })) return;
    // Only now: what is written here may be what others read.
    for (const Copy& c : copies_) {
      if (c.to != c.from) std::memmove(c.to, c.from, c.bytes);
    }
    for (const Combined& c : combined_) CombineAll(c.op.type, c.op.op, c.inputs, c.op.to, c.op.count);
  }

 private:
  struct Copy {
    char* to;
    const char* from;
    uint64_t bytes;
  };
  struct Combined {
    FakeNcclOp op;
    std::vector<const void*> inputs;
  };
  struct OwnRecv {
    char* to;
    uint64_t bytes;
  };

  void Transfer(const FakeNcclOp& op, bool send, int peer, char* data, uint64_t bytes) {
    transfers_.push_back({send, peer, data, bytes, Signature(op), FakeNcclName(op.kind)});
  }

  FakeCuda* const cuda_;
  FakeNcclMesh* const mesh_;
  const int me_, ranks_;
  std::vector<FakeNcclMesh::Transfer> transfers_;
  std::vector<std::unique_ptr<char[]>> scratch_;
  std::vector<Copy> copies_;
  std::vector<Combined> combined_;
  std::vector<const char*> own_sends_;
  std::vector<OwnRecv> own_recvs_;
};

}  // namespace

size_t NcclTypeSize(int type) {
  switch (type) {
    case kNcclInt8:
    case kNcclUint8: return 1;
    case kNcclFloat16:
    case kNcclBfloat16: return 2;
    case kNcclInt32:
    case kNcclUint32:
    case kNcclFloat32: return 4;
    case kNcclInt64:
    case kNcclUint64:
    case kNcclFloat64: return 8;
    default: return 0;
  }
}

const char* FakeNcclName(FakeNcclOp::Kind kind) {
  constexpr const char* kNames[] = {"Send", "Recv", "AllReduce", "AllGather", "ReduceScatter", "Broadcast"};
  return kNames[kind];
}

uint64_t FakeNcclReads(const FakeNcclOp& op, int rank, int ranks) {
  const uint64_t bytes = op.count * NcclTypeSize(op.type);
  switch (op.kind) {
    case FakeNcclOp::kRecv: return 0;
    case FakeNcclOp::kReduceScatter: return bytes * ranks;
    case FakeNcclOp::kBroadcast: return op.peer == rank ? bytes : 0;
    default: return bytes;
  }
}

uint64_t FakeNcclWrites(const FakeNcclOp& op, int rank, int ranks) {
  const uint64_t bytes = op.count * NcclTypeSize(op.type);
  switch (op.kind) {
    case FakeNcclOp::kSend: return 0;
    case FakeNcclOp::kAllGather: return bytes * ranks;
    default: return bytes;
  }
}

void RunFakeNccl(FakeCuda* cuda, FakeNcclMesh* mesh, const std::vector<FakeNcclOp>& ops) {
  if (mesh->aborted()) return;
  Work work(cuda, mesh);
  for (const FakeNcclOp& op : ops) {
    const uint64_t reads = FakeNcclReads(op, mesh->rank(), mesh->ranks()), writes = FakeNcclWrites(op, mesh->rank(), mesh->ranks());
    if ((reads != 0 && !cuda->DeviceReachable(op.from, reads)) || (writes != 0 && !cuda->DeviceReachable(op.to, writes))) {
      std::fprintf(stderr, "fake NCCL: the memory of a %s of %zu elements has gone before its turn\n", FakeNcclName(op.kind), op.count);
      cuda->BreakDevice(kCudaIllegalAddress);
      return;
    }
    work.Add(op);
  }
  work.Run();
}

}  // namespace weft
