#include "worker/session/outbox.h"

#include <catch2/catch.hpp>

namespace weft {
namespace {

v1::WorkerMessage Answer(int64_t request) {
  v1::WorkerMessage m;
  m.mutable_inspect_result()->set_request(request);
  return m;
}

int64_t Next(Outbox* box) {
  const auto m = box->Pop(std::chrono::nanoseconds(0));
  return m.has_value() ? m->inspect_result().request() : -1;
}

TEST_CASE("outbox: an answer goes to the driver that asked, and to no later one") {
  Outbox box;
  box.Push(Answer(1));
  box.Push(0, Answer(2));  // nobody is there yet
  const int64_t first = box.Open();
  CHECK(Next(&box) == -1);
  box.Push(first, Answer(3));
  box.Push(Answer(4));
  CHECK(Next(&box) == 3);
  box.Close();
  CHECK(Next(&box) == -1);  // forgotten with it
  box.Push(first, Answer(5));
  const int64_t second = box.Open();
  CHECK(second != first);
  box.Push(first, Answer(6));
  box.Push(second, Answer(7));
  CHECK(Next(&box) == 7);
  CHECK(Next(&box) == -1);
}

TEST_CASE("outbox: what is there when it finishes still goes, and nothing more is taken") {
  Outbox box;
  const int64_t opening = box.Open();
  box.Push(opening, Answer(1));
  box.Finish();
  box.Push(opening, Answer(2));
  CHECK_FALSE(box.finished());
  CHECK(Next(&box) == 1);
  CHECK(box.finished());
  CHECK(Next(&box) == -1);
}

}  // namespace
}  // namespace weft
