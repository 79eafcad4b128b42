#include "common/device/cuda/plugin/workspaces.h"

namespace weft::gpu {

cudaError_t Workspaces::Load(size_t bytes) {
  bytes_ = bytes;
  const cudaError_t e = cudaMalloc(&shared_, bytes);
  if (e != cudaSuccess) (void)cudaGetLastError();
  return e;
}

cudaError_t Workspaces::Open(cudaStream_t stream) {
  std::lock_guard<std::mutex> lock(mu_);
  for (const Piece& p : pieces_) {
    if (p.stream == stream) return cudaSuccess;
  }
  cudaError_t e = cudaSuccess;
  for (Piece& p : pieces_) {
    if (p.stream != nullptr) continue;
    e = cudaStreamWaitEvent(stream, p.closed, 0);
    if (e == cudaSuccess) p.stream = stream;
    if (e != cudaSuccess) (void)cudaGetLastError();
    return e;
  }
  Piece p;
  p.stream = stream;
  e = cudaMalloc(&p.memory, bytes_);
  if (e == cudaSuccess) {
    e = cudaEventCreateWithFlags(&p.closed, cudaEventDisableTiming);
    if (e != cudaSuccess) (void)cudaFree(p.memory);
  }
  if (e == cudaSuccess) pieces_.push_back(p);
  if (e != cudaSuccess) (void)cudaGetLastError();
  return e;
}

void Workspaces::Close(cudaStream_t stream) {
  std::lock_guard<std::mutex> lock(mu_);
  for (size_t i = 0; i < pieces_.size(); ++i) {
    Piece& p = pieces_[i];
    if (p.stream != stream) continue;
    p.stream = nullptr;
    if (cudaEventRecord(p.closed, stream) != cudaSuccess) {
      // Nobody can wait for the stream's work any more, so nobody gets its memory.
      (void)cudaGetLastError();
      pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return;
  }
}

void* Workspaces::Of(cudaStream_t stream) {
  std::lock_guard<std::mutex> lock(mu_);
  for (const Piece& p : pieces_) {
    if (p.stream == stream) return p.memory;
  }
  return shared_;
}

}  // namespace weft::gpu
