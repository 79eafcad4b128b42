#include "common/device/cuda/plugin/nccl.h"

#if __has_include(<nccl.h>)

#include <dlfcn.h>
#include <nccl.h>

#include <cstdio>
#include <cstring>

namespace weft::gpu {
namespace {

static_assert(kNcclSuccess == ncclSuccess && kNcclUnhandledCudaError == ncclUnhandledCudaError && kNcclSystemError == ncclSystemError);
static_assert(kNcclInternalError == ncclInternalError && kNcclInvalidArgument == ncclInvalidArgument);
static_assert(kNcclInvalidUsage == ncclInvalidUsage && kNcclRemoteError == ncclRemoteError && kNcclInProgress == ncclInProgress);
static_assert(kNcclInt8 == ncclInt8 && kNcclUint8 == ncclUint8 && kNcclInt32 == ncclInt32 && kNcclUint32 == ncclUint32);
static_assert(kNcclInt64 == ncclInt64 && kNcclUint64 == ncclUint64 && kNcclFloat16 == ncclFloat16 && kNcclFloat32 == ncclFloat32);
static_assert(kNcclFloat64 == ncclFloat64 && kNcclBfloat16 == ncclBfloat16);
static_assert(kNcclSum == ncclSum && kNcclProd == ncclProd && kNcclMax == ncclMax && kNcclMin == ncclMin);
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

constexpr char kLibrary[] = "libnccl.so.2";
// Non-blocking communicators with a limit of CTAs.
constexpr int kOldest = NCCL_VERSION(2, 18, 0);

struct Functions {
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclGetVersion) version;
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclBroadcast) broadcast;
};

ncclComm_t Comm(NcclCommHandle c) { return static_cast<ncclComm_t>(c); }
ncclDataType_t Type(int t) { return static_cast<ncclDataType_t>(t); }
ncclRedOp_t Op(int o) { return static_cast<ncclRedOp_t>(o); }
cudaStream_t Stream(void* s) { return static_cast<cudaStream_t>(s); }

class RealNccl final : public NcclApi {
 public:
  explicit RealNccl(const Functions& f) : f_(f) {}

  const char* ErrorText(int code) override { return f_.error_string(static_cast<ncclResult_t>(code)); }
  const char* LastError(NcclCommHandle comm) override { return f_.last_error(Comm(comm)); }
  int Version(int* out) override { return f_.version(out); }

  int GetUniqueId(NcclId* out) override {
    ncclUniqueId id;
    const int e = f_.unique_id(&id);
    if (e == ncclSuccess) std::memcpy(out, &id, sizeof(id));
    return e;
  }
  int CommInit(NcclCommHandle* comm, int ranks, const NcclId& id, int rank, int max_ctas) override {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.minCTAs = 1;
    config.maxCTAs = max_ctas;
    ncclUniqueId unique;
    std::memcpy(&unique, &id, sizeof(unique));
    return f_.init(reinterpret_cast<ncclComm_t*>(comm), ranks, unique, rank, &config);
  }
  int GetAsyncError(NcclCommHandle comm, int* state) override {
    ncclResult_t s = ncclInternalError;
    const int e = f_.async_error(Comm(comm), &s);
    *state = s;
    return e;
  }
  int CommAbort(NcclCommHandle comm) override { return f_.abort(Comm(comm)); }

  int GroupStart() override { return f_.group_start(); }
  int GroupEnd() override { return f_.group_end(); }
  int Send(const void* from, size_t count, int type, int peer, NcclCommHandle comm, void* stream) override {
    return f_.send(from, count, Type(type), peer, Comm(comm), Stream(stream));
  }
  int Recv(void* to, size_t count, int type, int peer, NcclCommHandle comm, void* stream) override {
    return f_.recv(to, count, Type(type), peer, Comm(comm), Stream(stream));
  }
  int AllReduce(const void* from, void* to, size_t count, int type, int op, NcclCommHandle comm, void* stream) override {
    return f_.all_reduce(from, to, count, Type(type), Op(op), Comm(comm), Stream(stream));
  }
  int AllGather(const void* from, void* to, size_t count_each, int type, NcclCommHandle comm, void* stream) override {
    return f_.all_gather(from, to, count_each, Type(type), Comm(comm), Stream(stream));
  }
  int ReduceScatter(const void* from, void* to, size_t count_each, int type, int op, NcclCommHandle comm, void* stream) override {
    return f_.reduce_scatter(from, to, count_each, Type(type), Op(op), Comm(comm), Stream(stream));
  }
  int Broadcast(const void* from, void* to, size_t count, int type, int root, NcclCommHandle comm, void* stream) override {
    return f_.broadcast(from, to, count, Type(type), root, Comm(comm), Stream(stream));
  }

 private:
  const Functions f_;
};

struct Opened {
  NcclApi* api = nullptr;
  char problem[512] = "";
};

template <typename F>
bool Find(void* library, const char* name, F* out, Opened* o) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  if (*out == nullptr && o->problem[0] == '\0') {
    std::snprintf(o->problem, sizeof(o->problem), "%s has no %s; install NCCL %d.%d or newer", kLibrary, name, kOldest / 10000, kOldest / 100 % 100);
  }
  return *out != nullptr;
}

Opened Open() {
  Opened o;
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::snprintf(o.problem, sizeof(o.problem), "%s cannot be opened (%s); install NCCL 2, or put its folder into LD_LIBRARY_PATH", kLibrary,
                  dlerror());
    return o;
  }
  Functions f{};
  bool all = true;
  all &= Find(library, "ncclGetErrorString", &f.error_string, &o);
  all &= Find(library, "ncclGetLastError", &f.last_error, &o);
  all &= Find(library, "ncclGetVersion", &f.version, &o);
  all &= Find(library, "ncclGetUniqueId", &f.unique_id, &o);
  all &= Find(library, "ncclCommInitRankConfig", &f.init, &o);
  all &= Find(library, "ncclCommGetAsyncError", &f.async_error, &o);
  all &= Find(library, "ncclCommAbort", &f.abort, &o);
  all &= Find(library, "ncclGroupStart", &f.group_start, &o);
  all &= Find(library, "ncclGroupEnd", &f.group_end, &o);
  all &= Find(library, "ncclSend", &f.send, &o);
  all &= Find(library, "ncclRecv", &f.recv, &o);
  all &= Find(library, "ncclAllReduce", &f.all_reduce, &o);
  all &= Find(library, "ncclAllGather", &f.all_gather, &o);
  all &= Find(library, "ncclReduceScatter", &f.reduce_scatter, &o);
  all &= Find(library, "ncclBroadcast", &f.broadcast, &o);
  int version = 0;
  if (all && (f.version(&version) != ncclSuccess || version < kOldest)) {
    std::snprintf(o.problem, sizeof(o.problem), "%s is NCCL %d.%d.%d; install %d.%d or newer", kLibrary, version / 10000, version / 100 % 100,
                  version % 100, kOldest / 10000, kOldest / 100 % 100);
    all = false;
  }
  // Never closed: NCCL keeps threads.
  if (all) o.api = new RealNccl(f);
  return o;
}

}  // namespace

NcclApi* OpenNccl(const char** problem) {
  static const Opened opened = Open();
  *problem = opened.api == nullptr ? opened.problem : nullptr;
  return opened.api;
}

}  // namespace weft::gpu

#else

namespace weft::gpu {

NcclApi* OpenNccl(const char** problem) {
  *problem = "libweft_cuda.so was built without NCCL: nccl.h was not in the CUDA toolkit; add it and build again";
  return nullptr;
}

}  // namespace weft::gpu

#endif
