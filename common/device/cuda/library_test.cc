#include "common/device/cuda/library.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

namespace weft {
namespace {

using Catch::Contains;

// Built beside this test.
const std::string kFolder = "common/device/cuda/";

std::string Text(const absl::Status& s) { return std::string(s.message()); }

TEST_CASE("cuda library: a file that is missing is named, with what to do") {
  const absl::Status s = LoadCudaPlugin("/nowhere/libweft_cuda.so").status();
  CHECK(absl::IsNotFound(s));
  CHECK_THAT(Text(s), Contains("/nowhere/libweft_cuda.so") && Contains("build //common/device/cuda/plugin"));
}

TEST_CASE("cuda library: without a path it is looked for beside the program, then where the environment says") {
  ::unsetenv(kCudaLibraryVariable);
  absl::Status s = LoadCudaPlugin("").status();
  CHECK(absl::IsNotFound(s));
  CHECK_THAT(Text(s), Contains("/libweft_cuda.so") && Contains("WEFT_CUDA_LIBRARY") && Contains("not set") && Contains("--device cpu"));
  ::setenv(kCudaLibraryVariable, "/nowhere/else.so", 1);
  s = LoadCudaPlugin("").status();
  CHECK(absl::IsNotFound(s));
  CHECK_THAT(Text(s), Contains("/nowhere/else.so"));
  ::setenv(kCudaLibraryVariable, (kFolder + "other_version.so").c_str(), 1);
  s = LoadCudaPlugin("").status();
  CHECK(absl::IsFailedPrecondition(s));
  CHECK_THAT(Text(s), Contains("other_version.so"));
  ::unsetenv(kCudaLibraryVariable);
}

TEST_CASE("cuda library: a file that is no library is refused") {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/text.so";
  std::ofstream(path) << "not a library";
  const absl::Status s = LoadCudaPlugin(path).status();
  CHECK(absl::IsFailedPrecondition(s));
  CHECK_THAT(Text(s), Contains(path) && Contains("cannot be loaded"));
}

TEST_CASE("cuda library: another library, and one of another version, are refused") {
  absl::Status s = LoadCudaPlugin(kFolder + "no_symbol.so").status();
  CHECK(absl::IsFailedPrecondition(s));
  CHECK_THAT(Text(s), Contains("no_symbol.so") && Contains("weft_cuda_plugin"));
  s = LoadCudaPlugin(kFolder + "other_version.so").status();
  CHECK(absl::IsFailedPrecondition(s));
  CHECK_THAT(Text(s), Contains("other_version.so") && Contains("another version"));
}

}  // namespace
}  // namespace weft
