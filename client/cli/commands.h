#pragma once

// What each subcommand does. All run on the main thread, print their result to stdout and return how they ended.

#include "client/cli/args.h"
#include "client/cli/exit_code.h"

namespace weft {

// `up` must be called before the process has a second thread: it forks, and watches its children by signals.
Outcome RunUp(const CommonArgs& common, const UpArgs& args);
Outcome RunDown(const CommonArgs& common, const DownArgs& args);

Outcome RunRun(const CommonArgs& common, const RunArgs& args);
Outcome RunCompile(const CommonArgs& common, const CompileArgs& args);
Outcome RunExecute(const CommonArgs& common, const ExecuteNamedArgs& args);
Outcome RunTeardown(const CommonArgs& common, const TeardownArgs& args);

Outcome RunWorkers(const CommonArgs& common);
Outcome RunGraphs(const CommonArgs& common);
Outcome RunInspect(const CommonArgs& common, const InspectArgs& args);

Outcome RunPlan(const CommonArgs& common, const PlanArgs& args);
Outcome RunSimulate(const CommonArgs& common, const SimulateArgs& args);
Outcome RunVerify(const CommonArgs& common, const VerifyArgs& args);
Outcome RunDraw(const CommonArgs& common, const DrawArgs& args);
Outcome RunPipeline(const CommonArgs& common, const PipelineArgs& args);
Outcome RunTrace(const CommonArgs& common, const TraceArgs& args);
Outcome RunProfile(const CommonArgs& common, const ProfileArgs& args);
Outcome RunReplan(const CommonArgs& common, const ReplanArgs& args);
Outcome RunBenchOverlap(const CommonArgs& common, const BenchOverlapArgs& args);
Outcome RunBenchPipeline(const CommonArgs& common, const BenchPipelineArgs& args);
Outcome RunDoctor(const CommonArgs& common, const DoctorArgs& args);

}  // namespace weft
