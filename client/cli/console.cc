#include "client/cli/console.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/literal.h"

namespace weft {
namespace {

constexpr int64_t kSummaryElements = 8;

// Commands print on the main thread alone.
bool printed = false;

}  // namespace

void Print(const std::string& text) {
  printed = true;
  fwrite(text.data(), 1, text.size(), stdout);
}

bool HasPrinted() { return printed; }

void PrintJson(const nlohmann::ordered_json& json) {
  // What is no UTF-8 is shown as such, rather than ending the program.
  Print(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

void Complain(const std::string& text) {
  fflush(stdout);
  fprintf(stderr, "weft: %s\n", text.c_str());
}

absl::Status FlushOutput() {
  if (fflush(stdout) == 0 && ferror(stdout) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write to standard output: ", strerror(errno)));
}

std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i >= widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, row[i], std::string(widths[i] - row[i].size() + 2, ' '));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&out, line, "\n");
  }
  return out;
}

std::string Summary(const Tensor& tensor) {
  const int64_t n = std::min(tensor.elements(), kSummaryElements);
  const Tensor head(tensor.dtype(), {n}, tensor.data(), tensor.owner());
  std::string list = TensorToJson(head)["data"].dump();
  list = list.substr(1, list.size() - 2);
  std::string spaced;
  for (const char c : list) {
    if (c == '"') continue;
    spaced += c;
    if (c == ',') spaced += ' ';
  }
  return absl::StrCat(tensor.ToString(), ": ", spaced, n < tensor.elements() ? ", ..." : "");
}

namespace {

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": ", strerror(error)));
}

// What is to be written to: `place`, where a symbolic link leads; in place if that is no plain file (a device, a pipe), which a rename
// would replace.
struct Target {
  std::string place;
  bool in_place = false;
};

absl::StatusOr<Target> TargetOf(const std::string& path) {
  Target target{path, false};
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return target;
  if (S_ISDIR(st.st_mode)) return CannotWrite(path, EISDIR);
  target.in_place = !S_ISREG(st.st_mode);
  if (char* real = realpath(path.c_str(), nullptr); real != nullptr && !target.in_place) target.place = real;
  return target;
}

std::string Beside(const Target& target) { return absl::StrCat(target.place, ".tmp", getpid()); }

}  // namespace

absl::Status CheckCanWrite(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const Target target, TargetOf(path));
  if (target.in_place) return access(path.c_str(), W_OK) == 0 ? absl::OkStatus() : CannotWrite(path, errno);
  const std::string beside = Beside(target);
  FILE* f = fopen(beside.c_str(), "wxe");
  if (f == nullptr) return CannotWrite(path, errno);
  fclose(f);
  unlink(beside.c_str());
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path, const std::string& content) {
  WEFT_ASSIGN_OR_RETURN(const Target target, TargetOf(path));
  const std::string file = target.in_place ? path : Beside(target);
  FILE* f = fopen(file.c_str(), target.in_place ? "we" : "wxe");
  if (f == nullptr) return CannotWrite(path, errno);
  int error = fwrite(content.data(), 1, content.size(), f) == content.size() ? 0 : errno;
  if (fclose(f) != 0 && error == 0) error = errno;
  if (error == 0 && !target.in_place && rename(file.c_str(), target.place.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  if (!target.in_place) unlink(file.c_str());
  return CannotWrite(path, error);
}

}  // namespace weft
