// std.Mlp.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/classes/infer.h"
#include "common/classes/mlp_stage.h"
#include "common/classes/std_signatures.h"

namespace weft {
namespace {

absl::Status CheckMlp(const v1::Config& config) { return ReadMlpStage(config).status(); }

Spec Rows(const MlpStage& s, int64_t width) { return {s.dtype, Shape::Of({s.rows, width})}; }
Spec One(const MlpStage& s) { return {s.dtype, Shape::Of({1})}; }

absl::Status Expect(const Specs& args, int i, const Spec& want, const char* what) {
  if (args[i] == want) return absl::OkStatus();
  return BadArg(i, args[i], absl::StrCat(what, " is ", want.ToString(), " by config.rows and config.widths"));
}

absl::StatusOr<Specs> InferForward(const v1::Config& config, const Specs& args) {
  WEFT_ASSIGN_OR_RETURN(const MlpStage s, ReadMlpStage(config));
  WEFT_RETURN_IF_ERROR(ReadMlpCall(config, s).status());
  if (args.size() != (s.loss ? 2u : 1u)) {
    return absl::InvalidArgumentError(s.loss ? "forward of a stage with config.loss takes x and the targets"
                                             : "forward of a stage without config.loss takes x alone");
  }
  WEFT_RETURN_IF_ERROR(Expect(args, 0, Rows(s, s.widths.front()), "x"));
  if (!s.loss) return Specs{Rows(s, s.widths.back())};
  WEFT_RETURN_IF_ERROR(Expect(args, 1, Rows(s, s.widths.back()), "the targets"));
  return Specs{One(s)};
}

// Both backward methods take the gradient of the stage's output, or the last stage its loss.
absl::StatusOr<Specs> InferBackward(const v1::Config& config, const Specs& args) {
  WEFT_ASSIGN_OR_RETURN(const MlpStage s, ReadMlpStage(config));
  WEFT_RETURN_IF_ERROR(ReadMlpCall(config, s).status());
  WEFT_RETURN_IF_ERROR(s.loss ? Expect(args, 0, One(s), "the loss")
                              : Expect(args, 0, Rows(s, s.widths.back()), "the gradient of the output"));
  return Specs{s.first() ? One(s) : Rows(s, s.widths.front())};
}

absl::StatusOr<Specs> InferWeightGrad(const v1::Config& config, const Specs&) {
  WEFT_ASSIGN_OR_RETURN(const MlpStage s, ReadMlpStage(config));
  WEFT_RETURN_IF_ERROR(ReadMlpCall(config, s).status());
  return Specs{One(s)};
}

absl::StatusOr<Specs> InferStep(const v1::Config& config, const Specs&) {
  WEFT_ASSIGN_OR_RETURN(const MlpStage s, ReadMlpStage(config));
  if (!config.has_learning_rate()) return absl::InvalidArgumentError("config.learning_rate is missing; set it for the actor, such as 0.01");
  return Specs{One(s)};
}

absl::StatusOr<Specs> InferWeights(const v1::Config& config, const Specs&) {
  WEFT_ASSIGN_OR_RETURN(const MlpStage s, ReadMlpStage(config));
  return Specs{Spec{s.dtype, Shape::Of({s.parameters()})}};
}

}  // namespace

void AddMlpClass(ClassTable* table) {
  const std::vector<std::string> of_actor = {"dtype", "seed",  "activation", "precision",     "widths", "first_layer",
                                             "rows",  "slots", "loss",       "learning_rate", "microbatches"};
  std::vector<std::string> all = of_actor;
  all.insert(all.end(), {"microbatch", "slot"});
  const std::vector<std::string> of_call = {"microbatch", "slot"}, none;
  table->Add({"std.Mlp",
              "A stage of a multi-layer perceptron in training: forward, input gradient, weight gradient, optimizer step.",
              all,
              of_actor,
              CheckMlp,
              {{"forward", 1, 2, of_call, InferForward},
               {"input_grad", 1, 1, of_call, InferBackward},
               {"weight_grad", 1, 1, of_call, InferWeightGrad},
               {"backward", 1, 1, of_call, InferBackward},
               {"step", 1, -1, none, InferStep},
               {"weights", 0, 1, none, InferWeights}}});
}

}  // namespace weft
