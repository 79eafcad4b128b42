#pragma once

// How a segment lies in its memory file. One file serves one ordered pair of processes, writer and reader, and holds all edges of one
// graph from the one to the other:
//
//   SegmentHeader | EdgeEntry per edge | per edge: EdgeRing, SlotControl per slot | payloads, small ones first | later, larger slots
//
// Offsets are computed by both sides from the entries alone; none is taken from the file but those of grown slots, which the reader
// checks. A field has one writer: the process named in its comment.

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/channel/header.h"
#include "common/channel/shm/edge_spec.h"

namespace weft::shm {

constexpr uint64_t kSegmentMagic = 0x31676573'74666577;  // "weftseg1"
constexpr uint32_t kSegmentVersion = 1;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kLine = 64;
// A file larger than this is refused; it is sparse, so the number costs nothing.
constexpr uint64_t kMaxSegmentBytes = uint64_t{1} << 46;
constexpr uint32_t kMaxEdges = 1 << 20;

static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);

// Why an end closed.
struct alignas(kLine) CloseBlock {
  std::atomic<uint32_t> state;  // kOpen, then kWriting while the text is written, then kSet
  int32_t code;
  char message[1016];
  static constexpr uint32_t kOpen = 0, kWriting = 1, kSet = 2;
};

struct SegmentHeader {
  uint64_t magic;  // this and the next lines: written before the file is passed on
  uint32_t version;
  uint32_t edges;
  uint64_t plan_hash;
  uint64_t bytes;  // of the file before any growth
  alignas(kLine) std::atomic<int64_t> admitted;  // writer
  CloseBlock writer_close;
  CloseBlock reader_close;
};

struct EdgeEntry {
  int32_t edge;
  int32_t slots;
  uint64_t bytes;
  double latency_s;
  double bandwidth;
  int64_t dims[kMaxRank];
  uint8_t dim_kinds[kMaxRank];
  uint8_t dtype;
  uint8_t rank;
  uint8_t rendezvous;
  uint8_t unused[5];
  char name[192];
  char src_worker[64];
  char dst_worker[64];
};

struct alignas(kLine) EdgeRing {
  std::atomic<uint64_t> released;  // reader: messages whose slots it gave back
  // Writer: not 0 while it waits for a slot. The reader rings it only then: a needless ring is a needless waking.
  alignas(kLine) std::atomic<uint32_t> starved;
};

struct SlotControl {
  // Writer: 1 + the number of the message that lies here, stored last.
  alignas(kLine) std::atomic<uint64_t> sent;
  int64_t sent_at;          // CLOCK_MONOTONIC when the send was issued
  uint64_t grown_offset;    // in the file; 0: the payload lies at its first place
  uint64_t grown_capacity;
  MessageHeader header;
  // Reader: 1 + the number of the message whose receive was issued, stored after the time. Rendezvous only.
  alignas(kLine) std::atomic<uint64_t> received;
  std::atomic<int64_t> received_at;
};

// Where an edge lies.
struct EdgePlace {
  uint64_t ring = 0;
  uint64_t controls = 0;
  uint64_t payloads = 0;
  uint64_t stride = 0;  // bytes of one slot's payload, rounded up
};

struct Layout {
  uint64_t bytes = 0;  // whole pages
  std::vector<EdgePlace> edges;
};

// InvalidArgument names the edge; ResourceExhausted for a segment of more than kMaxSegmentBytes or kMaxEdges.
absl::StatusOr<Layout> ComputeLayout(const std::vector<ShmEdgeSpec>& edges);

EdgeEntry EntryOf(const ShmEdgeSpec& spec);
// Whatever the entry holds: InvalidArgument names what is wrong.
absl::StatusOr<ShmEdgeSpec> SpecOf(const EdgeEntry& entry);

inline uint64_t RoundUp(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

}  // namespace weft::shm
