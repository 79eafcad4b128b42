#pragma once

// The graphs that a restarted driver must know again: one file a graph below <state-dir>/graphs.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/v1/graph.pb.h"

namespace weft {

// Thread-safe, since each call is about one file. Writes are atomic: a crash leaves the old file or the new one.
class GraphStore {
 public:
  // Creates the directories, private to the user. PermissionDenied, ResourceExhausted (disk full), Internal; all name the path.
  static absl::StatusOr<GraphStore> Open(const std::string& state_dir);

  absl::Status Save(const v1::Graph& graph) const;
  // OK when there is none.
  absl::Status Remove(const std::string& name) const;
  absl::StatusOr<v1::Graph> Load(const std::string& name) const;
  // Names of the graphs that were saved. Leftovers of interrupted writes are removed.
  absl::StatusOr<std::vector<std::string>> List() const;

 private:
  explicit GraphStore(std::string dir) : dir_(std::move(dir)) {}
  std::string PathOf(const std::string& name) const { return dir_ + "/" + name + ".textproto"; }

  std::string dir_;
};

// Writes `text` to `path` atomically and durably (temporary file, fsync, rename, fsync of the directory); mode 0600.
absl::Status WriteFileAtomically(const std::string& path, const std::string& text);

}  // namespace weft
