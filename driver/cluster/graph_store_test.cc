#include "driver/cluster/graph_store.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>

#include "driver/cluster/fake_cluster.h"

namespace weft {
namespace {

std::string NewDir() {
  const char* base = getenv("TEST_TMPDIR");
  std::string pattern = std::string(base == nullptr ? "/tmp" : base) + "/weft-state-XXXXXX";
  return mkdtemp(pattern.data());
}

TEST_CASE("graphs are saved, listed, loaded and removed") {
  const std::string dir = NewDir();
  auto store = GraphStore::Open(dir + "/a/b");
  REQUIRE(store.ok());
  const v1::Graph graph = FakeCluster::Graph("g.1", {"w0", "w1"});
  REQUIRE(store->Save(graph).ok());
  std::ofstream(dir + "/a/b/graphs/g2.textproto.123.tmp") << "half of a gra";
  REQUIRE(store->List().ok());
  CHECK(*store->List() == std::vector<std::string>{"g.1"});
  const auto loaded = store->Load("g.1");
  REQUIRE(loaded.ok());
  CHECK(loaded->SerializeAsString() == graph.SerializeAsString());
  CHECK(store->Remove("g.1").ok());
  CHECK(store->Remove("g.1").ok());
  CHECK(absl::IsNotFound(store->Load("g.1").status()));
  CHECK(absl::IsInvalidArgument(store->Remove("../g")));
  struct stat st;
  REQUIRE(stat((dir + "/a/b").c_str(), &st) == 0);
  CHECK((st.st_mode & 077) == 0);
}

TEST_CASE("damaged files and impossible directories are errors that name them") {
  const std::string dir = NewDir();
  auto store = GraphStore::Open(dir);
  REQUIRE(store.ok());
  std::ofstream(dir + "/graphs/bad.textproto") << "name: \"x";
  CHECK(absl::IsDataLoss(store->Load("bad").status()));
  std::ofstream(dir + "/file") << "x";
  const absl::Status status = GraphStore::Open(dir + "/file").status();
  REQUIRE_FALSE(status.ok());
  CHECK(std::string(status.message()).find(dir + "/file") != std::string::npos);
  CHECK_FALSE(GraphStore::Open("").ok());
}

TEST_CASE("a restarted driver lists its graphs as failed; they can be compiled again or torn down") {
  const std::string dir = NewDir();
  auto store = GraphStore::Open(dir);
  REQUIRE(store.ok());
  {
    FakeCluster c(&*store);
    FakeWorker w0(&c.coordinator, "w0", "i0");
    c.MakeReady(FakeCluster::Graph("g", {"w0"}), {&w0});
    c.MakeReady(FakeCluster::Graph("h", {"w0"}), {&w0});
    c.coordinator.Shutdown(absl::UnavailableError("the driver ends"));
  }
  FakeCluster c(&*store);
  REQUIRE(c.coordinator.Recover().ok());
  CHECK(c.StateOf("g") == "failed");
  CHECK(c.ErrorOf("g") == "the driver restarted; compile it again");
  FakeWorker w0(&c.coordinator, "w0", "i1");
  c.MakeReady(FakeCluster::Graph("g", {"w0"}), {&w0});
  CHECK(c.StateOf("g") == "ready");
  absl::Status torn = absl::UnknownError("not called");
  c.coordinator.Teardown("h", 1, [&](absl::Status s) { torn = s; });
  CHECK(torn.ok());
  CHECK(c.StateOf("h") == "absent");
  CHECK(*store->List() == std::vector<std::string>{"g"});
}

TEST_CASE("a graph that does not compile is not kept") {
  const std::string dir = NewDir();
  auto store = GraphStore::Open(dir);
  FakeCluster c(&*store);
  c.compile_error = absl::InvalidArgumentError("node x: wrong");
  c.Compile(FakeCluster::Graph("g", {"w0"}));
  REQUIRE(c.ended == 1);
  CHECK(c.result.status() == c.compile_error);
  CHECK(c.StateOf("g") == "absent");
  CHECK(store->List()->empty());
}

}  // namespace
}  // namespace weft
