#include "driver/serve/rpc.h"

#include <atomic>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace weft {
namespace {

constexpr size_t kMaxStatusBytes = 6000;

// As gRPC percent-encodes it.
size_t EncodedSize(char c) { return c >= 0x20 && c < 0x7f && c != '%' ? 1 : 3; }

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message());
  size_t encoded = 0;
  size_t fits = 0;      // bytes
  size_t line_end = 0;  // of the last line that fits whole
  while (fits < message.size() && encoded + EncodedSize(message[fits]) <= kMaxStatusBytes) {
    encoded += EncodedSize(message[fits]);
    if (message[fits] == '\n') line_end = fits;
    ++fits;
  }
  if (fits < message.size()) {
    size_t cut = line_end > 0 ? line_end : fits;
    while (line_end == 0 && cut > 0 && (static_cast<unsigned char>(message[cut]) & 0xC0) == 0x80) --cut;
    const size_t missing = message.size() - cut;
    message.resize(cut);
    absl::StrAppend(&message, "\n... (", missing, " more bytes are in the driver's log)");
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message);
}

namespace {

// Into the log too, once a second at most: whoever is refused may dial for ever.
absl::Status Refuse(const grpc::ServerContext& context, const std::string& why) {
  static std::atomic<int64_t> last{-1};
  const int64_t second = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  if (last.exchange(second) != second) SPDLOG_WARN("refused {}: {}", context.peer(), why);
  return absl::UnauthenticatedError(why);
}

}  // namespace

absl::Status CheckToken(const grpc::ServerContext& context, const std::string& token) {
  if (token.empty()) return absl::OkStatus();
  const auto it = context.client_metadata().find("weft-token");
  if (it == context.client_metadata().end()) {
    return Refuse(context, "this driver asks for a join token: name the file that holds it with --token-file or WEFT_TOKEN_FILE");
  }
  const grpc::string_ref given = it->second;
  // In the same time whatever was given.
  unsigned char differ = given.size() == token.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    differ |= static_cast<unsigned char>(given.data()[i]) ^ static_cast<unsigned char>(token[i % token.size()]);
  }
  if (differ != 0) return Refuse(context, "the join token is not this driver's");
  return absl::OkStatus();
}

}  // namespace weft
