#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <mutex>
#include <vector>

namespace weft::gpu {

// Device memory in which a stream's kernels keep what is theirs alone, one piece a stream. All pieces are of one size. Thread-safe.
class Workspaces {
 public:
  // Makes the piece that unopened streams share, for the calling thread's device.
  cudaError_t Load(size_t bytes);
  // A piece of its own for `stream`; taken from those that were closed, where there is one.
  cudaError_t Open(cudaStream_t stream);
  // Gives it back. Work of `stream` may still be under way: the next owner waits for it on the device.
  void Close(cudaStream_t stream);

  void* Of(cudaStream_t stream);
  size_t bytes() const { return bytes_; }

 private:
  struct Piece {
    cudaStream_t stream = nullptr;  // nullptr: free
    void* memory = nullptr;
    cudaEvent_t closed = nullptr;  // after the last work of the stream that had it
  };

  std::mutex mu_;
  size_t bytes_ = 0;
  void* shared_ = nullptr;
  std::vector<Piece> pieces_;
};

}  // namespace weft::gpu
