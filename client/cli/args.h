#pragma once

// The command line as plain data. Parsing alone touches no file and no process.

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// Those that every command takes.
struct CommonArgs {
  bool json = false;
  std::string address;  // empty: WEFT_ADDRESS, then the cluster's address file
  std::string cluster;  // empty: WEFT_CLUSTER, then "default"
  std::string token_file;  // empty: WEFT_TOKEN_FILE, then no token
};

struct UpArgs {
  int workers = 4;
  std::string device = "cpu";
  bool detach = false;
  bool verbose = false;    // logs of the processes go to stderr
  std::string state_dir;   // empty: in the cluster's directory, gone with it
  std::string listen = "127.0.0.1:0";
  std::string log_level = "info";
  double timeout_s = 30;   // until all workers are registered
};

struct DownArgs {
  double timeout_s = 10;
};

// How to execute a graph that is compiled.
struct ExecuteArgs {
  std::vector<std::string> inputs;       // name=file.npy or name=literal
  std::vector<std::string> inputs_each;  // name=file.npy
  std::optional<int64_t> repeat;         // unset: as many as inputs_each has slices, else 1
  int in_flight = 0;                     // 0: as the graph says
  std::string output_dir;
  double deadline_s = 0;
};

struct RunArgs {
  std::string graph_file;
  ExecuteArgs execute;
  std::optional<bool> overlap;
  std::string trace_file;
  int trace_executions = 0;
  std::string costs_file;
  bool keep = false;
};

struct CompileArgs {
  std::string graph_file;
  std::string costs_file;
  std::optional<bool> overlap;
  bool trace = true;
};

struct ExecuteNamedArgs {
  std::string graph;
  ExecuteArgs execute;
};

struct TeardownArgs {
  std::string graph;
  double drain_s = 10;
};

struct WorkersArgs {};
struct GraphsArgs {};

struct InspectArgs {
  std::string graph;  // empty: all
};

// A plan got without a daemon: compiled from a graph file, or read.
struct OfflineArgs {
  std::string file;           // graph or plan
  std::string cluster_file;
  std::string costs_file;
  std::string workers;        // "4", "w0,w1" or "w0@hostA,w1@hostB"; empty: as the graph says
  std::optional<bool> overlap;
};

struct PlanArgs {
  OfflineArgs offline;
  std::string format = "text";  // or "json", "wire"
  std::string output_file;      // empty: stdout
  int64_t simulate = 0;         // executions
  int in_flight = 0;
  std::string draw_file;        // .svg or .json
  bool timing = false;
};

struct SimulateArgs {
  OfflineArgs offline;
  int64_t executions = 6;
  int in_flight = 0;            // 0: as the plan says
  bool end_barrier = false;
  bool bytes = false;           // the curves too
  std::string draw_file;        // .svg or .json
};

struct VerifyArgs {
  OfflineArgs offline;
};

struct DrawArgs {
  OfflineArgs offline;
  std::string format = "svg";   // or "dot"
  std::string what;             // "graph" or "plan"; empty: what the file is
  std::string output_file;      // empty: stdout
  int64_t executions = 1;
  int in_flight = 0;
};

struct TraceArgs {
  std::string graph;
  std::string file;
  int executions = 0;  // 0: all that are kept
};

struct ProfileArgs {
  std::string graph_file;
  ExecuteArgs execute;
  std::optional<bool> overlap;
  std::string output_file;  // empty: stdout
};

struct ReplanArgs {
  std::string graph;
  std::string costs_file;   // empty: measured
  bool measure = false;
  int executions = 20;
  double timeout_s = 60;
};

struct BenchOverlapArgs {
  int executions = 20;
  double delay_s = 0.010;
  double transfer_s = 0.010;
  int in_flight = 4;
  std::string trace_file;
};

struct DoctorArgs {
  std::string device = "auto";  // "auto": GPUs are looked at where there are some; "cpu", "cuda"
  bool probe = false;           // this process is one that the command started to try a GPU
};

struct PipelineArgs {
  std::string schedule;          // a name, or csv:FILE
  int stages = 0;                // workers
  int microbatches = 0;
  int chunks = 0;                // stages a worker; 0: as the schedule has by default
  std::string placement;         // of auto's stages; empty: the better
  // As the user wrote them; empty: not given.
  std::string cost, hop, memory, cap_activations, cap_bytes;
  std::string format = "text";
  // A graph that trains a multi-layer perceptron.
  std::string mlp;  // features of the input and of each layer's output; empty: a graph of std.Delay
  int64_t rows = 16;
  int64_t seed = 1;
  std::string learning_rate = "0.1";
  std::string activation = "relu";
  std::string dtype = "F32";
  std::optional<bool> weights;  // as outputs
  int in_flight = 1;
};

struct BenchPipelineArgs {
  PipelineArgs pipeline;
  int executions = 15;
};

struct VersionArgs {};

using CommandArgs = std::variant<UpArgs, DownArgs, RunArgs, CompileArgs, ExecuteNamedArgs, TeardownArgs, WorkersArgs, GraphsArgs,
                                 InspectArgs, PlanArgs, SimulateArgs, VerifyArgs, DrawArgs, TraceArgs, ProfileArgs, ReplanArgs,
                                 BenchOverlapArgs, BenchPipelineArgs,
                                 DoctorArgs, PipelineArgs, VersionArgs>;

struct ParsedArgs {
  CommonArgs common;
  CommandArgs command;
  // Set: print this and exit with 0; there is no command.
  std::optional<std::string> help;
};

// `args` without the program's name. InvalidArgument says which argument is wrong, and what would be right.
absl::StatusOr<ParsedArgs> ParseArgs(const std::vector<std::string>& args);

// Splits "name=value" at the first '='; InvalidArgument names the option.
absl::StatusOr<std::pair<std::string, std::string>> SplitAssignment(const std::string& option, const std::string& text);

// ".svg" or ".json" of a picture's file name; InvalidArgument for another.
absl::StatusOr<std::string> PictureFormat(const std::string& file);

}  // namespace weft
