#include "common/channel/header.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {
namespace {

// Bytes of the UTF-8 character at s[i], or 0 where there is none.
size_t Utf8Length(const char* s, size_t i, size_t n) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(s[at]); };
  const unsigned char c = byte(i);
  if (c < 0x80) return 1;
  const size_t len = c >= 0xC2 && c < 0xE0 ? 2 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
  if (len == 0 || i + len > n) return 0;
  for (size_t k = 1; k < len; ++k) {
    if ((byte(i + k) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies beyond Unicode: a protobuf string refuses them.
  const unsigned char d = byte(i + 1);
  if ((c == 0xE0 && d < 0xA0) || (c == 0xED && d > 0x9F) || (c == 0xF0 && d < 0x90) || (c == 0xF4 && d > 0x8F)) return 0;
  return len;
}

// Fills a field; what does not fit is cut between characters and marked.
template <size_t N>
void Put(char (&field)[N], const std::string& text) {
  std::memset(field, 0, N);
  if (text.size() < N) {
    std::memcpy(field, text.data(), text.size());
    return;
  }
  size_t n = N - 4;
  while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  std::memcpy(field, text.data(), n);
  std::memcpy(field + n, "...", 3);
}

std::string Carried(const MessageHeader& h) {
  return absl::StrCat(DTypeName(static_cast<DType>(h.dtype)), DimsToString(DimsOf(h)));
}

}  // namespace

std::string SafeText(const char* field, size_t size) {
  const size_t n = strnlen(field, size);
  std::string out;
  out.reserve(n);
  for (size_t i = 0; i < n;) {
    const size_t len = Utf8Length(field, i, n);
    if (len == 0) {
      out.push_back('?');
      ++i;
    } else {
      out.append(field + i, len);
      i += len;
    }
  }
  return out;
}

std::string TaskError::ToString() const {
  return absl::StrCat("node ", node, " on ", worker, ", execution ", execution, ": ", message);
}

MessageHeader MakeHeader(uint64_t plan_hash, int32_t edge, int64_t execution, uint64_t sequence, const Tensor& tensor,
                         const TaskErrorRef& error) {
  MessageHeader h;
  h.plan_hash = plan_hash;
  h.edge = edge;
  h.execution = execution;
  h.sequence = sequence;
  if (error != nullptr) {
    // An error without a code would read as a value.
    h.error_code = static_cast<int32_t>(error->code == absl::StatusCode::kOk ? absl::StatusCode::kUnknown : error->code);
    h.error_execution = error->execution;
    Put(h.error_worker, error->worker);
    Put(h.error_node, error->node);
    Put(h.error_message, error->message);
    return h;
  }
  h.dtype = static_cast<uint8_t>(tensor.dtype());
  h.rank = static_cast<uint8_t>(std::min<size_t>(tensor.dims().size(), kMaxRank));
  std::copy_n(tensor.dims().begin(), h.rank, h.dims);
  h.bytes = tensor.bytes();
  return h;
}

absl::Status CheckHeader(const MessageHeader& h, uint64_t plan_hash, int32_t edge, int64_t execution, uint64_t sequence,
                         const Spec& spec) {
  if (h.magic != MessageHeader::kMagic) {
    return absl::DataLossError(absl::StrFormat(
        "what came is no message of weft (it starts with 0x%08x): the memory or connection was damaged; restart both workers",
        h.magic));
  }
  if (h.version != MessageHeader().version) {
    return absl::DataLossError(absl::StrCat("the message has format version ", h.version, ", this worker speaks ",
                                            MessageHeader().version, ": run the same release on all workers"));
  }
  if (h.plan_hash != plan_hash) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the message is of plan %016x, this worker runs plan %016x: compile the graph again", h.plan_hash,
                        plan_hash));
  }
  if (h.edge != edge) {
    return absl::InternalError(absl::StrCat("the message is of edge ", h.edge, ", expected was edge ", edge));
  }
  if (h.sequence != sequence || h.execution != execution) {
    return absl::InternalError(absl::StrCat("the message is number ", h.sequence, " of execution ", h.execution,
                                            ", expected was number ", sequence, " of execution ", execution));
  }
  if (h.rank > kMaxRank || (h.error_code != 0 && h.bytes != 0)) {
    return absl::DataLossError(absl::StrCat("the message's header is damaged (rank ", static_cast<int>(h.rank), ", error code ",
                                            h.error_code, ", ", h.bytes, " bytes): restart both workers"));
  }
  if (h.error_code != 0) return absl::OkStatus();

  const DType dtype = static_cast<DType>(h.dtype);
  if (dtype != spec.dtype || !spec.shape.Admits(DimsOf(h))) {
    return absl::OutOfRangeError(
        absl::StrCat("a value ", Carried(h), " came, the edge is declared ", spec.ToString(),
                     ": declare the producer's output as large as its values become"));
  }
  const absl::StatusOr<int64_t> elements = NumElements(DimsOf(h));
  if (!elements.ok()) return absl::OutOfRangeError(absl::StrCat("a value of an impossible size came: ", elements.status().message()));
  // A control edge has no dtype and moves nothing.
  const uint64_t bytes = static_cast<uint64_t>(*elements) * SizeOf(dtype);
  if (h.bytes != bytes || bytes > kMaxTensorBytes) {
    return absl::OutOfRangeError(absl::StrCat("a value ", Carried(h), " came with ", h.bytes, " bytes, its shape takes ", bytes));
  }
  return absl::OkStatus();
}

TaskErrorRef ErrorOf(const MessageHeader& h) {
  if (h.error_code == 0) return nullptr;
  auto error = std::make_shared<TaskError>();
  error->worker = SafeText(h.error_worker, sizeof h.error_worker);
  error->node = SafeText(h.error_node, sizeof h.error_node);
  error->message = SafeText(h.error_message, sizeof h.error_message);
  error->execution = h.error_execution;
  const bool known = h.error_code > 0 && h.error_code <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  error->code = known ? static_cast<absl::StatusCode>(h.error_code) : absl::StatusCode::kUnknown;
  return error;
}

Dims DimsOf(const MessageHeader& h) { return Dims(h.dims, h.dims + std::min<int>(h.rank, kMaxRank)); }

uint64_t HashAsNumber(const std::string& plan_hash) {
  uint64_t n = 0;
  bool hex = plan_hash.size() == 16;
  for (const char c : plan_hash) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    hex = hex && digit >= 0;
    n = n << 4 | static_cast<uint64_t>(digit & 15);
  }
  if (hex) return n;
  n = 1469598103934665603ull;  // any other text still gives a number: FNV-1a
  for (const unsigned char c : plan_hash) n = (n ^ c) * 1099511628211ull;
  return n;
}

}  // namespace weft
