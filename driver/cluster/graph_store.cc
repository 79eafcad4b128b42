#include "driver/cluster/graph_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "google/protobuf/text_format.h"

namespace weft {
namespace {

constexpr char kSuffix[] = ".textproto";
constexpr char kTemporary[] = ".tmp";

absl::Status FromErrno(const std::string& what, const std::string& path, int error) {
  const std::string message = absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT: return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS: return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE: return absl::ResourceExhaustedError(message);
    default: return absl::InternalError(message);
  }
}

absl::Status MakeDir(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) return absl::OkStatus();
  if (errno == EEXIST) {
    struct stat st;
    if (stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(path, " exists and is not a directory"));
  }
  return FromErrno("make directory", path, errno);
}

// Like mkdir -p.
absl::Status MakeDirs(const std::string& path) {
  for (size_t i = 1; i <= path.size(); ++i) {
    if (i == path.size() || path[i] == '/') WEFT_RETURN_IF_ERROR(MakeDir(path.substr(0, i)));
  }
  return absl::OkStatus();
}

absl::Status WriteAndSync(int fd, const std::string& path, const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const ssize_t n = write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno("write", path, errno);
    at += static_cast<size_t>(n);
  }
  if (fsync(fd) != 0) return FromErrno("write", path, errno);
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteFileAtomically(const std::string& path, const std::string& text) {
  const std::string tmp = absl::StrCat(path, ".", getpid(), kTemporary);
  const int fd = open(tmp.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return FromErrno("create", tmp, errno);
  absl::Status status = WriteAndSync(fd, tmp, text);
  if (close(fd) != 0 && status.ok()) status = FromErrno("close", tmp, errno);
  if (status.ok() && rename(tmp.c_str(), path.c_str()) != 0) status = FromErrno("rename to", path, errno);
  if (!status.ok()) {
    unlink(tmp.c_str());
    return status;
  }
  const size_t slash = path.rfind('/');
  const std::string dir = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int dir_fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir_fd >= 0) {
    fsync(dir_fd);
    close(dir_fd);
  }
  return absl::OkStatus();
}

absl::StatusOr<GraphStore> GraphStore::Open(const std::string& state_dir) {
  if (state_dir.empty()) return absl::InvalidArgumentError("the state directory has no name");
  WEFT_RETURN_IF_ERROR(MakeDirs(state_dir));
  const std::string dir = state_dir + "/graphs";
  WEFT_RETURN_IF_ERROR(MakeDir(dir));
  if (access(dir.c_str(), R_OK | W_OK | X_OK) != 0) return FromErrno("use state directory", dir, errno);
  return GraphStore(dir);
}

absl::Status GraphStore::Save(const v1::Graph& graph) const {
  WEFT_RETURN_IF_ERROR(CheckName("graph", graph.name()));
  std::string text;
  if (!google::protobuf::TextFormat::PrintToString(graph, &text)) {
    return absl::InternalError(absl::StrCat("graph ", graph.name(), " cannot be printed"));
  }
  return WriteFileAtomically(PathOf(graph.name()), text);
}

absl::Status GraphStore::Remove(const std::string& name) const {
  WEFT_RETURN_IF_ERROR(CheckName("graph", name));
  const std::string path = PathOf(name);
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return FromErrno("remove", path, errno);
}

absl::StatusOr<v1::Graph> GraphStore::Load(const std::string& name) const {
  WEFT_RETURN_IF_ERROR(CheckName("graph", name));
  const std::string path = PathOf(name);
  std::ifstream in(path, std::ios::binary);
  if (!in) return FromErrno("read", path, errno);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  v1::Graph graph;
  if (!google::protobuf::TextFormat::ParseFromString(text, &graph)) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: remove it, and compile the graph again"));
  }
  return graph;
}

absl::StatusOr<std::vector<std::string>> GraphStore::List() const {
  DIR* d = opendir(dir_.c_str());
  if (d == nullptr) return FromErrno("list", dir_, errno);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(d)) {
    const std::string file = entry->d_name;
    if (absl::EndsWith(file, kTemporary)) {
      unlink((dir_ + "/" + file).c_str());
    } else if (absl::EndsWith(file, kSuffix)) {
      const std::string name = file.substr(0, file.size() - (sizeof kSuffix - 1));
      if (CheckName("graph", name).ok()) names.push_back(name);
    }
  }
  closedir(d);
  return names;
}

}  // namespace weft
