#pragma once

// Graphs that several tests of this package use.

namespace weft {

// The example of the design with what it leaves out: actors and nodes of the collective's members.
constexpr char kGoodText[] = R"pb(
# a comment
name: "overlap"
actor { name: "sender0"  class: "std.Source" worker: "w0" config { dtype: F16 shape: "[1024, 1024]" fill: "execution" } }
actor { name: "receiver" class: "std.Gemm"   worker: "w3" }
actor { name: "a0" class: "std.Source" worker: "w0" config { dtype: F32 shape: "[8]" } }
actor { name: "a3" class: "std.Source" worker: "w3" config { dtype: F32 shape: "[8]" fill: "iota" seed: 3 } }
node  { name: "make0"    actor: "sender0"  method: "make" }
node  { name: "square0"  actor: "receiver" method: "square" arg { node: "make0" } }
node  { name: "sum"      actor: "receiver" method: "add"    arg { node: "square0" } arg { input: "bias" } }
node  { name: "g0" actor: "a0" }
node  { name: "g1" actor: "a3" after: "sum" config { fill: "2.5" } }
node  { name: "use" actor: "receiver" method: "scale" arg { collective: "grads" } config { scale: -1e-3 } }
input { name: "bias" dtype: F16 shape: "[1024, ?<=1024]" }
edge  { from: "make0" to: "square0" transport: NCCL overlap: ON prefetch_depth: 2 }
edge  { from: "sum" to: "result" transport: SHM }
collective { name: "grads" op: ALL_REDUCE reduce: SUM member { node: "g0" } member { node: "g1" after: "square0" } }
output { name: "result" node: "sum" }
output { name: "grads" collective: "grads" member: "g1" }
options { overlap: AUTO prefetch_depth: 1 max_in_flight: 4 restart: ON_REJOIN emulate { latency_s: 0.01 bandwidth: 1e9 } }
)pb";

// The same in JSON, with both spellings of fields and both forms of numbers.
constexpr char kGoodJson[] = R"json({
  "name": "overlap",
  "actor": [
    {"name": "sender0", "class": "std.Source", "worker": "w0",
     "config": {"dtype": "F16", "shape": "[1024, 1024]", "fill": "execution"}},
    {"name": "receiver", "class": "std.Gemm", "worker": "w3"},
    {"name": "a0", "class": "std.Source", "worker": "w0", "config": {"dtype": 3, "shape": "[8]"}},
    {"name": "a3", "class": "std.Source", "worker": "w3", "config": {"dtype": "F32", "shape": "[8]", "fill": "iota", "seed": "3"}}
  ],
  "node": [
    {"name": "make0", "actor": "sender0", "method": "make"},
    {"name": "square0", "actor": "receiver", "method": "square", "arg": [{"node": "make0"}]},
    {"name": "sum", "actor": "receiver", "method": "add", "arg": [{"node": "square0"}, {"input": "bias"}]},
    {"name": "g0", "actor": "a0", "overlap": null},
    {"name": "g1", "actor": "a3", "after": ["sum"], "config": {"fill": "2.5"}},
    {"name": "use", "actor": "receiver", "method": "scale", "arg": [{"collective": "grads"}], "config": {"scale": -1e-3}}
  ],
  "input": [{"name": "bias", "dtype": "F16", "shape": "[1024, ?<=1024]"}],
  "edge": [
    {"from": "make0", "to": "square0", "transport": "NCCL", "overlap": "ON", "prefetchDepth": 2},
    {"from": "sum", "to": "result", "transport": "SHM"}
  ],
  "collective": [
    {"name": "grads", "op": "ALL_REDUCE", "reduce": "SUM", "member": [{"node": "g0"}, {"node": "g1", "after": "square0"}]}
  ],
  "output": [{"name": "result", "node": "sum"}, {"name": "gr\u0061ds", "collective": "grads", "member": "g1"}],
  "options": {"overlap": "AUTO", "prefetch_depth": 1.0, "maxInFlight": "4", "restart": "ON_REJOIN",
              "emulate": {"latency_s": "0.01", "bandwidth": 1e9}}
}
)json";

}  // namespace weft
