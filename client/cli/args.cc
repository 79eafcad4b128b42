#include "client/cli/args.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/help.h"
#include "common/base/parse.h"

namespace weft {
namespace {

constexpr int64_t kMaxExecutions = 1'000'000'000;

void Throw(const absl::Status& status) { throw CLI::ValidationError(std::string(status.message())); }

// Adds options whose text goes through weft's own parsers, so that every tool refuses the same things in the same words.
class Options {
 public:
  explicit Options(CLI::App* app) : app_(app) {}

  CLI::Option* Text(const std::string& names, std::string* to, const std::string& help) {
    return app_->add_option(names, *to, help)->type_name("TEXT");
  }

  template <typename T>
  CLI::Option* Int(const std::string& names, T* to, int64_t lo, int64_t hi, const std::string& help) {
    return Add(names, "N", help, [names, to, lo, hi](const std::string& text) {
      auto v = ParseInt(Last(names), text, lo, hi);
      if (!v.ok()) Throw(v.status());
      *to = static_cast<T>(*v);
    });
  }

  CLI::Option* OptionalInt(const std::string& names, std::optional<int64_t>* to, int64_t lo, int64_t hi, const std::string& help) {
    return Add(names, "N", help, [names, to, lo, hi](const std::string& text) {
      auto v = ParseInt(Last(names), text, lo, hi);
      if (!v.ok()) Throw(v.status());
      *to = *v;
    });
  }

  CLI::Option* Seconds(const std::string& names, double* to, double hi, const std::string& help) {
    return Add(names, "TIME", help, [names, to, hi](const std::string& text) {
      auto v = ParseSeconds(Last(names), text);
      if (!v.ok()) Throw(v.status());
      if (*v > hi) throw CLI::ValidationError(absl::StrCat(Last(names), ": ", text, " is more than ", FormatSeconds(hi)));
      *to = *v;
    });
  }

  CLI::Option* OnOff(const std::string& names, std::optional<bool>* to, const std::string& help) {
    return Add(names, "on|off", help, [names, to](const std::string& text) {
      auto v = ParseBool(Last(names), text);
      if (!v.ok()) Throw(v.status());
      *to = *v;
    });
  }

  CLI::Option* OneOf(const std::string& names, std::string* to, std::vector<std::string> values, const std::string& help) {
    std::string list;
    for (const std::string& v : values) absl::StrAppend(&list, list.empty() ? "" : "|", v);
    return Add(names, list, help, [names, to, values, list](const std::string& text) {
      if (std::find(values.begin(), values.end(), text) == values.end()) {
        throw CLI::ValidationError(absl::StrCat(Last(names), ": \"", text, "\" is not one of ", list));
      }
      *to = text;
    });
  }

  // A switch: --x, or --x=true|false|1|0|yes|no|on|off.
  void Flag(const std::string& names, bool* to, const std::string& help) {
    texts_.emplace_back();
    std::string* text = &texts_.back();
    app_->add_flag(names, *text, help);
    finish_.push_back([names, to, text] {
      if (text->empty()) return;
      auto v = ParseBool(Last(names), *text);
      if (!v.ok()) Throw(v.status());
      *to = *v;
    });
  }

  // After parsing.
  void Finish() const {
    for (const auto& f : finish_) f();
  }

 private:
  static std::string Last(const std::string& names) {
    const size_t comma = names.rfind(',');
    return comma == std::string::npos ? names : names.substr(comma + 1);
  }

  CLI::Option* Add(const std::string& names, const std::string& type, const std::string& help,
                   std::function<void(const std::string&)> set) {
    return app_->add_option_function<std::string>(names, set, help)->type_name(type);
  }

  CLI::App* const app_;
  std::deque<std::string> texts_;
  std::vector<std::function<void()>> finish_;
};

void AddExecute(Options* o, CLI::App* sub, ExecuteArgs* a) {
  sub->add_option("--input", a->inputs, "NAME=FILE.npy or NAME=LITERAL: the same value for every execution; may be repeated")
      ->type_name("NAME=VALUE")
      ->expected(1)
      ->take_all();
  sub->add_option("--input-each", a->inputs_each, "NAME=FILE.npy: execution i gets slice i of axis 0; may be repeated")
      ->type_name("NAME=FILE.npy")
      ->expected(1)
      ->take_all();
  o->OptionalInt("--repeat", &a->repeat, 1, kMaxExecutions, "executions; default: the slices of --input-each, else 1");
  o->Int("--in-flight", &a->in_flight, 1, 1024, "executions under way at once; default: as the graph says");
  o->Text("--output", &a->output_dir, "write output NAME of execution i to DIR/NAME/00000i.npy")->type_name("DIR");
  o->Seconds("--deadline", &a->deadline_s, 365.0 * 86400, "time within which each execution must be done, such as 500ms; default: none");
}

void AddOffline(Options* o, CLI::App* sub, OfflineArgs* a) {
  sub->add_option("FILE", a->file, "graph file (.textproto or JSON), or plan file (text, JSON or wire form)")->type_name("")->required();
  o->Text("--cluster", &a->cluster_file, "workers, hosts, devices, links and byte limits; default: as the graph names its workers")
      ->type_name("FILE");
  o->Text("--costs", &a->costs_file, "times of nodes, edges and collectives; default: those of std.Delay and emulated links")->type_name("FILE");
  o->Text("--workers", &a->workers, "of a graph: number, or NAME[@HOST],...; default: CPU workers of one host, as the graph names them")
      ->type_name("LIST");
  o->OnOff("--overlap", &a->overlap, "of a graph: overrides its options.overlap");
}

// The defaults as the help says them.
void AddSchedule(Options* o, PipelineArgs* a, const std::string& cost, const std::string& hop) {
  o->Text("--schedule", &a->schedule,
          "forward-only, gpipe, 1f1b, eager-1f1b, interleaved-1f1b, looped-bfs, zb-h1, zb-h2, zbv, dualpipe-v, auto, or csv:FILE")
      ->type_name("NAME")
      ->required();
  o->Int("--stages", &a->stages, 1, 4096, "workers of the pipeline")->required();
  o->Int("--microbatches", &a->microbatches, 1, 100'000'000, "microbatches")->required();
  o->Int("--chunks", &a->chunks, 1, 64, "stages a worker; default: as the schedule has, 1 for auto");
  o->OneOf("--placement", &a->placement, {"loop", "v"},
           "of auto's stages: s on worker s mod p, or r and 2p-1-r on worker r; default: the better");
  o->Text("--cost", &a->cost,
          "F=T,I=T,W=T[,FB=FACTOR]: times of a worker's forward, input gradient, weight gradient, and factor of F and B at once; "
          "T1:T2:... gives each stage its own; default " + cost)
      ->type_name("COSTS");
  o->Text("--hop", &a->hop, "time of a value from one worker to another; default " + hop)->type_name("TIME");
  o->Text("--memory", &a->memory, "f=BYTES,w=-BYTES: F adds f, I adds -(f+w), W adds w")->type_name("BYTES");
  o->Text("--cap-activations", &a->cap_activations, "microbatches that any worker may hold")->type_name("X");
  o->Text("--cap-bytes", &a->cap_bytes, "bytes that any worker may hold, with --memory")->type_name("X");
}

// Which subcommand was given, with its data in place.
class Parser {
 public:
  Parser() : app_("", "weft"), common_(&app_) {
    app_.description(kAppHelp);
    app_.footer(kAppFooter);
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.get_formatter()->column_width(34);
    common_.Flag("--json", &parsed_.common.json, "print JSON instead of text");
    common_.Text("--address", &parsed_.common.address, "driver's HOST:PORT; default: $WEFT_ADDRESS, then the cluster's address file")
        ->type_name("HOST:PORT");
    common_.Text("--cluster,--name", &parsed_.common.cluster, "name of a local cluster; default: $WEFT_CLUSTER, then \"default\"")
        ->type_name("NAME");
    common_.Text("--token-file", &parsed_.common.token_file,
                 "file whose first line is the driver's join token; default: $WEFT_TOKEN_FILE, then no token")
        ->type_name("FILE");
    AddClusterCommands();
    AddGraphCommands();
    AddMeasuringCommands();
    AddOfflineCommands();
  }

  absl::StatusOr<ParsedArgs> Parse(const std::vector<std::string>& args) {
    try {
      app_.parse(std::vector<std::string>(args.rbegin(), args.rend()));
      common_.Finish();
      for (const auto& [sub, command] : commands_) {
        if (sub->parsed()) {
          command.options->Finish();
          parsed_.command = command.data();
        }
      }
      return parsed_;
    } catch (const CLI::CallForHelp&) {
      const CLI::App* which = &app_;
      std::string before;
      while (!which->get_subcommands().empty()) {
        absl::StrAppend(&before, before.empty() ? "" : " ", which->get_name());
        which = which->get_subcommands().front();
      }
      parsed_.help = which->help(before);
      if (which != &app_) absl::StrAppend(&*parsed_.help, "\nEvery command also takes --json, --address, --cluster and --token-file: see `weft --help`.\n");
      return parsed_;
    } catch (const CLI::RequiredError& e) {
      // What is required may be missing because it was misspelt: what was not understood says more.
      const std::vector<std::string> rest = app_.remaining(true);
      return absl::InvalidArgumentError(absl::StrCat(rest.empty() ? e.what() : absl::StrCat("\"", rest.front(), "\" is no command or option"),
                                                     "\nRun `weft --help` or `weft COMMAND --help` for what there is."));
    } catch (const CLI::ParseError& e) {
      return absl::InvalidArgumentError(absl::StrCat(e.what(), "\nRun `weft --help` or `weft COMMAND --help` for what there is."));
    }
  }

 private:
  struct Command {
    std::shared_ptr<Options> options;
    std::function<CommandArgs()> data;
  };

  template <typename T>
  std::pair<CLI::App*, Options*> Add(CLI::App* under, const std::string& name, T* args, const std::string& help, const char* footer) {
    CLI::App* sub = under->add_subcommand(name, help);
    sub->footer(footer);
    sub->fallthrough();
    auto options = std::make_shared<Options>(sub);
    commands_.emplace_back(sub, Command{options, [args] { return CommandArgs(*args); }});
    return {sub, options.get()};
  }

  void AddClusterCommands() {
    {
      auto [sub, o] = Add(&app_, "up", &up_, "start a local cluster: a driver and workers, watched and restarted", kUpFooter);
      o->Int("--workers", &up_.workers, 1, 1024, "number of workers, w0, w1, ...; default 4");
      o->OneOf("--device", &up_.device, {"cpu", "cuda"}, "what the workers run on; default cpu");
      o->Flag("--detach", &up_.detach, "return once all workers are registered; `weft down` ends the cluster");
      o->Flag("--verbose", &up_.verbose, "logs of the processes go to stderr instead of files in the cluster's directory");
      o->Text("--state-dir", &up_.state_dir, "where the driver keeps its graphs; default: with the cluster, and gone with it")
          ->type_name("DIR");
      o->Text("--listen", &up_.listen, "where the driver listens; default 127.0.0.1:0, a free port")->type_name("HOST:PORT");
      o->OneOf("--log-level", &up_.log_level, {"trace", "debug", "info", "warn", "error", "off"}, "of driver and workers; default info");
      o->Seconds("--timeout", &up_.timeout_s, 3600, "within which all workers must be registered; default 30s");
    }
    {
      auto [sub, o] = Add(&app_, "down", &down_, "end a local cluster and remove what it left", kDownFooter);
      o->Seconds("--timeout", &down_.timeout_s, 3600, "after which the cluster is killed; default 10s");
    }
    Add(&app_, "workers", &workers_, "list the workers", "");
    Add(&app_, "graphs", &graphs_, "list the compiled graphs", "");
    {
      auto [sub, o] = Add(&app_, "inspect", &inspect_, "per worker and lane: current op, what it waits for, since when", kInspectFooter);
      sub->add_option("GRAPH", inspect_.graph, "name of a compiled graph; default: all")->type_name("");
    }
    {
      auto [sub, o] = Add(&app_, "doctor", &doctor_, "look at this machine: what weft needs, what is missing, what to do about it", kDoctorFooter);
      o->OneOf("--device", &doctor_.device, {"auto", "cpu", "cuda"}, "auto (default): GPUs too, if there are some; cuda: there must be one; cpu: no GPU");
      sub->add_flag("--probe", doctor_.probe)->group("");  // for the processes that it starts
    }
    Add(&app_, "version", &version_, "print the version", "");
  }

  void AddGraphCommands() {
    {
      auto [sub, o] = Add(&app_, "run", &run_, "compile a graph file, execute it, tear it down", kRunFooter);
      sub->add_option("GRAPH", run_.graph_file, "graph file (.textproto or JSON)")->type_name("")->required();
      AddExecute(o, sub, &run_.execute);
      o->OnOff("--overlap", &run_.overlap, "overrides options.overlap of the graph");
      o->Text("--trace", &run_.trace_file, "write the timeline to FILE.svg or FILE.json")->type_name("FILE");
      o->Text("--costs", &run_.costs_file, "times of nodes, edges and collectives, for `order: COST` and `overlap: AUTO`")->type_name("FILE");
      o->Flag("--keep", &run_.keep, "leave the graph compiled, for `weft execute`, `weft trace`, `weft inspect`");
    }
    {
      auto [sub, o] = Add(&app_, "compile", &compile_, "compile a graph file and leave it ready to execute", kCompileFooter);
      sub->add_option("GRAPH", compile_.graph_file, "graph file (.textproto or JSON)")->type_name("")->required();
      o->OnOff("--overlap", &compile_.overlap, "overrides options.overlap of the graph");
      o->Text("--costs", &compile_.costs_file, "times of nodes, edges and collectives, for `order: COST` and `overlap: AUTO`")->type_name("FILE");
      o->OnOff("--trace", &compile_trace_, "record op times for `weft trace`; default on");
    }
    {
      auto [sub, o] = Add(&app_, "execute", &execute_, "execute a compiled graph", kExecuteFooter);
      sub->add_option("NAME", execute_.graph, "name of a compiled graph")->type_name("")->required();
      AddExecute(o, sub, &execute_.execute);
    }
    {
      auto [sub, o] = Add(&app_, "teardown", &teardown_, "remove a compiled graph from driver and workers", "");
      sub->add_option("NAME", teardown_.graph, "name of a compiled graph")->type_name("")->required();
      o->Seconds("--drain", &teardown_.drain_s, 86400, "time that executions in flight may take to finish; default 10s");
    }
    {
      auto [sub, o] = Add(&app_, "trace", &trace_, "write the timeline of a compiled graph's last executions", kTraceFooter);
      sub->add_option("NAME", trace_.graph, "name of a compiled graph")->type_name("")->required();
      o->Text("-o,--output", &trace_.file, "FILE.svg (a picture) or FILE.json (Perfetto, chrome://tracing)")->type_name("FILE")->required();
      o->Int("--executions", &trace_.executions, 1, kMaxExecutions, "only so many of the last; default: all that are kept");
    }
  }

  void AddMeasuringCommands() {
    {
      auto [sub, o] = Add(&app_, "profile", &profile_, "measure what a graph's nodes, edges and collectives take, and write a cost file", kProfileFooter);
      sub->add_option("GRAPH", profile_.graph_file, "graph file (.textproto or JSON)")->type_name("")->required();
      AddExecute(o, sub, &profile_.execute);
      o->OptionalInt("--executions", &profile_.execute.repeat, 2, 100000, "how many; as --repeat; default 20");
      sub->get_option("--executions")->excludes("--repeat");
      o->OnOff("--overlap", &profile_.overlap, "overrides options.overlap of the graph");
      o->Text("-o", &profile_.output_file, "write the costs to FILE; default: stdout")->type_name("FILE");
    }
    {
      auto [sub, o] = Add(&app_, "replan", &replan_, "find a faster order for a graph that others execute meanwhile, and keep it if it is", kReplanFooter);
      sub->add_option("NAME", replan_.graph, "name of a compiled graph")->type_name("")->required();
      o->Text("--costs", &replan_.costs_file, "times of nodes, edges and collectives; default: measured")->type_name("FILE");
      o->Flag("--measure", &replan_.measure, "take the costs from the trace of the last executions (the default without --costs)");
      o->Int("--executions", &replan_.executions, 1, 2048, "on which each of the two plans is measured; default 20");
      o->Seconds("--timeout", &replan_.timeout_s, 86400, "within which these must have run, for each plan; default 60s");
    }
  }

  void AddOfflineCommands() {
    {
      auto [sub, o] = Add(&app_, "plan", &plan_, "compile a graph file offline and print its plan; needs no daemon", kPlanFooter);
      AddOffline(o, sub, &plan_.offline);
      o->OneOf("--format", &plan_.format, {"text", "json", "wire"}, "default text");
      o->Text("-o,--output", &plan_.output_file, "write the plan to FILE instead of stdout")->type_name("FILE");
      o->Int("--simulate", &plan_.simulate, 1, 1'000'000, "print the predicted times of N executions instead of the plan");
      o->Int("--in-flight", &plan_.in_flight, 1, 1024, "executions under way at once in the simulation; default: as the graph says");
      o->Text("--draw", &plan_.draw_file, "write the predicted timeline to FILE.svg or FILE.json")->type_name("FILE");
      o->Flag("--timing", &plan_.timing, "print what each pass took, on stderr");
    }
    {
      auto [sub, o] = Add(&app_, "simulate", &simulate_, "predict the times and bytes of a graph or plan; needs no daemon", kSimulateFooter);
      AddOffline(o, sub, &simulate_.offline);
      o->Int("--executions", &simulate_.executions, 1, 1'000'000, "default 6");
      o->Int("--in-flight", &simulate_.in_flight, 1, 1024, "executions under way at once; default: as the graph says");
      o->Flag("--end-barrier", &simulate_.end_barrier, "no execution starts before every op of the last one is done, on all workers");
      o->Flag("--bytes", &simulate_.bytes, "with --json: bytes of each worker over time; with --draw: curves of them in the picture");
      o->Text("--draw", &simulate_.draw_file, "write the predicted timeline to FILE.svg or FILE.json")->type_name("FILE");
    }
    {
      auto [sub, o] = Add(&app_, "verify", &verify_, "prove a graph's plan, or a plan, free of deadlock and races; needs no daemon", kVerifyFooter);
      AddOffline(o, sub, &verify_.offline);
    }
    {
      auto [sub, o] = Add(&app_, "draw", &draw_, "draw a graph or a plan; needs no daemon", kDrawFooter);
      AddOffline(o, sub, &draw_.offline);
      o->OneOf("--format", &draw_.format, {"svg", "dot"}, "svg (default) stands by itself; dot is for Graphviz");
      o->OneOf("--what", &draw_.what, {"graph", "plan"}, "default: what the file is");
      o->Text("-o,--output", &draw_.output_file, "write to FILE instead of stdout")->type_name("FILE");
      o->Int("--executions", &draw_.executions, 1, 64, "of a plan, in its SVG; default 1");
      o->Int("--in-flight", &draw_.in_flight, 1, 1024, "executions under way at once; default: as the graph says");
    }
    {
      auto [sub, o] = Add(&app_, "pipeline", &pipeline_, "make a pipeline schedule offline: its orders, times and memory", kPipelineFooter);
      AddSchedule(o, &pipeline_, "1 each", "0");
      o->OneOf("--format", &pipeline_.format, {"json", "text", "csv", "svg", "graph"},
               "default text; graph is a graph file for `weft run`");
      o->Text("--mlp", &pipeline_.mlp,
              "N0,N1,...: the graph trains a multi-layer perceptron with so many features in its input and each layer's output; with --format graph")
          ->type_name("WIDTHS");
      o->Int("--rows", &pipeline_.rows, 1, int64_t{1} << 31, "of --mlp: rows of a microbatch; default 16");
      o->Text("--learning-rate", &pipeline_.learning_rate, "of --mlp; default 0.1")->type_name("X");
      o->Int("--seed", &pipeline_.seed, 0, std::numeric_limits<int64_t>::max(), "of --mlp's first weights; default 1");
      o->OneOf("--activation", &pipeline_.activation, {"none", "relu", "tanh", "sigmoid"}, "of --mlp's layers but the last; default relu");
      o->OneOf("--dtype", &pipeline_.dtype, {"F32", "F64", "F16", "BF16"}, "of --mlp; default F32; halves for GPU workers");
      o->OnOff("--weights", &pipeline_.weights, "of --mlp: whether the weights after each step are outputs; default on");
      o->Int("--in-flight", &pipeline_.in_flight, 1, 1024, "of --mlp: steps under way at once; default 1");
      for (const char* of_mlp : {"--rows", "--learning-rate", "--seed", "--activation", "--dtype", "--weights", "--in-flight"}) {
        sub->get_option(of_mlp)->needs("--mlp");
      }
    }
    {
      CLI::App* bench = app_.add_subcommand("bench", "measurements with a prediction beside them");
      bench->require_subcommand(1);
      bench->footer(kBenchFooter);
      bench->fallthrough();
      auto [sub, o] = Add(bench, "overlap", &bench_, "three senders, one receiver: overlap off, on, on with several in flight", kBenchOverlapFooter);
      o->Int("--executions", &bench_.executions, 2, 100000, "of each kind; default 20");
      o->Seconds("--delay", &bench_.delay_s, 60, "of each of the receiver's three computations; default 10ms");
      o->Seconds("--transfer", &bench_.transfer_s, 60, "of each of the three emulated transfers; default 10ms");
      o->Int("--in-flight", &bench_.in_flight, 1, 1024, "executions under way at once in the third kind; default 4");
      o->Text("--trace", &bench_.trace_file, "write the third kind's timeline to FILE.svg or FILE.json")->type_name("FILE");
      auto [pipeline, p] = Add(bench, "pipeline", &bench_pipeline_, "a pipeline schedule run by workers, against its prediction", kBenchPipelineFooter);
      AddSchedule(p, &bench_pipeline_.pipeline, "10ms each", "1ms");
      p->Int("--executions", &bench_pipeline_.executions, 1, 100000, "whose median is taken; default 15");
      p->Int("--in-flight", &bench_pipeline_.pipeline.in_flight, 1, 1024,
             "above 1: the seconds an execution takes with so many under way at once are measured as well; default 1");
    }
  }

  CLI::App app_;
  ParsedArgs parsed_;
  Options common_;
  std::vector<std::pair<CLI::App*, Command>> commands_;

  UpArgs up_;
  DownArgs down_;
  RunArgs run_;
  CompileArgs compile_;
  std::optional<bool> compile_trace_;
  ExecuteNamedArgs execute_;
  TeardownArgs teardown_;
  WorkersArgs workers_;
  GraphsArgs graphs_;
  InspectArgs inspect_;
  PlanArgs plan_;
  SimulateArgs simulate_;
  VerifyArgs verify_;
  DrawArgs draw_;
  PipelineArgs pipeline_;
  TraceArgs trace_;
  ProfileArgs profile_;
  ReplanArgs replan_;
  BenchOverlapArgs bench_;
  BenchPipelineArgs bench_pipeline_;
  DoctorArgs doctor_;
  VersionArgs version_;

 public:
  std::optional<bool> compile_trace() const { return compile_trace_; }
};

}  // namespace

absl::StatusOr<ParsedArgs> ParseArgs(const std::vector<std::string>& args) {
  Parser parser;
  // `weft help COMMAND` is `weft COMMAND --help`.
  const bool help = !args.empty() && args[0] == "help";
  std::vector<std::string> words(args.begin() + (help ? 1 : 0), args.end());
  if (help) words.push_back("--help");
  auto parsed = parser.Parse(words);
  if (help && words.size() > 1 && parsed.ok() && parsed->help == Parser().Parse({"--help"})->help) {
    return absl::InvalidArgumentError(absl::StrCat("\"", words[0], "\" is no command\nRun `weft --help` for what there is."));
  }
  if (!parsed.ok() || parsed->help) return parsed;
  if (auto* compile = std::get_if<CompileArgs>(&parsed->command)) compile->trace = parser.compile_trace().value_or(true);
  std::string picture;
  if (auto* run = std::get_if<RunArgs>(&parsed->command)) picture = run->trace_file;
  if (auto* plan = std::get_if<PlanArgs>(&parsed->command)) picture = plan->draw_file;
  if (auto* simulate = std::get_if<SimulateArgs>(&parsed->command)) picture = simulate->draw_file;
  if (auto* trace = std::get_if<TraceArgs>(&parsed->command)) picture = trace->file;
  if (auto* bench = std::get_if<BenchOverlapArgs>(&parsed->command)) picture = bench->trace_file;
  if (!picture.empty()) {
    auto format = PictureFormat(picture);
    if (!format.ok()) return format.status();
  }
  return parsed;
}

absl::StatusOr<std::pair<std::string, std::string>> SplitAssignment(const std::string& option, const std::string& text) {
  const size_t eq = text.find('=');
  if (eq == std::string::npos || eq == 0 || eq + 1 == text.size()) {
    return absl::InvalidArgumentError(absl::StrCat(option, ": \"", text, "\" is not NAME=VALUE"));
  }
  return std::make_pair(text.substr(0, eq), text.substr(eq + 1));
}

absl::StatusOr<std::string> PictureFormat(const std::string& file) {
  if (absl::EndsWith(file, ".svg")) return std::string(".svg");
  if (absl::EndsWith(file, ".json")) return std::string(".json");
  return absl::InvalidArgumentError(absl::StrCat("\"", file, "\": a timeline is written as FILE.svg or FILE.json"));
}

}  // namespace weft
