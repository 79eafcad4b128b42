#include "common/channel/shm/layout.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>

#include "common/channel/port_conformance.h"

namespace weft::shm {
namespace {

using conformance::EdgeOf;

TEST_CASE("layout: parts do not overlap and are aligned") {
  std::mt19937_64 rng(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<ShmEdgeSpec> edges;
    const int n = static_cast<int>(rng() % 12);
    for (int i = 0; i < n; ++i) {
      ShmEdgeSpec e = EdgeOf("[?]", 1 + static_cast<int>(rng() % 5));
      const uint64_t sizes[] = {0, 4, 64, 4095, 4096, 4097, 100000, uint64_t{1} << 32};
      e.bytes = sizes[rng() % 8];
      edges.push_back(e);
    }
    const Layout l = *ComputeLayout(edges);
    std::vector<std::pair<uint64_t, uint64_t>> parts = {{0, sizeof(SegmentHeader) + n * sizeof(EdgeEntry)}};
    for (int i = 0; i < n; ++i) {
      const EdgePlace& p = l.edges[i];
      CHECK(p.ring % kLine == 0);
      CHECK(p.controls % kLine == 0);
      CHECK(p.payloads % (edges[i].bytes >= kPage ? kPage : kLine) == 0);
      CHECK(p.stride >= edges[i].bytes);
      parts.emplace_back(p.ring, sizeof(EdgeRing));
      parts.emplace_back(p.controls, sizeof(SlotControl) * edges[i].slots);
      if (p.stride > 0) parts.emplace_back(p.payloads, p.stride * edges[i].slots);
    }
    std::sort(parts.begin(), parts.end());
    for (size_t i = 1; i < parts.size(); ++i) CHECK(parts[i - 1].first + parts[i - 1].second <= parts[i].first);
    CHECK(parts.back().first + parts.back().second <= l.bytes);
    CHECK(l.bytes % kPage == 0);
  }
}

TEST_CASE("layout: impossible edges are refused by name") {
  ShmEdgeSpec e = EdgeOf("[4]", 0);
  CHECK(ComputeLayout({e}).status().code() == absl::StatusCode::kInvalidArgument);
  e.slots = 1 << 17;
  CHECK_FALSE(ComputeLayout({e}).ok());
  e.slots = 1;
  e.bytes = kMaxTensorBytes + 1;
  CHECK_FALSE(ComputeLayout({e}).ok());
  e.bytes = kMaxTensorBytes;
  e.slots = 1 << 16;
  const absl::Status s = ComputeLayout({e}).status();
  CHECK(s.code() == absl::StatusCode::kResourceExhausted);
  CHECK(std::string(s.message()).find("a:0 -> b:0") != std::string::npos);
  for (const double bad : {-1.0, std::nan(""), HUGE_VAL}) {
    ShmEdgeSpec l = EdgeOf("[4]", 1);
    l.latency_s = bad;
    CHECK_FALSE(ComputeLayout({l}).ok());
    l.latency_s = 0;
    l.bandwidth = bad;
    CHECK_FALSE(ComputeLayout({l}).ok());
  }
}

TEST_CASE("layout: an edge survives its entry, whatever bytes do not") {
  ShmEdgeSpec e = EdgeOf("[2, ?<=3, ?]", 3);
  e.rendezvous = true;
  e.latency_s = 0.5;
  e.bandwidth = 1e9;
  const ShmEdgeSpec back = *SpecOf(EntryOf(e));
  CHECK(back.edge == e.edge);
  CHECK(back.slots == e.slots);
  CHECK(back.spec == e.spec);
  CHECK(back.name == e.name);
  CHECK(back.src_worker == "w0");
  CHECK(back.rendezvous);
  CHECK(back.latency_s == 0.5);
  CHECK(back.bandwidth == 1e9);

  std::mt19937_64 rng(6);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    EdgeEntry entry = EntryOf(e);
    auto* bytes = reinterpret_cast<unsigned char*>(&entry);
    for (int k = 0; k < 1 + i % 40; ++k) bytes[rng() % sizeof entry] = static_cast<unsigned char>(rng());
    const absl::StatusOr<ShmEdgeSpec> s = SpecOf(entry);
    if (s.ok()) {
      CHECK(CheckEdgeSpec(*s).ok());
    } else {
      ++refused;
    }
  }
  CHECK(refused > 100);
}

}  // namespace
}  // namespace weft::shm
