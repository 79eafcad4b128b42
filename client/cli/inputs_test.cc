#include "client/cli/inputs.h"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "client/cli/console.h"
#include "client/cli/overlap_bench.h"
#include "client/cli/test_dir.h"
#include "common/tensor/npy.h"

namespace weft {
namespace {

v1::Input Input(const std::string& name, v1::DType dtype, const std::string& shape) {
  v1::Input input;
  input.set_name(name);
  input.set_dtype(dtype);
  input.set_shape(shape);
  return input;
}

Tensor Iota(v1::DType dtype, const Dims& dims) {
  Tensor t = *Tensor::OnHost(dtype, dims);
  for (int64_t i = 0; i < t.elements(); ++i) SetElementFromDouble(t, i, static_cast<double>(i));
  return t;
}

TEST_CASE("inputs: files, literals and slices") {
  TestDir dir;
  const Tensor whole = Iota(v1::F32, {2, 3});
  REQUIRE(WriteNpy(dir.File("x.npy"), whole).ok());
  REQUIRE(WriteNpy(dir.File("each.npy"), Iota(v1::I32, {5, 2})).ok());
  const std::vector<v1::Input> wanted = {Input("x", v1::F32, "[2, ?<=8]"), Input("e", v1::I32, "[2]"), Input("s", v1::F64, "[]")};
  auto set = InputSet::Load({"x=" + dir.File("x.npy"), "s=2.5"}, {"e=" + dir.File("each.npy")}, std::nullopt, wanted);
  INFO(set.status().message());
  REQUIRE(set.ok());
  CHECK(set->executions() == 5);
  for (int64_t i = 0; i < 5; ++i) {
    const auto tensors = set->For(i);
    REQUIRE(tensors.ok());
    CHECK(BitEqual(tensors->at("x"), whole));
    CHECK(tensors->at("e").dims() == Dims{2});
    CHECK(ElementAsDouble(tensors->at("e"), 1) == 2 * i + 1);
    CHECK(ElementAsDouble(tensors->at("s"), 0) == 2.5);
  }
  CHECK_FALSE(set->For(5).ok());
  CHECK(InputSet::Load({"x=" + dir.File("x.npy"), "s=1"}, {"e=" + dir.File("each.npy")}, 3, wanted)->executions() == 3);
  CHECK_FALSE(InputSet::Load({"x=" + dir.File("x.npy"), "s=1"}, {"e=" + dir.File("each.npy")}, 6, wanted).ok());
  CHECK(InputSet::Load({}, {}, 9, {})->executions() == 9);
  CHECK(InputSet::Load({}, {}, std::nullopt, {})->executions() == 1);
}

TEST_CASE("inputs: every problem is said at once, with the option and the file") {
  TestDir dir;
  REQUIRE(WriteNpy(dir.File("x.npy"), Iota(v1::I32, {2, 3})).ok());
  REQUIRE(WriteNpy(dir.File("scalar.npy"), Iota(v1::F32, {})).ok());
  REQUIRE(WriteNpy(dir.File("three.npy"), Iota(v1::F32, {3})).ok());
  std::ofstream(dir.File("junk.npy")) << "junk";
  const std::vector<v1::Input> wanted = {Input("x", v1::F32, "[2, 3]"), Input("y", v1::F32, "[]"), Input("z", v1::F32, "[]"),
                                         Input("e", v1::F32, "[]"),     Input("f", v1::F32, "[]"), Input("missing", v1::I8, "[4]")};
  const auto set = InputSet::Load({"x=" + dir.File("x.npy"), "y=abc", "z=1", "z=2", "w=1", "nothing"},
                                  {"e=" + dir.File("scalar.npy"), "f=" + dir.File("junk.npy")}, std::nullopt, wanted);
  REQUIRE(set.status().code() == absl::StatusCode::kInvalidArgument);
  const std::string message(set.status().message());
  INFO(message);
  for (const char* part : {"x.npy is I32[2, 3], the graph takes F32[2, 3]", "--input y: ", "--input z: given twice",
                           "--input w: the graph has no such input; it has x, y, z, e, f, missing", "\"nothing\" is not NAME=VALUE",
                           "--input-each e: ", "junk.npy", "input \"missing\" (I8[4]) is not given"}) {
    INFO(part);
    CHECK(message.find(part) != std::string::npos);
  }
  const auto uneven = InputSet::Load({}, {"e=" + dir.File("three.npy"), "f=" + dir.File("two.npy")}, std::nullopt,
                                     {Input("e", v1::F32, "[]"), Input("f", v1::F32, "[]")});
  CHECK(uneven.status().message().find("two.npy") != absl::string_view::npos);
  REQUIRE(WriteNpy(dir.File("two.npy"), Iota(v1::F32, {2})).ok());
  const auto differ = InputSet::Load({}, {"e=" + dir.File("three.npy"), "f=" + dir.File("two.npy")}, std::nullopt,
                                     {Input("e", v1::F32, "[]"), Input("f", v1::F32, "[]")});
  CHECK(differ.status().message().find("has 2 slices") != absl::string_view::npos);
}

TEST_CASE("the overlap graph has three links and a bound") {
  const v1::Graph graph = OverlapGraph("g", 0.01, 0.02, true, 4);
  CHECK(graph.edge_size() == 3);
  CHECK(graph.edge(2).emulate().latency_s() == 0.02);
  CHECK(graph.options().max_in_flight() == 4);
  CHECK(graph.options().overlap() == v1::ON);
  CHECK(OverlapGraph("g", 0.01, 0.02, false, 1).options().overlap() == v1::OFF);
  CHECK(OverlapBound(0.01, 0.01) == Approx(0.03));
  CHECK(OverlapBound(0.01, 0.02) == Approx(0.06));
}

TEST_CASE("console: tables, summaries and files") {
  CHECK(Table({{"A", "LONG"}, {"abc", "x"}}) == "A    LONG\nabc  x\n");
  CHECK(Summary(Iota(v1::I32, {2, 2})) == "I32[2, 2]: 0, 1, 2, 3");
  CHECK(Summary(Iota(v1::F32, {100})).find("7.0, ...") != std::string::npos);
  CHECK(Summary(Iota(v1::F32, {0})) == "F32[0]: ");
  TestDir dir;
  CHECK(WriteFile(dir.File("a"), "one").ok());
  CHECK(WriteFile(dir.File("a"), "two").ok());
  std::ifstream in(dir.File("a"));
  std::string line;
  std::getline(in, line);
  CHECK(line == "two");
  const absl::Status bad = WriteFile(dir.File("no/such/dir"), "x");
  CHECK(bad.message().find("no/such/dir") != absl::string_view::npos);
}

std::string Content(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

TEST_CASE("console: a file is written where a link leads, and what is no plain file stays what it is") {
  TestDir dir;
  CHECK(WriteFile(dir.File("target"), "one").ok());
  REQUIRE(symlink(dir.File("target").c_str(), dir.File("link").c_str()) == 0);
  CHECK(WriteFile(dir.File("link"), "two").ok());
  CHECK(std::filesystem::is_symlink(dir.File("link")));
  CHECK(Content(dir.File("target")) == "two");

  REQUIRE(mkfifo(dir.File("pipe").c_str(), 0600) == 0);
  const int reader = open(dir.File("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(reader >= 0);
  CHECK(WriteFile(dir.File("pipe"), "three").ok());
  char got[8] = {};
  CHECK(read(reader, got, sizeof(got)) == 5);
  CHECK(std::string(got) == "three");
  close(reader);
  CHECK(std::filesystem::is_fifo(dir.File("pipe")));

  const absl::Status full = WriteFile("/dev/full", "x");
  CHECK(full.message() == "cannot write /dev/full: No space left on device");
  CHECK(std::filesystem::is_character_file("/dev/full"));

  const absl::Status directory = WriteFile(dir.File(""), "x");
  CHECK(directory.message().find("Is a directory") != absl::string_view::npos);
  CHECK(CheckCanWrite(dir.File("target")).ok());
  CHECK(Content(dir.File("target")) == "two");
  CHECK(CheckCanWrite(dir.File("new")).ok());
  CHECK_FALSE(std::filesystem::exists(dir.File("new")));
  CHECK_FALSE(CheckCanWrite(dir.File("")).ok());
  CHECK_FALSE(CheckCanWrite(dir.File("no/such/dir")).ok());
}

}  // namespace
}  // namespace weft
