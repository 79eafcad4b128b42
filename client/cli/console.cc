#include "client/cli/console.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
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

absl::Status WriteFile(const std::string& path, const std::string& content) {
  const std::string beside = absl::StrCat(path, ".tmp", getpid());
  FILE* f = fopen(beside.c_str(), "wxe");
  if (f == nullptr) return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": ", strerror(errno)));
  const bool written = fwrite(content.data(), 1, content.size(), f) == content.size();
  const bool closed = fclose(f) == 0;
  if (!written || !closed || rename(beside.c_str(), path.c_str()) != 0) {
    const absl::Status status = absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": ", strerror(errno)));
    unlink(beside.c_str());
    return status;
  }
  return absl::OkStatus();
}

}  // namespace weft
