#include "driver/graph/parse.h"

#include <fcntl.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/classes/config.h"
#include "driver/graph/error_list.h"
#include "driver/graph/json_message.h"
#include "driver/graph/suggest.h"

namespace weft {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 30;
// The schema is four messages deep; this bounds what a hostile file can make the parser's stack hold.
constexpr int kMaxDepth = 64;

class TextErrors : public google::protobuf::io::ErrorCollector {
 public:
  TextErrors(const std::string& name, ErrorList* errors) : name_(name), errors_(errors) {}
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    // The library counts from 0, and gives -1 where it knows no place.
    const std::string place = line < 0 ? name_ : absl::StrCat(name_, ":", line + 1, ":", column + 1);
    errors_->Add(absl::StrCat(place, ": ", message, Hint(message)));
  }

 private:
  // For an unknown field, the one that was probably meant; the library's message names type and field.
  static std::string Hint(const std::string& message) {
    const std::vector<std::string> quoted = absl::StrSplit(message, '"');
    if (quoted.size() != 5 || quoted[0] != "Message type " || quoted[2] != " has no field named ") return "";
    const auto* type = google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(quoted[1]);
    if (type == nullptr) return "";
    std::vector<std::string> names;
    for (int i = 0; i < type->field_count(); ++i) names.push_back(type->field(i)->name());
    return Suggester().For(quoted[3], names);
  }

  const std::string& name_;
  ErrorList* const errors_;
};

// "LINE:COLUMN" of an offset, from 1, in bytes.
std::string Place(const std::string& text, size_t offset) {
  size_t line = 1, start = 0;
  for (size_t i = 0; i < offset; ++i) {
    if (text[i] == '\n') {
      ++line;
      start = i + 1;
    }
  }
  return absl::StrCat(line, ":", offset - start + 1);
}

// Text format can write any byte as an escape: finds the first string that is then no text. Empty when there is none.
std::string FindBadString(const google::protobuf::Message& message, const std::string& path) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection* r = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  r->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int n = field->is_repeated() ? r->FieldSize(message, field) : 1;
    for (int i = 0; i < n; ++i) {
      const auto at = [&] {
        return absl::StrCat(path, path.empty() ? "" : ".", field->name(),
                            field->is_repeated() ? absl::StrCat("[", i, "]") : "");
      };
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        const auto& inner =
            field->is_repeated() ? r->GetRepeatedMessage(message, field, i) : r->GetMessage(message, field);
        std::string bad = FindBadString(inner, at());
        if (!bad.empty()) return bad;
      } else if (field->type() == FieldDescriptor::TYPE_STRING) {
        if (!IsUtf8(field->is_repeated() ? r->GetRepeatedString(message, field, i) : r->GetString(message, field)))
          return at();
      }
    }
  }
  return "";
}

void ParseText(const std::string& name, const std::string& text, const std::string& what, google::protobuf::Message* message,
               ErrorList* errors) {
  TextErrors collector(name, errors);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&collector);
  parser.SetRecursionLimit(kMaxDepth);
  const bool ok = parser.ParseFromString(text, message);
  if (!ok && errors->empty()) errors->Add(absl::StrCat(name, ": not a ", what, " in protobuf text format"));
  if (ok && text.find('\\') != std::string::npos) {
    const std::string bad = FindBadString(*message, "");
    if (!bad.empty()) errors->Add(absl::StrCat(name, ": ", bad, " is not valid UTF-8; mend its escapes"));
  }
}

absl::Status FileError(int error, const std::string& path, const std::string& what) {
  const std::string text = absl::StrCat("cannot read ", Quote(path), ": ", std::strerror(error));
  switch (error) {
    case ENOENT: return absl::NotFoundError(text);
    case EACCES:
    case EPERM: return absl::PermissionDeniedError(text);
    case EISDIR: return absl::InvalidArgumentError(absl::StrCat(Quote(path), " is a directory; name a ", what, " file"));
    case ENOTDIR:
    case ENAMETOOLONG:
    case ELOOP: return absl::InvalidArgumentError(text);
    default: return absl::UnavailableError(text);
  }
}

absl::Status TooLarge(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(Printable(name), ": larger than 1 GiB; no ", what, " is"));
}

}  // namespace

absl::Status ParseMessage(const std::string& name, const std::string& text, const std::string& what, google::protobuf::Message* message) {
  if (text.size() > kMaxBytes) return TooLarge(name, what);
  ErrorList errors;
  if (size_t bad = 0; !IsUtf8(text, &bad)) {
    errors.Add(absl::StrCat(name, ":", Place(text, bad), ": not UTF-8; is this a ", what, " file in text form?"));
    return errors.ToStatus();
  }
  static const std::string kByteOrderMark = "\xef\xbb\xbf";
  const bool marked = text.compare(0, kByteOrderMark.size(), kByteOrderMark) == 0;
  const std::string rest = marked ? text.substr(kByteOrderMark.size()) : "";
  const std::string& body = marked ? rest : text;

  const size_t first = body.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && body[first] == '{') {
    ParseJsonMessage(name, body, message, &errors);
  } else {
    ParseText(name, body, what, message, &errors);
  }
  return errors.ToStatus();
}

absl::StatusOr<std::string> ReadFileBytes(const std::string& path, const std::string& what) {
  // A NUL would silently name another file.
  if (path.empty() || path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(Quote(path), " names no file"));
  }
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError(errno, path, what);
  std::string text;
  int error = 0;
  while (text.size() <= kMaxBytes) {
    const size_t had = text.size();
    constexpr size_t kStep = 1 << 20;
    text.resize(had + kStep);
    const ssize_t n = read(fd, text.data() + had, kStep);
    const int read_error = errno;
    text.resize(had + (n > 0 ? static_cast<size_t>(n) : 0));
    if (n == 0) break;
    if (n < 0 && read_error != EINTR) {
      error = read_error;
      break;
    }
  }
  close(fd);
  if (error != 0) return FileError(error, path, what);
  if (text.size() > kMaxBytes) return TooLarge(path, what);
  return text;
}

absl::StatusOr<v1::Graph> ParseGraph(const std::string& name, const std::string& text) {
  v1::Graph graph;
  WEFT_RETURN_IF_ERROR(ParseMessage(name, text, "graph", &graph));
  return graph;
}

absl::StatusOr<v1::Graph> ParseGraphFile(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFileBytes(path, "graph"));
  return ParseGraph(path, text);
}

}  // namespace weft
