#include "common/tensor/npy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"

namespace weft {
namespace {

absl::Status FileError(const std::string& what, const std::string& path, int err) {
  const std::string m = absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(err));
  switch (err) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(m);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(m);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(m);
    default:
      return absl::InternalError(m);
  }
}

absl::Status InFile(const std::string& path, const absl::Status& s) {
  return absl::Status(s.code(), absl::StrCat(path, ": ", std::string(s.message())));
}

// A byte of a BOOL that is neither 0 nor 1 counts as 1, as in NumPy.
void NormaliseBools(const Tensor& t) {
  if (t.dtype() != v1::BOOL) return;
  uint8_t* p = t.as<uint8_t>();
  for (int64_t i = 0; i < t.elements(); ++i) p[i] = p[i] != 0;
}

// Elements of a Fortran-order array of the same dims, in C order.
absl::StatusOr<Tensor> FromFortran(const Tensor& in) {
  WEFT_ASSIGN_OR_RETURN(Tensor out, Tensor::OnHost(in.dtype(), in.dims()));
  const size_t size = SizeOf(in.dtype());
  const int rank = static_cast<int>(in.dims().size());
  Dims stride(rank, 1), index(rank, 0);
  for (int d = 1; d < rank; ++d) stride[d] = stride[d - 1] * in.dims()[d - 1];
  int64_t from = 0;
  for (int64_t to = 0; to < in.elements(); ++to) {
    std::memcpy(out.as<char>() + to * size, in.as<char>() + from * size, size);
    for (int d = rank - 1; d >= 0; --d) {
      from += stride[d];
      if (++index[d] < in.dims()[d]) break;
      from -= stride[d] * index[d];
      index[d] = 0;
    }
  }
  return out;
}

absl::StatusOr<Tensor> Finish(const NpyHeader& header, Tensor t) {
  NormaliseBools(t);
  if (header.fortran_order && header.dims.size() > 1) return FromFortran(t);
  return t;
}

absl::Status WriteAll(int fd, const char* p, size_t n, const std::string& path) {
  while (n > 0) {
    const ssize_t k = ::write(fd, p, std::min<size_t>(n, size_t{1} << 30));
    if (k < 0) {
      if (errno == EINTR) continue;
      return FileError("write", path, errno);
    }
    p += k;
    n -= static_cast<size_t>(k);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<NpyFile>> NpyFile::Open(const std::string& path) {
  // Non-blocking, so that opening a FIFO does not wait for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError("open", path, errno);
  std::unique_ptr<NpyFile> file(new NpyFile(path, fd));  // closes fd on every way out
  struct stat st;
  if (::fstat(fd, &st) != 0) return FileError("look at", path, errno);
  if (!S_ISREG(st.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  const uint64_t size = static_cast<uint64_t>(st.st_size);
  std::string head(std::min<uint64_t>(size, kMaxNpyHeaderBytes + 12), '\0');
  WEFT_RETURN_IF_ERROR(file->ReadAt(head.data(), head.size(), 0));
  const absl::StatusOr<NpyHeader> header = ParseNpyHeader(head);
  if (!header.ok()) return InFile(path, header.status());
  const uint64_t expected = header->data_offset + header->data_bytes;
  if (size != expected) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a readable .npy file: it is ", size, " bytes long, but its header (",
                                                   DTypeName(header->dtype), DimsToString(header->dims), ") makes it ", expected));
  }
  file->header_ = *header;
  return file;
}

NpyFile::~NpyFile() { ::close(fd_); }

absl::Status NpyFile::ReadAt(void* to, uint64_t bytes, uint64_t offset) const {
  char* p = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t k = ::pread(fd_, p, std::min<uint64_t>(bytes, uint64_t{1} << 30), static_cast<off_t>(offset));
    if (k < 0) {
      if (errno == EINTR) continue;
      return FileError("read", path_, errno);
    }
    if (k == 0) return absl::DataLossError(absl::StrCat(path_, " became shorter while it was read"));
    p += k;
    offset += static_cast<uint64_t>(k);
    bytes -= static_cast<uint64_t>(k);
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> NpyFile::Read() {
  absl::StatusOr<Tensor> t = Tensor::OnHost(header_.dtype, header_.dims);
  if (!t.ok()) return InFile(path_, t.status());
  WEFT_RETURN_IF_ERROR(ReadAt(t->data(), header_.data_bytes, header_.data_offset));
  return Finish(header_, *t);
}

absl::StatusOr<int64_t> NpyFile::Slices() const {
  if (header_.dims.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": its array has no axis to take one slice per execution from"));
  }
  return header_.dims[0];
}

absl::StatusOr<Tensor> NpyFile::Slice(int64_t i) {
  WEFT_ASSIGN_OR_RETURN(const int64_t n, Slices());
  if (i < 0 || i >= n) {
    return absl::OutOfRangeError(absl::StrCat(path_, ": slice ", i, " of axis 0, which has ", n));
  }
  const Dims dims(header_.dims.begin() + 1, header_.dims.end());
  absl::StatusOr<Tensor> t = Tensor::OnHost(header_.dtype, dims);
  if (!t.ok()) return InFile(path_, t.status());
  const uint64_t bytes = t->bytes();
  if (header_.fortran_order && !dims.empty()) {
    if (!whole_.defined()) {
      WEFT_ASSIGN_OR_RETURN(whole_, Read());
    }
    if (bytes > 0) std::memcpy(t->data(), whole_.as<char>() + static_cast<uint64_t>(i) * bytes, bytes);
    return t;
  }
  WEFT_RETURN_IF_ERROR(ReadAt(t->data(), bytes, header_.data_offset + static_cast<uint64_t>(i) * bytes));
  NormaliseBools(*t);
  return t;
}

absl::StatusOr<Tensor> ReadNpy(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<NpyFile> file, NpyFile::Open(path));
  return file->Read();
}

absl::StatusOr<Tensor> DecodeNpy(const std::string& bytes) {
  WEFT_ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(bytes.substr(0, kMaxNpyHeaderBytes + 12)));
  if (bytes.size() != header.data_offset + header.data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("not a readable .npy file: it is ", bytes.size(), " bytes long, but its header makes it ",
                                                   header.data_offset + header.data_bytes));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor t, Tensor::OnHost(header.dtype, header.dims));
  if (header.data_bytes > 0) std::memcpy(t.data(), bytes.data() + header.data_offset, header.data_bytes);
  return Finish(header, std::move(t));
}

absl::Status WriteNpy(const std::string& path, const Tensor& tensor) {
  if (!tensor.defined()) return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": there is no tensor"));
  const std::string temp = absl::StrCat(path, ".", NewIncarnation(), ".tmp");
  const int fd = ::open(temp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return FileError("write", path, errno);
  const std::string header = MakeNpyHeader(tensor.dtype(), tensor.dims());
  absl::Status s = WriteAll(fd, header.data(), header.size(), path);
  if (s.ok()) s = WriteAll(fd, tensor.as<char>(), tensor.bytes(), path);
  if (::close(fd) != 0 && s.ok()) s = FileError("write", path, errno);
  if (s.ok() && ::rename(temp.c_str(), path.c_str()) != 0) s = FileError("write", path, errno);
  if (!s.ok()) ::unlink(temp.c_str());
  return s;
}

}  // namespace weft
