#pragma once

#include "common/channel/shm/segment.h"

namespace weft {

// What a test needs of a segment that nobody else may have: to write what a broken process might, and to look at the file.
class ShmTestPeer {
 public:
  static shm::SlotControl* Control(ShmSegment* s, int edge, uint64_t number) { return s->control(edge, number); }
  static shm::EdgeRing* Ring(ShmSegment* s, int edge) { return s->ring(edge); }
  static int Fd(ShmSegment* s) { return s->fd_.get(); }
};

}  // namespace weft
