#include "client/cli/overlap_bench.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr int kSenders = 3;

}  // namespace

v1::Graph OverlapGraph(const std::string& name, double delay_s, double transfer_s, bool overlap, int in_flight) {
  v1::Graph graph;
  graph.set_name(name);
  for (int i = 0; i < kSenders; ++i) {
    v1::Actor* sender = graph.add_actor();
    sender->set_name(absl::StrCat("sender", i));
    sender->set_class_("std.Source");
    sender->set_worker(absl::StrCat("w", i));
    sender->mutable_config()->set_dtype(v1::F32);
    sender->mutable_config()->set_shape("[16]");
    sender->mutable_config()->set_fill("execution");
    v1::Node* make = graph.add_node();
    make->set_name(absl::StrCat("make", i));
    make->set_actor(sender->name());
  }
  v1::Actor* receiver = graph.add_actor();
  receiver->set_name("receiver");
  receiver->set_class_("std.Delay");
  receiver->set_worker(absl::StrCat("w", kSenders));
  receiver->mutable_config()->set_duration_s(delay_s);
  for (int i = 0; i < kSenders; ++i) {
    v1::Node* work = graph.add_node();
    work->set_name(absl::StrCat("work", i));
    work->set_actor("receiver");
    work->add_arg()->set_node(absl::StrCat("make", i));
    v1::Edge* edge = graph.add_edge();
    edge->set_from(absl::StrCat("make", i));
    edge->set_to(work->name());
    edge->set_transport(v1::SHM);
    edge->mutable_emulate()->set_latency_s(transfer_s);
    v1::Output* output = graph.add_output();
    output->set_name(absl::StrCat("result", i));
    output->set_node(work->name());
  }
  v1::Options* options = graph.mutable_options();
  options->set_overlap(overlap ? v1::ON : v1::OFF);
  options->set_prefetch_depth(1);
  options->set_max_in_flight(in_flight);
  return graph;
}

double OverlapBound(double delay_s, double transfer_s) { return kSenders * std::max(delay_s, transfer_s); }

}  // namespace weft
