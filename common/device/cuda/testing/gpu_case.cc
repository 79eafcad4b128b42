#include "common/device/cuda/testing/gpu_case.h"

#include "common/device/cuda/library.h"

namespace weft {

std::unique_ptr<TestGpu> TestGpu::Fake() {
  std::unique_ptr<TestGpu> gpu(new TestGpu);
  FakePlugin::Options options;
  options.nccl.launch_polls = 1;  // as a GPU's NCCL does
  gpu->fake_ = std::make_unique<FakePlugin>(options);
  gpu->fake_kernels_ = std::make_unique<FakeKernels>(&gpu->fake_->cuda);
  gpu->Start(gpu->fake_->plugin(gpu->fake_kernels_.get()));
  return gpu;
}

TestGpu& TestGpu::Real() {
  // Never destroyed: CUDA may be gone when the process ends.
  static TestGpu* gpu = nullptr;
  if (gpu == nullptr) {
    const auto plugin = LoadCudaPlugin("");
    INFO(plugin.status().ToString());
    REQUIRE(plugin.ok());
    std::unique_ptr<TestGpu> made(new TestGpu);
    made->Start(**plugin);
    gpu = made.release();
  }
  gpu->device()->BindThread();
  return *gpu;
}

TestGpu::~TestGpu() {
  stream_.reset();
  device_.reset();
}

void TestGpu::Start(const CudaPlugin& plugin) {
  auto device = CudaDevice::Create(plugin, Clock::Real(), 0);
  INFO(device.status().ToString());
  REQUIRE(device.ok());
  device_ = *std::move(device);
  stream_ = *device_->NewStream(v1::LANE_COMPUTE);
}

void TestGpu::Calibrate() {
  if (!calibrated_) REQUIRE(kernels()->Calibrate() == kCudaSuccess);
  calibrated_ = true;
}

Tensor TestGpu::Rubbish(DType dtype, const Dims& dims, int64_t shift) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  const size_t bytes = static_cast<size_t>(n + shift) * SizeOf(dtype);
  auto memory = device_->Allocate(bytes);
  REQUIRE(memory.ok());
  if (bytes > 0) REQUIRE(api()->MemsetAsync(memory->get(), 0xa5, bytes, native()) == kCudaSuccess);
  void* const data = static_cast<char*>(memory->get()) + static_cast<size_t>(shift) * SizeOf(dtype);
  return Tensor(dtype, dims, data, *std::move(memory));
}

Tensor TestGpu::Upload(const Tensor& host, int64_t shift) {
  Tensor t = Rubbish(host.dtype(), host.dims(), shift);
  if (host.bytes() > 0) REQUIRE(api()->MemcpyAsync(t.data(), host.data(), host.bytes(), native()) == kCudaSuccess);
  Sync();
  return t;
}

Tensor TestGpu::Download(const Tensor& on_device) {
  const Tensor host = *Tensor::OnHost(on_device.dtype(), on_device.dims());
  if (host.bytes() > 0) REQUIRE(api()->MemcpyAsync(host.data(), on_device.data(), host.bytes(), native()) == kCudaSuccess);
  Sync();
  return host;
}

Tensor TestGpu::NewStatus(uint64_t word) {
  const Tensor host = *Tensor::OnHost(v1::I64, {2});
  host.as<uint64_t>()[0] = word;
  host.as<uint64_t>()[1] = 0;
  return Upload(host);
}

uint64_t TestGpu::StatusWord(const Tensor& status) { return Download(status).as<uint64_t>()[0]; }

void TestGpu::Sync() { REQUIRE(api()->StreamSynchronize(native()) == kCudaSuccess); }

}  // namespace weft
