#include "common/tensor/npy.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace weft {
namespace {

// A directory of the test's own, gone with the object.
class TempDir {
 public:
  TempDir() {
    const char* base = std::getenv("TEST_TMPDIR");
    std::string name = std::string(base != nullptr ? base : "/tmp") + "/npyXXXXXX";
    if (::mkdtemp(name.data()) == nullptr) FAIL("mkdtemp");
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void Put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// A file with this dictionary, in version 1, 2 or 3.
std::string Raw(const std::string& dict, const std::string& data, int version = 1) {
  std::string s("\x93NUMPY");
  s.push_back(static_cast<char>(version));
  s.push_back('\0');
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) s.push_back(static_cast<char>(dict.size() >> (8 * i) & 0xff));
  return s + dict + data;
}

std::string Message(const absl::Status& s) { return std::string(s.message()); }

TEST_CASE("npy: every dtype and shape makes the round trip through a file") {
  const TempDir dir;
  for (const DType d : {v1::F16, v1::BF16, v1::F32, v1::F64, v1::I8, v1::U8, v1::I16, v1::I32, v1::I64, v1::BOOL}) {
    for (const Dims& dims : {Dims{}, Dims{3}, Dims{0}, Dims{2, 3}, Dims{2, 0, 4}, Dims{1, 1, 1, 1, 1, 1, 1, 2}}) {
      const Tensor t = *Tensor::OnHost(d, dims);
      for (int64_t i = 0; i < t.elements(); ++i) SetElementFromDouble(t, i, static_cast<double>(i + 1));
      INFO(t.ToString());
      REQUIRE(WriteNpy(dir.File("a.npy"), t).ok());
      const absl::StatusOr<Tensor> back = ReadNpy(dir.File("a.npy"));
      REQUIRE(back.ok());
      CHECK(BitEqual(*back, t));
    }
  }
  // Nothing but the file is left.
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), std::filesystem::directory_iterator()) == 1);
}

TEST_CASE("npy: the header that is written is NumPy's, aligned to 64 bytes") {
  const std::string h = MakeNpyHeader(v1::F32, {3, 4});
  CHECK(h.size() % 64 == 0);
  CHECK(h.substr(10, 59) == "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }");
  CHECK(h.back() == '\n');
  CHECK(MakeNpyHeader(v1::BF16, {7}).find("'<V2', 'fortran_order': False, 'shape': (7,), }") != std::string::npos);
  CHECK(MakeNpyHeader(v1::BOOL, {}).find("'|b1', 'fortran_order': False, 'shape': (), }") != std::string::npos);
}

TEST_CASE("npy: versions 1, 2 and 3, any key order and quoting") {
  const std::string data("\x01\x00\x02\x00", 4);
  for (int version : {1, 2, 3}) {
    const Tensor t = *DecodeNpy(Raw("{\"shape\":(2L,) ,'descr' : \"<i2\",'fortran_order':False}  \n", data, version));
    CHECK(t.dtype() == v1::I16);
    CHECK(t.dims() == Dims{2});
    CHECK(t.as<int16_t>()[1] == 2);
  }
  CHECK(DecodeNpy(Raw("{'descr': '|V2', 'fortran_order': False, 'shape': (2,)}", data))->dtype() == v1::BF16);
}

TEST_CASE("npy: Fortran order is converted, slices included") {
  // The array [[1, 2, 3], [4, 5, 6]] column by column.
  const std::string file = Raw("{'descr': '|i1', 'fortran_order': True, 'shape': (2, 3), }\n", std::string("\1\4\2\5\3\6", 6));
  const Tensor t = *DecodeNpy(file);
  for (int i = 0; i < 6; ++i) CHECK(t.as<int8_t>()[i] == i + 1);
  const TempDir dir;
  Put(dir.File("f.npy"), file);
  const std::unique_ptr<NpyFile> f = *NpyFile::Open(dir.File("f.npy"));
  const Tensor row = *f->Slice(1);
  CHECK(row.dims() == Dims{3});
  CHECK(row.as<int8_t>()[0] == 4);
  CHECK(row.as<int8_t>()[2] == 6);
  // Three axes: element [i, j, k] of shape [2, 2, 2] lies at i + 2j + 4k.
  const Tensor c = *DecodeNpy(
      Raw("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2, 2), }", std::string("\0\4\2\6\1\5\3\7", 8)));
  for (int i = 0; i < 8; ++i) CHECK(c.as<uint8_t>()[i] == i);
}

TEST_CASE("npy: slices of axis 0") {
  const TempDir dir;
  const Tensor t = *Tensor::OnHost(v1::F64, {3, 2});
  for (int i = 0; i < 6; ++i) t.as<double>()[i] = i;
  REQUIRE(WriteNpy(dir.File("s.npy"), t).ok());
  const std::unique_ptr<NpyFile> f = *NpyFile::Open(dir.File("s.npy"));
  CHECK(*f->Slices() == 3);
  CHECK(f->Slice(2)->as<double>()[1] == 5);
  CHECK(f->Slice(0)->as<double>()[0] == 0);
  CHECK(f->Slice(3).status().code() == absl::StatusCode::kOutOfRange);
  CHECK(f->Slice(-1).status().code() == absl::StatusCode::kOutOfRange);
  REQUIRE(WriteNpy(dir.File("v.npy"), *Tensor::OnHost(v1::I8, {4})).ok());
  CHECK((*NpyFile::Open(dir.File("v.npy")))->Slice(3)->dims().empty());
  REQUIRE(WriteNpy(dir.File("0.npy"), *Tensor::OnHost(v1::I8, {})).ok());
  CHECK(Message((*NpyFile::Open(dir.File("0.npy")))->Slices().status()).find("no axis") != std::string::npos);
}

TEST_CASE("npy: booleans become 0 or 1") {
  const Tensor t = *DecodeNpy(Raw("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", std::string("\0\1\7", 3)));
  CHECK(t.as<uint8_t>()[2] == 1);
}

TEST_CASE("npy: hostile and foreign headers are refused in words") {
  const std::string four(4, '\0');
  const std::pair<std::string, const char*> cases[] = {
      {"", "begin"},
      {"\x93NUMP", "begin"},
      {"not an npy file at all", "begin"},
      {std::string("\x93NUMPY\x04\x00", 8), "version"},
      {std::string("\x93NUMPY\x01\x00\x10", 9), "ends within"},
      {std::string("\x93NUMPY\x01\x00\xff\xff{", 11), "ends within"},
      {std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{", 13), "header is 4294967295 bytes"},
      {Raw("", ""), "dictionary"},
      {Raw("{", ""), "quoted"},
      {Raw("{}", ""), "lacks"},
      {Raw("{'descr': '<f4'}", four), "lacks"},
      {Raw("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", four), "big-endian"},
      {Raw("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", four), "none that weft has"},
      {Raw("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", four), "none that weft has"},
      {Raw("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", four), "structured"},
      {Raw("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", four), "neither True nor False"},
      {Raw("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", four), "whole number"},
      {Raw("{'descr': '<f4', 'fortran_order': False, 'shape': (1.5,)}", four), "not closed"},
      {Raw("{'descr': '<f4', 'fortran_order': False, 'shape': ((1,),)}", four), "whole number"},
      {Raw("{'descr': '<f4', 'fortran_order': False, 'shape': 1}", four), "tuple"},
      {Raw("{'descr': '<f4', 'fortran_order': False, 'shape': (1", four), "not closed"},
      {Raw("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", four), "whole number"},
      {Raw("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", four), "2^40"},
      {Raw("{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,)}", four), "1 TiB"},
      {Raw("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", four), "more than 8"},
      {Raw("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", four), "twice"},
      {Raw("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", four), "unknown key"},
      {Raw("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} + 1", four), "follows"},
      {Raw("{'descr' '<f4', 'fortran_order': False, 'shape': (1,)}", four), "':'"},
      {Raw("{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", four), "','"},
      {Raw("{'descr: <f4}", four), "quote"},
      {Raw("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", four), "bytes long"},
      {Raw("{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}", four), "bytes long"},
  };
  const TempDir dir;
  for (const auto& [bytes, word] : cases) {
    INFO(word << " | " << bytes);
    const absl::Status s = DecodeNpy(bytes).status();
    CHECK(s.code() == absl::StatusCode::kInvalidArgument);
    CHECK(Message(s).find(word) != std::string::npos);
    Put(dir.File("x.npy"), bytes);
    const absl::Status f = ReadNpy(dir.File("x.npy")).status();
    CHECK(f.code() == absl::StatusCode::kInvalidArgument);
    CHECK(Message(f).find(dir.File("x.npy")) == 0);
  }
}

TEST_CASE("npy: every prefix and every flipped byte of a good file is read or refused, never worse") {
  const std::string good = Raw("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 1), }  \n", std::string(4, '\1'), 2);
  REQUIRE(DecodeNpy(good).ok());
  for (size_t n = 0; n < good.size(); ++n) CHECK_FALSE(DecodeNpy(good.substr(0, n)).ok());
  int refused = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      refused += !DecodeNpy(bad).ok();
    }
  }
  CHECK(refused > 300);
}

TEST_CASE("npy: paths that are no files") {
  const TempDir dir;
  CHECK(ReadNpy(dir.File("none.npy")).status().code() == absl::StatusCode::kNotFound);
  CHECK(ReadNpy(dir.path()).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(::mkfifo(dir.File("fifo").c_str(), 0600) == 0);
  CHECK(ReadNpy(dir.File("fifo")).status().code() == absl::StatusCode::kInvalidArgument);
  const Tensor t = *Tensor::OnHost(v1::F32, {2});
  CHECK(WriteNpy(dir.File("no/dir.npy"), t).code() == absl::StatusCode::kNotFound);
  CHECK_FALSE(WriteNpy(dir.File("a.npy"), Tensor()).ok());
}

TEST_CASE("npy: a write that fails leaves the old file and nothing else") {
  const TempDir dir;
  std::filesystem::create_directory(dir.File("d.npy"));  // renaming onto a directory fails at the last step
  CHECK_FALSE(WriteNpy(dir.File("d.npy"), *Tensor::OnHost(v1::F32, {0})).ok());
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), std::filesystem::directory_iterator()) == 1);
}

}  // namespace
}  // namespace weft
