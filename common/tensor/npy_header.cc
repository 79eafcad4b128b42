#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/tensor/npy.h"

namespace weft {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;

absl::Status Bad(const std::string& why) { return absl::InvalidArgumentError(absl::StrCat("not a readable .npy file: ", why)); }

struct Descr {
  const char* text;
  DType dtype;
};
// The first of each dtype is the one that is written.
constexpr Descr kDescrs[] = {
    {"<f2", v1::F16}, {"<V2", v1::BF16}, {"<f4", v1::F32}, {"<f8", v1::F64}, {"|i1", v1::I8},   {"|u1", v1::U8},
    {"<i2", v1::I16}, {"<i4", v1::I32},  {"<i8", v1::I64}, {"|b1", v1::BOOL}, {"|V2", v1::BF16}, {"<i1", v1::I8},
    {"<u1", v1::U8},  {"<b1", v1::BOOL},
};

absl::StatusOr<DType> DTypeOfDescr(const std::string& descr) {
  for (const Descr& d : kDescrs) {
    if (descr == d.text) return d.dtype;
  }
  if (!descr.empty() && descr[0] == '>') {
    return Bad(absl::StrCat("its elements are big-endian (\"", descr, "\"); save it with .astype(a.dtype.newbyteorder(\"<\"))"));
  }
  return Bad(absl::StrCat("its element type \"", descr.substr(0, 32),
                          "\" is none that weft has; it reads f2, f4, f8, i1, i2, i4, i8, u1, b1, and V2 as BF16"));
}

// The header is a Python dictionary with three known keys; this reads just that, with no recursion.
class DictParser {
 public:
  explicit DictParser(const std::string& text) : text_(text) {}

  absl::Status Parse(NpyHeader* out) {
    bool descr = false, order = false, shape = false;
    if (!Take('{')) return Bad("its header is no dictionary");
    while (!Take('}')) {
      std::string key;
      WEFT_RETURN_IF_ERROR(String(&key));
      if (!Take(':')) return Bad("a ':' is missing in its header");
      if (key == "descr") {
        if (descr) return Bad("its header has \"descr\" twice");
        descr = true;
        if (Peek() == '[') return Bad("it is a structured array; save one field of it");
        std::string value;
        WEFT_RETURN_IF_ERROR(String(&value));
        WEFT_ASSIGN_OR_RETURN(out->dtype, DTypeOfDescr(value));
      } else if (key == "fortran_order") {
        if (order) return Bad("its header has \"fortran_order\" twice");
        order = true;
        if (Word("True")) {
          out->fortran_order = true;
        } else if (Word("False")) {
          out->fortran_order = false;
        } else {
          return Bad("\"fortran_order\" is neither True nor False");
        }
      } else if (key == "shape") {
        if (shape) return Bad("its header has \"shape\" twice");
        shape = true;
        WEFT_RETURN_IF_ERROR(Tuple(&out->dims));
      } else {
        return Bad(absl::StrCat("its header has the unknown key \"", key.substr(0, 32), "\""));
      }
      if (!Take(',') && Peek() != '}') return Bad("a ',' is missing in its header");
    }
    Skip();
    if (at_ != text_.size()) return Bad("something follows the dictionary in its header");
    if (!descr || !order || !shape) return Bad("its header lacks one of descr, fortran_order, shape");
    return absl::OkStatus();
  }

 private:
  void Skip() {
    while (at_ < text_.size() && absl::ascii_isspace(text_[at_])) ++at_;
  }
  char Peek() {
    Skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(char c) {
    if (Peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  bool Word(const std::string& w) {
    Skip();
    if (text_.compare(at_, w.size(), w) != 0) return false;
    at_ += w.size();
    return true;
  }
  absl::Status String(std::string* out) {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return Bad("a quoted word is missing in its header");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string::npos) return Bad("a quote is not closed in its header");
    *out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return absl::OkStatus();
  }
  absl::Status Tuple(Dims* dims) {
    if (!Take('(')) return Bad("its shape is no tuple");
    while (!Take(')')) {
      Skip();
      size_t end = at_;
      while (end < text_.size() && absl::ascii_isdigit(text_[end])) ++end;
      int64_t d = 0;
      if (end == at_ || !absl::SimpleAtoi(text_.substr(at_, end - at_), &d)) {
        return Bad("its shape holds something that is no whole number >= 0");
      }
      at_ = end;
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers so
      if (dims->size() == kMaxRank) return Bad(absl::StrCat("it has more than ", kMaxRank, " dimensions"));
      dims->push_back(d);
      if (!Take(',') && Peek() != ')') return Bad("its shape is not closed");
    }
    return absl::OkStatus();
  }

  const std::string& text_;
  size_t at_ = 0;
};

uint64_t LittleEndian(const std::string& bytes, size_t at, size_t n) {
  uint64_t v = 0;
  for (size_t i = 0; i < n; ++i) v |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return v;
}

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyHeader(const std::string& bytes) {
  if (bytes.size() < kMagicBytes + 2 || bytes.compare(0, kMagicBytes, kMagic, kMagicBytes) != 0) {
    return Bad("it does not begin like one");
  }
  const int major = static_cast<unsigned char>(bytes[6]);
  const int minor = static_cast<unsigned char>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0) {
    return Bad(absl::StrCat("its version is ", major, ".", minor, "; weft reads 1.0, 2.0 and 3.0"));
  }
  const size_t length_bytes = major == 1 ? 2 : 4;
  const size_t start = kMagicBytes + 2 + length_bytes;
  if (bytes.size() < start) return Bad("it ends within its header");
  const uint64_t length = LittleEndian(bytes, kMagicBytes + 2, length_bytes);
  if (length > kMaxNpyHeaderBytes) return Bad(absl::StrCat("its header is ", length, " bytes long; at most ", kMaxNpyHeaderBytes));
  if (bytes.size() - start < length) return Bad("it ends within its header");

  NpyHeader header;
  const std::string dict = bytes.substr(start, length);
  WEFT_RETURN_IF_ERROR(DictParser(dict).Parse(&header));
  const absl::StatusOr<int64_t> n = NumElements(header.dims);
  if (!n.ok()) return Bad(std::string(n.status().message()));
  header.data_offset = start + length;
  header.data_bytes = static_cast<uint64_t>(*n) * SizeOf(header.dtype);
  if (header.data_bytes > kMaxTensorBytes) return Bad(absl::StrCat(DimsToString(header.dims), " is larger than 1 TiB"));
  return header;
}

std::string MakeNpyHeader(DType dtype, const Dims& dims) {
  std::string descr;
  for (const Descr& d : kDescrs) {
    if (d.dtype != dtype) continue;
    descr = d.text;
    break;
  }
  const std::string shape = absl::StrCat("(", absl::StrJoin(dims, ", "), dims.size() == 1 ? ",)" : ")");
  std::string dict = absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", shape, ", }");
  const size_t unpadded = kMagicBytes + 4 + dict.size() + 1;
  dict.append((64 - unpadded % 64) % 64, ' ');
  dict.push_back('\n');
  std::string out(kMagic, kMagicBytes);
  out.push_back(1);
  out.push_back(0);
  out.push_back(static_cast<char>(dict.size() & 0xff));
  out.push_back(static_cast<char>(dict.size() >> 8));
  return out + dict;
}

}  // namespace weft
