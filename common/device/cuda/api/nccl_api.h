#pragma once

// What weft calls of NCCL, behind an interface without its header, for the same reasons as cuda_api.h. Results are ncclResult_t as numbers.

#include <cstddef>
#include <cstdint>

namespace weft {

enum NcclCode : int {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
};

// ncclDataType_t, its numbers.
enum NcclType : int {
  kNcclInt8 = 0,
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclUint32 = 3,
  kNcclInt64 = 4,
  kNcclUint64 = 5,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9,
};

// ncclRedOp_t, its numbers.
enum NcclOp : int { kNcclSum = 0, kNcclProd = 1, kNcclMax = 2, kNcclMin = 3 };

using NcclCommHandle = void*;  // ncclComm_t

struct NcclId {
  char bytes[128];
};

// Streams are cudaStream_t. Communicators are non-blocking: any call on one may return kNcclInProgress, and then nothing else may be called on
// it but GetAsyncError and Abort until GetAsyncError says kNcclSuccess.
class NcclApi {
 public:
  virtual ~NcclApi() = default;

  virtual const char* ErrorText(int code) = 0;
  virtual const char* LastError(NcclCommHandle comm) = 0;  // of this thread or of `comm`, which may be nullptr
  virtual int Version(int* out) = 0;                       // 22803 for 2.28.3

  virtual int GetUniqueId(NcclId* out) = 0;
  // Starts joining; config: blocking = 0, minCTAs = 1, maxCTAs.
  virtual int CommInit(NcclCommHandle* comm, int ranks, const NcclId& id, int rank, int max_ctas) = 0;
  virtual int GetAsyncError(NcclCommHandle comm, int* state) = 0;
  // Ends everything under way and frees the communicator. Blocks for up to a second or so.
  virtual int CommAbort(NcclCommHandle comm) = 0;

  virtual int GroupStart() = 0;
  virtual int GroupEnd() = 0;
  virtual int Send(const void* from, size_t count, int type, int peer, NcclCommHandle comm, void* stream) = 0;
  virtual int Recv(void* to, size_t count, int type, int peer, NcclCommHandle comm, void* stream) = 0;
  virtual int AllReduce(const void* from, void* to, size_t count, int type, int op, NcclCommHandle comm, void* stream) = 0;
  virtual int AllGather(const void* from, void* to, size_t count_each, int type, NcclCommHandle comm, void* stream) = 0;
  virtual int ReduceScatter(const void* from, void* to, size_t count_each, int type, int op, NcclCommHandle comm, void* stream) = 0;
  virtual int Broadcast(const void* from, void* to, size_t count, int type, int root, NcclCommHandle comm, void* stream) = 0;
};

}  // namespace weft
