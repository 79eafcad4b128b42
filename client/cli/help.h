#pragma once

// Longer texts of --help.

namespace weft {

inline constexpr char kAppHelp[] = "weft runs compiled graphs of actor tasks over worker processes.";

inline constexpr char kAppFooter[] = R"(`weft help COMMAND` and `weft COMMAND --help` say more.

Exit codes:
  0 done   1 an execution failed   2 usage   3 invalid graph or plan   4 driver not reachable   5 deadline   130 interrupted

Examples:
  weft up --workers 4 --detach
  weft run examples/overlap/overlap.textproto --repeat 20 --in-flight 4 --trace overlap.svg
  weft down)";

inline constexpr char kUpFooter[] = R"(The cluster's files (address, logs) lie in $XDG_RUNTIME_DIR/weft/NAME, or in a private directory below the temporary one.
A killed worker or driver is started again. Ctrl-C or `weft down` ends everything; nothing is left.

Examples:
  weft up --workers 4                       in the foreground, until Ctrl-C
  weft up --workers 2 --name two --detach   a second cluster beside the first; use it with --cluster two)";

inline constexpr char kDownFooter[] = R"(A cluster that is not running is no error; what a killed one left is removed.

Example:
  weft down --name two)";

inline constexpr char kInspectFooter[] = R"(Example:
  weft inspect mlp)";

inline constexpr char kDoctorFooter[] = R"(Needs no daemon. Ends with code 0 when nothing fails (warnings may be there), with 1 when something does; every warning and
failure says what to do. GPUs are tried in processes of their own, for some seconds; each should be idle.

Examples:
  weft doctor
  weft doctor --device cuda --json)";

inline constexpr char kRunFooter[] = R"(Inputs are .npy files, or literals of the dtype that the graph declares: 3, [1, 2.5], [[1, 2], [3, nan]].

Examples:
  weft run examples/mlp/mlp.textproto --input x=batch.npy --output out
  weft run graph.textproto --input-each x=samples.npy --in-flight 8 --deadline 2s
  weft run graph.textproto --repeat 100 --overlap off --json)";

inline constexpr char kCompileFooter[] = R"(Examples:
  weft compile graph.textproto
  weft execute NAME --repeat 10      NAME is the `name` field of the graph file
  weft teardown NAME)";

inline constexpr char kExecuteFooter[] = R"(Example:
  weft execute mlp --input x=batch.npy --output out)";

inline constexpr char kProfileFooter[] = R"(Runs the graph under a name of its own with its trace on: on a cluster made for it, or with --cluster, --address or WEFT_ADDRESS on that
one. The costs are medians; what the first execution took longer is stated apart. docs/planning.md says what is measured.

Examples:
  weft profile graph.textproto -o costs.textproto
  weft plan graph.textproto --costs costs.textproto --simulate 20
  weft run graph.textproto --costs costs.textproto)";

inline constexpr char kReplanFooter[] = R"(The graph must have options { order: COST }, and be executed meanwhile: both plans are measured on what clients run. Between two executions all
workers change to the new order; actors keep their state. If the new plan is not faster as measured, the old one comes back.

Examples:
  weft replan mlp
  weft replan mlp --costs costs.textproto --executions 100 --json)";

inline constexpr char kTraceFooter[] = R"(The picture has the predicted and the measured timeline below each other on the same scale.

Examples:
  weft trace overlap -o overlap.svg
  weft trace overlap -o overlap.json --executions 10)";

inline constexpr char kPlanFooter[] = R"(docs/offline.md has the forms of cluster and cost files. Of a plan file, prints it in another form.

Examples:
  weft plan graph.textproto
  weft plan graph.textproto --workers w0@a,w1@a,w2@b --format json
  weft plan graph.textproto --simulate 20 --in-flight 4 --draw predicted.svg)";

inline constexpr char kSimulateFooter[] = R"(Per worker: BUSY, time its compute lanes work; SPAN, from their first start to their last end; BUBBLE, the difference;
IN USE, the most bytes that its values take at once; PEAK, the bytes that the plan reserves. A plan that cannot end is an
error that says where each lane stands and what it waits for (code 3).

Examples:
  weft simulate graph.textproto --executions 20 --in-flight 4
  weft simulate plan.txt --cluster cluster.textproto --costs costs.textproto --bytes --json
  weft simulate graph.textproto --end-barrier --draw predicted.svg)";

inline constexpr char kVerifyFooter[] = R"(Ends with code 0 when the plan is good, with 3 when it is not; then every finding names its rule (V1 to V7), workers and ops.

Examples:
  weft plan graph.textproto --output plan.txt && weft verify plan.txt
  weft verify graph.textproto --cluster cluster.textproto --json)";

inline constexpr char kDrawFooter[] = R"(A graph: one band a worker, values as arrows. A plan: one row a lane over simulated time, transfers as arrows, bytes below.

Examples:
  weft draw graph.textproto -o graph.svg
  weft draw graph.textproto --what plan --costs costs.textproto -o plan.svg
  weft draw plan.txt --format dot | dot -Tpdf > plan.pdf)";

inline constexpr char kPipelineFooter[] = R"(Times are bare numbers, or have a unit (ns, us, ms, s); where they really pass, in --format graph, a bare number is seconds.

Examples:
  weft pipeline --schedule zb-h1 --stages 4 --microbatches 8 --cost F=10,I=12,W=7 --hop 1
  weft pipeline --schedule auto --stages 8 --microbatches 24 --cost F=18.5ms,I=18ms,W=9ms --cap-activations 8 --format svg > auto.svg
  weft pipeline --schedule 1f1b --stages 4 --microbatches 8 --cost F=10ms,I=12ms,W=7ms --format graph > g.textproto && weft run g.textproto
  weft pipeline --schedule zbv --stages 4 --microbatches 8 --mlp 8,16,16,16,16,16,16,16,4 --rows 4 --format graph > train.textproto)";

inline constexpr char kBenchPipelineFooter[] = R"(Runs the schedule with std.Delay tasks and emulated links on workers, one execution at a time, and prints the median of what they took beside what
the simulator predicts. Starts a cluster of its own; with --cluster, --address or WEFT_ADDRESS it uses that one, which needs workers w0 to w(stages - 1).
A bare number is seconds.

Example:
  weft bench pipeline --schedule zbv --stages 4 --microbatches 8 --json)";

inline constexpr char kBenchFooter[] = R"(Each starts a cluster of its own, or uses the one that --cluster, --address or WEFT_ADDRESS names. For GPUs the package has weft-gpu-bench.

Examples:
  weft bench overlap
  weft bench pipeline --schedule zbv --stages 4 --microbatches 8)";

inline constexpr char kBenchOverlapFooter[] = R"(Starts a cluster of its own for the measurement; with --cluster, --address or WEFT_ADDRESS it uses that one, which needs workers w0 to w3.
Times are seconds per execution: (end of the last - end of the first) / (n - 1).

Example:
  weft bench overlap --json)";

}  // namespace weft
