#pragma once

// The text form of a plan: one item a line, stable, readable, diffable. Format, by example (docs in each line's order; names that are
// not plain are quoted like C strings; '#' starts a comment; empty lines are skipped):
//
//   weft-plan 1                                     the version; the first line
//   graph overlap
//   hash 8d0c3f1e5a774b21                           of the text without this line; may be absent
//   part_of 2                                       only in a part
//   options overlap=ON prefetch_depth=1 ...         fields of v1::Options that are set
//   worker 0 w0 host "h" device cpu peak 4096       peak: planned bytes
//   actor 0 sender0 class std.Source worker 0 config dtype=F16 shape="[4]"
//   node 0 make0 actor 0 method make [device_error "text"] out F16[4] config fill="ones"
//   edge 0 make0:0 -> square0:0 from 0 to 3 SHM F16[4] bytes 8 slots 2 [rendezvous] [control] [emulate LATENCY_S BANDWIDTH]
//   group 0 grads ALL_REDUCE SUM members g0@0 g1@1 root 0 in F32[4] out F32[4] GLOO
//   op 0 on 3 recv0 RECV edge 0 slots 2 args 1.0 waits data:1 buffer:7@2     arg: op.output; wait: reason:op@distance, @0 unwritten
//   end                                             the last line, so that a cut file is noticed
//
// "-1" as a worker stands for the client.

#include <string>

#include "absl/status/statusor.h"
#include "common/plan/plan.h"

namespace weft {

std::string PlanToText(const Plan& plan);

// The exact inverse, for every plan that CheckPlan accepts. InvalidArgument: "plan text:LINE: what", or CheckPlan's error. The hash is
// taken as written, not compared: after an edit by hand, set it anew from HashPlan.
absl::StatusOr<Plan> PlanFromText(const std::string& text);

// First 16 hex digits of the SHA-256 of the text without its hash line.
std::string HashPlan(const Plan& plan);

}  // namespace weft
