#include <catch2/catch.hpp>
#include <algorithm>
#include <cstring>

#include "common/device/cuda/fake/fake_nccl_test_util.h"
#include "common/tensor/dtype.h"

namespace weft {
namespace {

// Element `i` of rank `r` as the type says: small whole numbers, which every type holds.
double Number(int r, size_t i) { return static_cast<double>((r * 5 + i * 3) % 7 + 1); }

void Store(int type, void* p, size_t i, double v) {
  switch (type) {
    case kNcclInt8: static_cast<int8_t*>(p)[i] = static_cast<int8_t>(v); break;
    case kNcclUint8: static_cast<uint8_t*>(p)[i] = static_cast<uint8_t>(v); break;
    case kNcclInt32: static_cast<int32_t*>(p)[i] = static_cast<int32_t>(v); break;
    case kNcclUint32: static_cast<uint32_t*>(p)[i] = static_cast<uint32_t>(v); break;
    case kNcclInt64: static_cast<int64_t*>(p)[i] = static_cast<int64_t>(v); break;
    case kNcclUint64: static_cast<uint64_t*>(p)[i] = static_cast<uint64_t>(v); break;
    case kNcclFloat16: static_cast<uint16_t*>(p)[i] = FloatToHalf(static_cast<float>(v)); break;
    case kNcclBfloat16: static_cast<uint16_t*>(p)[i] = FloatToBFloat16(static_cast<float>(v)); break;
    case kNcclFloat32: static_cast<float*>(p)[i] = static_cast<float>(v); break;
    default: static_cast<double*>(p)[i] = v; break;
  }
}

double Load(int type, const void* p, size_t i) {
  switch (type) {
    case kNcclInt8: return static_cast<const int8_t*>(p)[i];
    case kNcclUint8: return static_cast<const uint8_t*>(p)[i];
    case kNcclInt32: return static_cast<const int32_t*>(p)[i];
    case kNcclUint32: return static_cast<const uint32_t*>(p)[i];
    case kNcclInt64: return static_cast<double>(static_cast<const int64_t*>(p)[i]);
    case kNcclUint64: return static_cast<double>(static_cast<const uint64_t*>(p)[i]);
    case kNcclFloat16: return HalfToFloat(static_cast<const uint16_t*>(p)[i]);
    case kNcclBfloat16: return BFloat16ToFloat(static_cast<const uint16_t*>(p)[i]);
    case kNcclFloat32: return static_cast<const float*>(p)[i];
    default: return static_cast<const double*>(p)[i];
  }
}

double Combined(int op, int ranks, size_t i) {
  double acc = Number(0, i);
  for (int r = 1; r < ranks; ++r) {
    const double x = Number(r, i);
    acc = op == kNcclSum ? acc + x : op == kNcclProd ? acc * x : op == kNcclMax ? std::max(acc, x) : std::min(acc, x);
  }
  return acc;
}

TEST_CASE("fake nccl: AllReduce and ReduceScatter in every type and reduction, in place and not") {
  constexpr int kRanks = 3;
  constexpr size_t kEach = 5, kAll = kEach * kRanks;
  RankSet set(kRanks, AtOnce());
  set.Join(4);
  for (const bool in_place : {false, true}) {
    for (int type = kNcclInt8; type <= kNcclBfloat16; ++type) {
      const size_t size = NcclTypeSize(type);
      for (int op = kNcclSum; op <= kNcclMin; ++op) {
        if (op == kNcclProd && type == kNcclInt8) continue;  // 7 * 7 * 7 does not fit
        char *from[kRanks], *all[kRanks], *part[kRanks];
        for (int r = 0; r < kRanks; ++r) {
          from[r] = NewMemory<char>(&set[r].cuda(), 2 * kAll * size);
          for (size_t i = 0; i < 2 * kAll; ++i) Store(type, from[r], i, Number(r, i % kAll));
          char* const second = from[r] + kAll * size;
          all[r] = in_place ? from[r] : NewMemory<char>(&set[r].cuda(), kAll * size);
          part[r] = in_place ? second + r * kEach * size : NewMemory<char>(&set[r].cuda(), kEach * size);
          REQUIRE(set[r].nccl().AllReduce(from[r], all[r], kAll, type, op, set[r].comm, set[r].stream) == kNcclSuccess);
          REQUIRE(set[r].nccl().ReduceScatter(second, part[r], kEach, type, op, set[r].comm, set[r].stream) == kNcclSuccess);
        }
        REQUIRE(set.Synchronize());
        bool same = true;
        for (int r = 0; r < kRanks; ++r) {
          for (size_t i = 0; i < kAll; ++i) same &= Load(type, all[r], i) == Combined(op, kRanks, i);
          for (size_t i = 0; i < kEach; ++i) same &= Load(type, part[r], i) == Combined(op, kRanks, r * kEach + i);
        }
        INFO("type " << type << ", reduction " << op << ", in place " << in_place);
        CHECK(same);
      }
    }
  }
}

TEST_CASE("fake nccl: AllGather and Broadcast, in place and not, and all in one group") {
  constexpr int kRanks = 3;
  constexpr size_t kEach = 100000;
  RankSet set(kRanks, AtOnce());
  set.Join(4);
  for (const bool in_place : {false, true}) {
    int32_t *mine[kRanks], *all[kRanks], *told[kRanks];
    for (int r = 0; r < kRanks; ++r) {
      all[r] = NewMemory<int32_t>(&set[r].cuda(), kEach * kRanks);
      mine[r] = in_place ? all[r] + r * kEach : NewMemory<int32_t>(&set[r].cuda(), kEach);
      told[r] = NewMemory<int32_t>(&set[r].cuda(), kEach);
      for (size_t i = 0; i < kEach; ++i) mine[r][i] = static_cast<int32_t>(i) * (r + 1);
    }
    for (int r = 0; r < kRanks; ++r) {
      FakeNccl& nccl = set[r].nccl();
      REQUIRE(nccl.GroupStart() == kNcclSuccess);
      REQUIRE(nccl.AllGather(mine[r], all[r], kEach, kNcclInt32, set[r].comm, set[r].stream) == kNcclSuccess);
      REQUIRE(nccl.Broadcast(r == 1 ? mine[r] : nullptr, told[r], kEach, kNcclInt32, 1, set[r].comm, set[r].stream) == kNcclSuccess);
      REQUIRE(nccl.GroupEnd() == kNcclSuccess);
    }
    REQUIRE(set.Synchronize());
    for (int r = 0; r < kRanks; ++r) {
      for (int s = 0; s < kRanks; ++s) CHECK(std::memcmp(all[r] + s * kEach, mine[s], kEach * 4) == 0);
      CHECK(std::memcmp(told[r], mine[1], kEach * 4) == 0);
    }
  }
}

TEST_CASE("fake nccl: sums are made in the order of ranks, the same bits everywhere") {
  RankSet set(3, AtOnce());
  set.Join(4);
  const float values[3] = {1e8f, -1e8f, 1.0f};  // any other order gives another sum
  float* x[3];
  for (int r = 0; r < 3; ++r) {
    x[r] = NewMemory<float>(&set[r].cuda(), 1);
    *x[r] = values[r];
  }
  for (int r = 2; r >= 0; --r) {
    REQUIRE(set[r].nccl().AllReduce(x[r], x[r], 1, kNcclFloat32, kNcclSum, set[r].comm, set[r].stream) == kNcclSuccess);
  }
  REQUIRE(set.Synchronize());
  for (int r = 0; r < 3; ++r) CHECK(*x[r] == 1.0f);
}

TEST_CASE("fake nccl: a communicator of one rank copies") {
  RankSet set(1, AtOnce());
  set.Join(4);
  double *x = NewMemory<double>(&set[0].cuda(), 2), *y = NewMemory<double>(&set[0].cuda(), 2);
  x[0] = 3;
  x[1] = 4;
  REQUIRE(set[0].nccl().AllReduce(x, y, 2, kNcclFloat64, kNcclSum, set[0].comm, set[0].stream) == kNcclSuccess);
  REQUIRE(set.Synchronize());
  CHECK(y[1] == 4);
}

}  // namespace
}  // namespace weft
