// What    gemmctl run: one GEMM from files or random numbers, compared with a reference.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/gemmctl/command.h"
#include "client/gemmctl/execution_report.h"
#include "client/gemmctl/expected_product.h"
#include "client/gemmctl/export_file.h"
#include "client/gemmctl/format_text.h"
#include "client/gemmctl/layer_source.h"
#include "client/gemmctl/matrix_file.h"
#include "client/gemmctl/numbers.h"
#include "client/gemmctl/reference.h"
#include "client/gemmctl/table.h"
#include "client/gemmctl/workspace.h"
#include "kernels/base/status.h"
#include "kernels/contract/quantize_args.h"

namespace gemmd::gemmctl {
namespace {

struct Problem {
  LayerSource source;
  v1::DataType dtype = v1::DATA_TYPE_BFLOAT16;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  std::vector<double> x;  // as rounded to dtype
  bool batch_invariant = false;
  uint64_t numerics = 0;
  std::string quantized;  // by the daemon, as text
  double quantization_error = 0;
  uint32_t hadamard_block = 0;
  bool fp16_accumulation = false;
};

struct Outcome {
  std::vector<double> y;
  v1::GemmResponse response;
  std::string memory;
};

absl::StatusOr<std::vector<double>> RoundTo(v1::DataType dtype, const std::vector<double>& values) {
  GEMMD_ASSIGN_OR_RETURN(const Bytes bytes, Encode(dtype, values));
  return Decode(dtype, bytes);
}

// What the arguments alone say of x and of the weights; read before anything is loaded.
struct Input {
  std::optional<Array> x;
  std::optional<Array> expected;
  int64_t m = 0;  // without x: rows of random numbers
  uint64_t seed = 0;
};

absl::StatusOr<Array> ReadExpected(const Arguments& arguments) {
  GEMMD_ASSIGN_OR_RETURN(Array weights, ReadArray(arguments.Text("expected")));
  if (weights.shape.size() == 2) return weights;
  return BadArgument(absl::StrCat("--expected ", arguments.Text("expected"), " has ",
                                  weights.shape.size(), " extents, expected weights [N, K]"));
}

// Weights and layer must be of one shape.
absl::Status CheckExpected(const Input& input, const Problem& problem) {
  if (!input.expected.has_value()) return absl::OkStatus();
  const std::vector<int64_t>& shape = input.expected->shape;
  if (shape == std::vector<int64_t>{problem.n, problem.k}) return absl::OkStatus();
  return BadArgument(absl::StrCat("--expected is [", shape[0], ", ", shape[1],
                                  "], expected [N, K] = [", problem.n, ", ", problem.k, "]"));
}

absl::StatusOr<Input> ReadInput(const Arguments& arguments) {
  Input input;
  if (arguments.Has("expected")) {
    GEMMD_ASSIGN_OR_RETURN(input.expected, ReadExpected(arguments));
  }
  if (arguments.Has("x")) {
    GEMMD_ASSIGN_OR_RETURN(input.x, ReadArray(arguments.Text("x")));
    return input;
  }
  GEMMD_ASSIGN_OR_RETURN(input.m, arguments.Integer("random", 0, int64_t{1} << 24));
  GEMMD_ASSIGN_OR_RETURN(const int64_t seed, arguments.Integer("seed", 0, INT64_MAX));
  input.seed = static_cast<uint64_t>(seed);
  return input;
}

absl::Status FillX(const Arguments& arguments, Input& input, Problem* problem) {
  std::vector<double> values;
  if (input.x.has_value()) {
    Array& array = *input.x;
    if (array.shape.empty() || array.shape.back() != problem->k) {
      return BadArgument(
          absl::StrCat("--x ", arguments.Text("x"), " does not end in K = ", problem->k));
    }
    problem->m = problem->k == 0 ? 0 : array.size() / problem->k;
    values = std::move(array.values);
  } else {
    problem->m = input.m;
    values = RandomNormal(input.seed, problem->m * problem->k);
  }
  GEMMD_ASSIGN_OR_RETURN(problem->x, RoundTo(problem->dtype, values));
  return absl::OkStatus();
}

absl::StatusOr<Outcome> RunOn(const Context& context, client::Session& session, const client::Layer& layer,
                              const Problem& problem, const std::string& device,
                              const std::string& memory, v1::DataType y_type) {
  const uint64_t bytes =
      PlacedBytes(problem.dtype, problem.m, problem.k) + PlacedBytes(y_type, problem.m, problem.n);
  GEMMD_ASSIGN_OR_RETURN(Workspace workspace, Workspace::Create(session, device, memory, bytes));
  client::Gemm gemm{.layer = &layer,
                    .batch_invariant = problem.batch_invariant,
                    .hadamard_block = problem.hadamard_block,
                    .fp16_accumulation = problem.fp16_accumulation};
  if (device == problem.source.device) gemm.numerics = problem.numerics;  // the reference has its own
  GEMMD_ASSIGN_OR_RETURN(gemm.x, workspace.Put(problem.dtype, problem.m, problem.k, problem.x));
  GEMMD_ASSIGN_OR_RETURN(gemm.y, workspace.Place(y_type, problem.m, problem.n));
  Outcome outcome;
  outcome.memory = workspace.kind();
  const absl::Time deadline = absl::Now() + context.long_timeout.value_or(absl::Minutes(10));
  GEMMD_ASSIGN_OR_RETURN(outcome.response, session.Run(gemm, deadline));
  GEMMD_ASSIGN_OR_RETURN(outcome.y, workspace.Get(gemm.y));
  return outcome;
}

struct Reference {
  std::vector<double> y;
  std::string text;
  double least_bound = 0;
};

// What quantizing x to 8 bits may cost; 3 % with e4m3.
constexpr double kQuantizationError = 0.1;

// With --expected from dequantized weights, here, in double precision; else the same request with
// float32 output on the daemon's CPU device, which computes exactly. `outcome` tells what the product
// took as x.
absl::StatusOr<Reference> MakeReference(const Context& context, std::optional<Array> expected,
                                        client::Session& session, const client::Layer& judged,
                                        const Problem& problem, const Outcome& outcome) {
  if (expected.has_value()) {
    GEMMD_ASSIGN_OR_RETURN(
        std::vector<double> product,
        ExpectedProduct(problem.source, judged.info(), outcome.response.report(),
                        std::move(expected->values), problem.x));
    return Reference{std::move(product), "weights of --expected, double precision"};
  }
  GEMMD_ASSIGN_OR_RETURN(const client::Layer layer,
                         RegisterWithProgress(context, session, problem.source, "cpu"));
  GEMMD_ASSIGN_OR_RETURN(Outcome exact,
                         RunOn(context, session, layer, problem, "cpu", "daemon",
                               v1::DATA_TYPE_FLOAT32));
  Reference reference{std::move(exact.y), "CPU device of the daemon, exact, float32 output"};
  const uint32_t used = outcome.response.report().activation_used().bits();
  const uint32_t exact_used = exact.response.report().activation_used().bits();
  if ((used == 8) != (exact_used == 8)) {
    absl::StrAppend(&reference.text, used == 8 ? "; it did not quantize x" : "; it quantized x");
    reference.least_bound = kQuantizationError;
  }
  return reference;
}

// Results that are nothing but NaN and infinity prove nothing; a request without rows has none.
bool IsGood(const Problem& problem, const ErrorReport& error, double bound) {
  return error.Within(bound) && (error.compared > 0 || problem.m * problem.n == 0);
}

std::string Verdict(const Problem& problem, const ErrorReport& error, double bound) {
  if (problem.m * problem.n == 0) return "none: y has no numbers";
  if (error.compared == 0) {
    return absl::StrCat("NOT PROVEN: all ", problem.m * problem.n,
                        " numbers of y are NaN or infinite, as the reference's");
  }
  return absl::StrCat(error.Within(bound) ? "within " : "OUTSIDE ", bound);
}

void PrintReport(const Context& context, const Problem& problem, const Outcome& outcome,
                 const Reference& reference, const ErrorReport& error, double bound) {
  const v1::ExecutionReport& report = outcome.response.report();
  if (context.json) {
    context.PrintJson({{"m", problem.m},
                       {"n", problem.n},
                       {"k", problem.k},
                       {"dtype", DataTypeName(problem.dtype)},
                       {"memory", outcome.memory},
                       {"report", ReportJson(report)},
                       {"quantization_error", problem.quantization_error},
                       {"reference", reference.text},
                       {"compared", error.compared},
                       {"relative_frobenius_error", error.relative_frobenius},
                       {"max_abs_error", error.max_abs},
                       {"worst",
                        {{"row", error.worst_row},
                         {"column", error.worst_column},
                         {"got", error.got},
                         {"want", error.want}}},
                       {"bad_special", error.bad_special},
                       {"nan", error.nan},
                       {"infinite", error.infinite},
                       {"bound", bound},
                       {"ok", IsGood(problem, error, bound)}});
    return;
  }
  Table table({"", ""});
  table.Add({"layer", absl::StrCat(problem.source.module, " on ", problem.source.device_text)});
  table.Add({"M x N x K", absl::StrCat(problem.m, " x ", problem.n, " x ", problem.k, ", ",
                                       DataTypeName(problem.dtype), ", memory ", outcome.memory)});
  table.Add({"kernel", report.kernel()});
  const std::string numerics = NumericsText(report);
  // Those of another request cannot be named.
  if (problem.batch_invariant && !numerics.empty()) table.Add({"numerics", numerics});
  if (problem.fp16_accumulation) table.Add({"sums", SumsText(report)});
  if (!report.reason().empty()) table.Add({"note", report.reason()});
  if (!problem.quantized.empty()) table.Add({"quantized", problem.quantized});
  if (report.hadamard_block() > 0) {
    table.Add({"x", absl::StrCat("transformed by Hadamard blocks of ", report.hadamard_block(), " columns")});
  }
  table.Add({"in the daemon", absl::StrCat(MicrosecondsText(report.queue_us()), " queued, ",
                                           MicrosecondsText(report.execute_us()), " executing")});
  table.Add({"reference", reference.text});
  if (error.nan + error.infinite > 0) {
    table.Add({"not finite", absl::StrCat(error.nan, " NaN and ", error.infinite, " infinite of ",
                                          problem.m * problem.n, " numbers of y")});
  }
  table.Add({"error", error.Text()});
  table.Add({"verdict", Verdict(problem, error, bound)});
  context.Print(table.Text());
}

absl::Status SetOptions(const Arguments& arguments, Problem* problem) {
  GEMMD_ASSIGN_OR_RETURN(const int64_t block, arguments.Integer("hadamard", 0, kLargestHadamardBlock));
  problem->hadamard_block = static_cast<uint32_t>(block);
  problem->fp16_accumulation = arguments.Has("fp16-accumulation");
  problem->batch_invariant = arguments.Has("batch-invariant") || arguments.Has("numerics");
  if (!arguments.Has("numerics")) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(problem->numerics, ParseNumerics(arguments.Text("numerics")));
  return absl::OkStatus();
}

absl::StatusOr<int> RunRun(const Context& context, const Arguments& arguments) {
  if (arguments.Has("x") == arguments.Has("random")) {
    return BadArgument("exactly one of --x and --random is needed");
  }
  if (arguments.Has("force") && !arguments.Has("y")) return BadArgument("--force needs --y");
  Problem problem;
  GEMMD_ASSIGN_OR_RETURN(problem.dtype, ParseDataType(arguments.Text("dtype")));
  GEMMD_ASSIGN_OR_RETURN(const double asked_bound, arguments.Number("max-error", 0, 1e30));
  GEMMD_RETURN_IF_ERROR(SetOptions(arguments, &problem));
  GEMMD_RETURN_IF_ERROR(Workspace::CheckKind(arguments.Text("memory")));
  GEMMD_RETURN_IF_ERROR(CheckSource(arguments));
  GEMMD_ASSIGN_OR_RETURN(Input input, ReadInput(arguments));
  std::optional<ExportFile> y;  // refused before anything is loaded
  if (arguments.Has("y")) {
    GEMMD_ASSIGN_OR_RETURN(ExportFile file,
                           ExportFile::Create(arguments.Text("y"), arguments.Has("force")));
    y.emplace(std::move(file));
  }
  GEMMD_ASSIGN_OR_RETURN(client::Session session, context.OpenSession("gemmctl run"));
  GEMMD_ASSIGN_OR_RETURN(problem.source, FindSource(arguments, session));
  GEMMD_ASSIGN_OR_RETURN(
      const client::Layer layer,
      RegisterWithProgress(context, session, problem.source, problem.source.device));
  TellNotes(context, layer);
  problem.n = layer.info().n();
  problem.k = layer.info().k();
  problem.quantized = QuantizedText(layer.info());
  problem.quantization_error = layer.info().quantization_error();
  GEMMD_RETURN_IF_ERROR(CheckExpected(input, problem));
  GEMMD_RETURN_IF_ERROR(FillX(arguments, input, &problem));
  GEMMD_ASSIGN_OR_RETURN(const Outcome outcome,
                         RunOn(context, session, layer, problem, problem.source.device,
                               arguments.Text("memory"), problem.dtype));
  if (y.has_value()) {
    GEMMD_RETURN_IF_ERROR(WriteNpy(Array{{problem.m, problem.n}, outcome.y}, *y));
  }
  GEMMD_ASSIGN_OR_RETURN(
      const Reference reference,
      MakeReference(context, std::move(input.expected), session, layer, problem, outcome));
  const ErrorReport error = Compare(outcome.y, reference.y, problem.n);
  const double bound = std::max(asked_bound, reference.least_bound);
  PrintReport(context, problem, outcome, reference, error, bound);
  return IsGood(problem, error, bound) ? kDone : kFailed;
}

}  // namespace

Command RunCommand() {
  std::vector<Option> options = LayerOptions();
  for (const Option& option : std::vector<Option>{
           {"x", 0, "FILE", "", "activations [M, K]: FILE.npy or FILE.safetensors:KEY"},
           {"random", 0, "M", "", "instead: M rows of normally distributed numbers"},
           {"seed", 0, "N", "1", "of --random"},
           {"dtype", 0, "TYPE", "bf16", "of x and y: bf16, f16 or f32"},
           {"y", 0, "FILE.npy", "", "write the result there, as float32"},
           {"force", 0, "", "", "replace the file of --y when it exists"},
           {"expected", 0, "FILE", "",
            "dequantized weights [N, K] to compute the reference from, instead of the CPU device; a bias and "
            "factors of x are the checkpoint's"},
           {"memory", 0, "KIND", "auto",
            "ipc (CUDA memory of this process), memfd, daemon (the daemon's memory; bytes travel "
            "in "
            "messages) or auto"},
           {"batch-invariant", 0, "", "", "a row's bits do not depend on the other rows"},
           {"numerics", 0, "ID", "",
            "the same, by the kernel of this id, which explain and a run with --batch-invariant name "
            "where the layer has such kernels; on the CPU device there are none"},
           {"hadamard", 0, "B", "0",
            "transform x by Hadamard blocks of B columns first, in the reference too: a power of two that divides K; "
            "0 = no transform"},
           {"fp16-accumulation", 0, "", "",
            "permit sums of float16: where x is f16 and the GPU has a kernel for it (the first run asks for it)"},
           {"max-error", 0, "X", "4e-3", "largest relative Frobenius error for exit code 0"}}) {
    options.push_back(option);
  }
  return {.name = "run",
          .synopsis = "PATH MODULE (--x FILE | --random M)",
          .summary = "one GEMM through the daemon, compared with a reference",
          .description =
              "  Computes y = x w^T (+ bias) with a layer of a checkpoint and compares y with a "
              "reference: the\n"
              "  same request on the daemon's CPU device, which computes in double precision, or "
              "weights of\n"
              "  --expected, with which this tool computes by itself. Prints the relative "
              "Frobenius error, the\n"
              "  largest absolute error and where it is. Where the layer quantizes x, so does the "
              "reference; where\n"
              "  only one of the two did, the bound is 0.1 at least. Exit code 1 when the error is larger, and when\n"
              "  nothing could be compared because every number of y is NaN or infinite, in the reference too.\n"
              "\n"
              "  With --quantize (as 'gemmctl register --help' has it) the reference is the product with "
              "the quantized\n"
              "  weights; what quantization cost the weights themselves is told beside it.",
          .options = options,
          .examples =
              "  gemmctl run --checkpoint /models/llama --module model.layers.0.mlp.down_proj "
              "--random 16\n"
              "  gemmctl run /models/llama model.layers.0.mlp.down_proj --x x.npy --y y.npy "
              "--dtype f16\n"
              "  gemmctl run CASE MODULE --random 4 --expected "
              "CASE/expected.safetensors:MODULE.weight_f32\n"
              "  gemmctl run /models/llama-bf16 model.layers.0.mlp.down_proj --random 16 --quantize nvfp4",
          .most_positional = 2,
          .run = RunRun};
}

}  // namespace gemmd::gemmctl
