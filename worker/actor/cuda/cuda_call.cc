#include "worker/actor/cuda/cuda_call.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace weft {

absl::StatusOr<CudaDevice*> AsCuda(Device* device) {
  auto* const cuda = dynamic_cast<CudaDevice*>(device);
  if (cuda == nullptr) {
    return absl::InternalError(absl::StrCat("a CUDA actor was to be made on ", device == nullptr ? "no device" : device->kind()));
  }
  return cuda;
}

CudaTableActor::CudaTableActor(CudaDevice* device, std::string cls, const std::vector<CudaMethod>& methods)
    : device_(device), cls_(std::move(cls)), methods_(methods) {
  for (const CudaMethod& m : methods) shapes_.push_back(m.shape);
}

absl::Status CudaTableActor::Call(int method, CallContext& ctx, const std::vector<Tensor>& args, std::vector<Tensor>* outs) {
  const CudaMethod& m = methods_[method];
  WEFT_RETURN_IF_ERROR(CheckCounts(m.shape, args.size(), outs->size()));
  return m.run(*device_, ctx, args, outs);
}

absl::Status CopyOnDevice(CudaDevice& device, CallContext& ctx, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return device.Check(device.api()->MemcpyAsync(to, from, bytes, ctx.stream()->native()), "copying on the device");
}

absl::Status CopyOnDevice(CudaDevice& device, CallContext& ctx, const Tensor& from, const Tensor& to) {
  return CopyOnDevice(device, ctx, to.data(), from.data(), from.bytes());
}

absl::StatusOr<Tensor> UploadWeights(CudaDevice& device, const Tensor& host) {
  absl::StatusOr<std::shared_ptr<void>> memory = device.Allocate(host.bytes());
  if (!memory.ok()) {
    return absl::Status(memory.status().code(), absl::StrCat("weights ", host.ToString(), ": ", std::string(memory.status().message())));
  }
  CudaApi& api = *device.api();
  CudaStreamHandle stream = nullptr;
  WEFT_RETURN_IF_ERROR(device.Check(api.StreamCreate(0, &stream), "making a stream for weights"));
  absl::Status s = device.Check(api.MemcpyAsync(memory->get(), host.data(), host.bytes(), stream), "copying weights to the device");
  if (s.ok()) s = device.Check(api.StreamSynchronize(stream), "copying weights to the device");
  const absl::Status destroyed = device.Check(api.StreamDestroy(stream), "ending a stream for weights");
  WEFT_RETURN_IF_ERROR(s);
  WEFT_RETURN_IF_ERROR(destroyed);
  void* const data = memory->get();
  return Tensor(host.dtype(), host.dims(), data, *std::move(memory));
}

absl::StatusOr<DevicePrecision> PrecisionOf(const v1::Config& config) {
  const std::string& p = config.precision();
  if (p.empty() || p == "fp32") return DevicePrecision::kFp32;
  if (p == "tf32") return DevicePrecision::kTf32;
  return absl::InvalidArgumentError(absl::StrCat("config.precision \"", p.substr(0, 40), "\" is not one of fp32, tf32"));
}

absl::StatusOr<DeviceStatus*> StatusOf(CallContext& ctx) {
  DeviceStatus* const status = ctx.device_status();
  if (status == nullptr) {
    return absl::FailedPreconditionError(
        "this plan has no status words, so an error that the device finds would be lost; compile the graph again with this version of weft");
  }
  return status;
}

uint64_t CodeAndNode(const CallContext& ctx, absl::StatusCode code) {
  return static_cast<uint64_t>(code) << 56 | static_cast<uint64_t>(static_cast<uint32_t>(ctx.node_id()) & 0xffffff) << 32;
}

}  // namespace weft
