#pragma once

// NumPy's .npy files. Read: header versions 1.0, 2.0 and 3.0, little-endian elements of weft's dtypes, C or Fortran order.
// Written: version 1.0, C order. BF16 is "<V2", as NumPy writes a two-byte void. Files are checked before any of their content is
// believed: sizes are bounded, and the file must hold exactly what its header says.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tensor/tensor.h"

namespace weft {

struct NpyHeader {
  DType dtype = v1::DTYPE_UNSPECIFIED;
  Dims dims;
  bool fortran_order = false;
  uint64_t data_offset = 0;  // bytes from the start of the file
  uint64_t data_bytes = 0;
};

// Longest header that is read; NumPy itself stops at 10,000 characters.
constexpr uint64_t kMaxNpyHeaderBytes = 64 << 10;

// Of the first bytes of a file, at most kMaxNpyHeaderBytes + 12 of them. InvalidArgument says what is wrong with them.
absl::StatusOr<NpyHeader> ParseNpyHeader(const std::string& bytes);

// A whole version 1.0 header for a C-order array; its size is a multiple of 64.
std::string MakeNpyHeader(DType dtype, const Dims& dims);

// An open .npy file. Reads what is asked for and no more, so that a file larger than memory can be taken slice by slice. Not
// thread-safe.
class NpyFile {
 public:
  // Errors name the path: NotFound, PermissionDenied, InvalidArgument (not a regular file, or not a .npy file that weft reads, or
  // shorter or longer than its header says).
  static absl::StatusOr<std::unique_ptr<NpyFile>> Open(const std::string& path);
  ~NpyFile();
  NpyFile(const NpyFile&) = delete;
  NpyFile& operator=(const NpyFile&) = delete;

  const NpyHeader& header() const { return header_; }

  // The whole array, in C order whatever the file's order is.
  absl::StatusOr<Tensor> Read();

  // Number of slices along axis 0. InvalidArgument for an array without axes.
  absl::StatusOr<int64_t> Slices() const;
  // Slice `i` of axis 0, without that axis: of a file of shape [n, a, b] a tensor [a, b]. OutOfRange beyond the last. A file in
  // Fortran order is read as a whole at the first call and kept.
  absl::StatusOr<Tensor> Slice(int64_t i);

 private:
  NpyFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  absl::Status ReadAt(void* to, uint64_t bytes, uint64_t offset) const;

  const std::string path_;
  const int fd_;
  NpyHeader header_;
  Tensor whole_;  // of a Fortran-order file that was sliced
};

// NpyFile::Open and Read.
absl::StatusOr<Tensor> ReadNpy(const std::string& path);
// From memory; `bytes` is a whole file.
absl::StatusOr<Tensor> DecodeNpy(const std::string& bytes);

// Writes a file of that name, or leaves what was there: it is written beside it and renamed. Errors name the path:
// ResourceExhausted (disk full), NotFound (no such directory), PermissionDenied, Internal.
absl::Status WriteNpy(const std::string& path, const Tensor& tensor);

}  // namespace weft
