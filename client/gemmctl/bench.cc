// What    gemmctl bench: latency and throughput of requests through the daemon, from this process.
#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/gemmctl/command.h"
#include "client/gemmctl/layer_source.h"
#include "client/gemmctl/numbers.h"
#include "client/gemmctl/proto_json.h"
#include "client/gemmctl/table.h"
#include "client/gemmctl/token_counts.h"
#include "client/gemmctl/workspace.h"
#include "client/submitter.h"
#include "kernels/base/status.h"
#include "kernels/contract/quantize_args.h"

namespace gemmd::gemmctl {
namespace {

using Clock = std::chrono::steady_clock;

struct Limits {
  double seconds = 2;
  int64_t warmup = 20;
  int64_t most_requests = 0;  // 0 = no limit
};

struct Sample {
  std::vector<double> latency_us;  // submission to answer
  double total_seconds = 0;
  double queue_us = 0;  // sums of what the daemon reports
  double execute_us = 0;

  void Add(double latency, const v1::ExecutionReport& report) {
    latency_us.push_back(latency);
    queue_us += report.queue_us();
    execute_us += report.execute_us();
  }
};

struct Row {
  std::string mode;
  int64_t m = 0;
  int64_t depth = 1;
  std::string kernel;
  int64_t requests = 0;
  double mean_us = 0, p50_us = 0, p99_us = 0;
  double requests_per_second = 0;
  double queue_us = 0, execute_us = 0;

  nlohmann::ordered_json Json() const {
    return {{"mode", mode},
            {"m", m},
            {"depth", depth},
            {"kernel", kernel},
            {"requests", requests},
            {"mean_us", mean_us},
            {"p50_us", p50_us},
            {"p99_us", p99_us},
            {"requests_per_second", requests_per_second},
            {"daemon_queue_us", queue_us},
            {"daemon_execute_us", execute_us}};
  }
};

double MicrosecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

Row Summarize(const std::string& mode, int64_t m, int64_t depth, Sample sample) {
  Row row{.mode = mode, .m = m, .depth = depth};
  std::vector<double>& times = sample.latency_us;
  row.requests = static_cast<int64_t>(times.size());
  if (times.empty()) return row;
  std::sort(times.begin(), times.end());
  const auto count = static_cast<double>(times.size());
  for (double time : times) row.mean_us += time / count;
  row.p50_us = times[times.size() / 2];
  row.p99_us = times[std::min(times.size() - 1, times.size() * 99 / 100)];
  row.requests_per_second = count / sample.total_seconds;
  row.queue_us = sample.queue_us / count;
  row.execute_us = sample.execute_us / count;
  return row;
}

// Warm-up requests may take a tenth of a measurement's time.
bool WarmedUp(const Limits& limits, Clock::time_point begin, int64_t requests) {
  return requests >= limits.warmup || MicrosecondsSince(begin) >= limits.seconds * 1e5;
}

bool Enough(const Limits& limits, Clock::time_point begin, size_t requests) {
  return MicrosecondsSince(begin) >= limits.seconds * 1e6 ||
         (limits.most_requests > 0 && requests >= static_cast<size_t>(limits.most_requests));
}

absl::StatusOr<Sample> Unary(const client::Session& session, const client::Gemm& gemm,
                             const Limits& limits) {
  const auto warmup = Clock::now();
  for (int64_t i = 0; !WarmedUp(limits, warmup, i); ++i) {
    GEMMD_RETURN_IF_ERROR(session.Run(gemm).status());
  }
  Sample sample;
  const auto begin = Clock::now();
  while (!Enough(limits, begin, sample.latency_us.size())) {
    const auto start = Clock::now();
    GEMMD_ASSIGN_OR_RETURN(const v1::GemmResponse response, session.Run(gemm));
    sample.Add(MicrosecondsSince(start), response.report());
  }
  sample.total_seconds = MicrosecondsSince(begin) / 1e6;
  return sample;
}

absl::StatusOr<double> TakeAnswer(client::Submitter& submitter,
                                  std::deque<Clock::time_point>& starts, Sample* sample) {
  GEMMD_ASSIGN_OR_RETURN(const client::Answer answer,
                         submitter.Next(absl::Now() + absl::Minutes(1)));
  GEMMD_RETURN_IF_ERROR(answer.status);
  const double latency = MicrosecondsSince(starts.front());
  starts.pop_front();
  if (sample != nullptr) sample->Add(latency, answer.gemm->report());
  return latency;
}

// Keeps `depth` requests in flight.
absl::StatusOr<Sample> Pipelined(const client::Session& session, const client::Gemm& gemm,
                                 int64_t depth, const Limits& limits) {
  client::Submitter submitter(session, static_cast<int>(depth));
  std::deque<Clock::time_point> starts;
  uint64_t tag = 0;
  const auto submit = [&] {
    starts.push_back(Clock::now());
    return submitter.Submit(tag++, gemm);
  };
  const auto warmup = Clock::now();
  for (int64_t i = 0; !WarmedUp(limits, warmup, i); ++i) {
    GEMMD_RETURN_IF_ERROR(submit());
    GEMMD_RETURN_IF_ERROR(TakeAnswer(submitter, starts, nullptr).status());
  }
  Sample sample;
  const auto begin = Clock::now();
  while (!Enough(limits, begin, sample.latency_us.size())) {
    while (static_cast<int64_t>(starts.size()) < depth) GEMMD_RETURN_IF_ERROR(submit());
    GEMMD_RETURN_IF_ERROR(TakeAnswer(submitter, starts, &sample).status());
  }
  while (!starts.empty()) GEMMD_RETURN_IF_ERROR(TakeAnswer(submitter, starts, &sample).status());
  sample.total_seconds = MicrosecondsSince(begin) / 1e6;
  return sample;
}

absl::Status BenchOne(client::Session& session, const client::Layer& layer,
                      const LayerSource& source, const Arguments& arguments, const Limits& limits,
                      const std::vector<int64_t>& depths, int64_t m, std::vector<Row>* rows) {
  GEMMD_ASSIGN_OR_RETURN(const v1::DataType dtype, ParseDataType(arguments.Text("dtype")));
  const v1::LayerInfo info = layer.info();
  const uint64_t bytes = PlacedBytes(dtype, m, info.k()) + PlacedBytes(dtype, m, info.n());
  GEMMD_ASSIGN_OR_RETURN(Workspace workspace, Workspace::Create(session, source.device,
                                                                arguments.Text("memory"), bytes));
  GEMMD_ASSIGN_OR_RETURN(const int64_t block, arguments.Integer("hadamard", 0, kLargestHadamardBlock));
  client::Gemm gemm{.layer = &layer, .hadamard_block = static_cast<uint32_t>(block),
                    .fp16_accumulation = arguments.Has("fp16-accumulation")};
  GEMMD_ASSIGN_OR_RETURN(gemm.x, workspace.Put(dtype, m, info.k(), RandomNormal(1, m * info.k())));
  GEMMD_ASSIGN_OR_RETURN(gemm.y, workspace.Place(dtype, m, info.n()));
  GEMMD_ASSIGN_OR_RETURN(const v1::GemmResponse first, session.Run(gemm));
  const std::string mode = arguments.Text("mode");
  if (mode != "stream") {
    GEMMD_ASSIGN_OR_RETURN(Sample sample, Unary(session, gemm, limits));
    rows->push_back(Summarize("unary", m, 1, std::move(sample)));
    rows->back().kernel = first.report().kernel();
  }
  if (mode == "unary") return absl::OkStatus();
  for (int64_t depth : depths) {
    GEMMD_ASSIGN_OR_RETURN(Sample sample, Pipelined(session, gemm, depth, limits));
    rows->push_back(Summarize("stream", m, depth, std::move(sample)));
    rows->back().kernel = first.report().kernel();
  }
  return absl::OkStatus();
}

void PrintRows(const Context& context, const client::Layer& layer, const LayerSource& source,
               const std::vector<Row>& rows) {
  if (context.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Row& row : rows) list.push_back(row.Json());
    context.PrintJson(
        {{"layer", ToJson(layer.info())}, {"device", source.device_text}, {"rows", list}});
    return;
  }
  context.Print(absl::StrCat(layer.info().name(), ", N = ", layer.info().n(),
                             ", K = ", layer.info().k(), ", on ", source.device_text, "\n\n"));
  Table table({"MODE", "DEPTH", "M", "REQUESTS", "MEAN us", "P50 us", "P99 us", "PER SECOND",
               "QUEUE us", "EXECUTE us", "KERNEL"});
  for (const Row& row : rows) {
    table.Add({row.mode, absl::StrCat(row.depth), absl::StrCat(row.m), absl::StrCat(row.requests),
               absl::StrFormat("%.1f", row.mean_us), absl::StrFormat("%.1f", row.p50_us),
               absl::StrFormat("%.1f", row.p99_us),
               absl::StrFormat("%.0f", row.requests_per_second),
               absl::StrFormat("%.1f", row.queue_us), absl::StrFormat("%.1f", row.execute_us),
               row.kernel});
  }
  context.Print(table.Text());
}

absl::StatusOr<int> RunBench(const Context& context, const Arguments& arguments) {
  const std::string mode = arguments.Text("mode");
  if (mode != "both" && mode != "unary" && mode != "stream") {
    return BadArgument(absl::StrCat("--mode '", mode, "' is none of both, unary, stream"));
  }
  Limits limits;
  GEMMD_ASSIGN_OR_RETURN(limits.seconds, arguments.Number("seconds", 0.01, 600));
  GEMMD_ASSIGN_OR_RETURN(limits.warmup, arguments.Integer("warmup", 0, 1000000));
  GEMMD_ASSIGN_OR_RETURN(limits.most_requests, arguments.Integer("requests", 0, 100000000));
  GEMMD_ASSIGN_OR_RETURN(const std::vector<int64_t> tokens,
                         TokenCounts(arguments, "m", {.least = 0, .most = int64_t{1} << 24}));
  GEMMD_ASSIGN_OR_RETURN(const std::vector<int64_t> depths, arguments.Integers("depth", 1, 4096));
  GEMMD_RETURN_IF_ERROR(ParseDataType(arguments.Text("dtype")).status());
  GEMMD_RETURN_IF_ERROR(arguments.Integer("hadamard", 0, kLargestHadamardBlock).status());
  GEMMD_RETURN_IF_ERROR(Workspace::CheckKind(arguments.Text("memory")));
  GEMMD_RETURN_IF_ERROR(CheckSource(arguments));
  GEMMD_ASSIGN_OR_RETURN(client::Session session, context.OpenSession("gemmctl bench"));
  GEMMD_ASSIGN_OR_RETURN(const LayerSource source, FindSource(arguments, session));
  GEMMD_ASSIGN_OR_RETURN(const client::Layer layer,
                         RegisterWithProgress(context, session, source, source.device));
  TellNotes(context, layer);
  std::vector<Row> rows;
  for (int64_t m : tokens) {
    GEMMD_RETURN_IF_ERROR(BenchOne(session, layer, source, arguments, limits, depths, m, &rows));
  }
  PrintRows(context, layer, source, rows);
  return kDone;
}

}  // namespace

Command BenchCommand() {
  std::vector<Option> options = LayerOptions();
  for (const Option& option : std::vector<Option>{
           {"m", 0, "LIST", "0,1,16,256",
            "numbers of tokens and ranges of them; 0 runs no kernel: the cost of a request alone"},
           {"mode", 0, "MODE", "both", "unary (one call at a time), stream (pipelined) or both"},
           {"depth", 0, "LIST", "1,16", "requests in flight on the stream"},
           {"seconds", 0, "S", "2", "length of each measurement"},
           {"requests", 0, "N", "0", "end a measurement after N requests; 0 = by time only"},
           {"warmup", 0, "N", "20", "requests before each measurement"},
           {"dtype", 0, "TYPE", "bf16", "of x and y"},
           {"hadamard", 0, "B", "0", "as in gemmctl run"},
           {"fp16-accumulation", 0, "", "", "as in gemmctl run"},
           {"memory", 0, "KIND", "auto", "as in gemmctl run"}}) {
    options.push_back(option);
  }
  return {
      .name = "bench",
      .synopsis = "PATH MODULE",
      .summary = "latency and throughput of GEMM requests through the daemon",
      .description =
          "  Every row is one measurement of at most --seconds. MEAN, P50 and P99 are times from "
          "submission\n"
          "  to answer as this process sees them; QUEUE and EXECUTE are means of what the daemon "
          "reports.\n"
          "  With M = 0 nothing is executed: the row is the cost of a request without a kernel.",
      .options = options,
      .examples =
          "  gemmctl bench /models/llama model.layers.0.mlp.down_proj --m 0,1,64 --seconds 5\n"
          "  gemmctl bench /models/llama model.layers.0.mlp.down_proj --mode stream --depth 1,8,64 "
          "-o json",
      .most_positional = 2,
      .run = RunBench};
}

}  // namespace gemmd::gemmctl
