// gemmd_compile_matrix: see gemmd_compile_matrix --help and kernels/jit/README.md.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <regex>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "kernels/jit/compile_queue.h"
#include "kernels/jit/compiler.h"
#include "tests/bench/jit/parts/conditions.h"
#include "tests/bench/jit/parts/flags.h"
#include "tests/kernels/select/matrix/runner.h"

namespace gemmd::matrix {
namespace {

using jit_bench::Flag;

constexpr int kExitFaults = 1;
constexpr int kExitIncomplete = 2;
constexpr int kExitUsage = 64;
constexpr int kExitForeign = 65;
constexpr int kExitUnavailable = 69;
constexpr int kExitCannotCreate = 73;
constexpr int kExitCannotRead = 74;
constexpr absl::Duration kSaveEvery = absl::Seconds(30);

struct Options {
  bool help = false;
  bool merge = false;
  int source = -1;
  std::string record;
  std::string architecture;
  std::string kernels;
  std::string shard = "1/1";
  int seed = -1;
  int workers = jit::UsableProcessors();
  absl::Duration time_limit = absl::InfiniteDuration();
  std::string commit = "unknown";
  std::vector<std::string> files;
};

std::vector<Flag> FlagsOf(Options& options) {
  return {
      {"record", "FILE", "what was compiled; a run goes on with what the file has not",
       jit_bench::Text(options.record)},
      {"architecture", "NAME", "a matrix of that architecture's kernels only (default: of all)",
       jit_bench::Text(options.architecture)},
      {"kernels", "REGEX", "a matrix of the kernels whose names contain a match only (default: of all)",
       jit_bench::Text(options.kernels)},
      {"shard", "I/N", "only the I-th of N parts (default 1/1)", jit_bench::Text(options.shard)},
      {"seed", "N", "in a random order: a run with a limit is a sample (default: in theirs)",
       jit_bench::Integer(0, options.seed)},
      {"workers", "N", "compilations at a time (default: all cores)",
       jit_bench::Integer(1, options.workers)},
      {"time_limit", "SECONDS", "no compilation begins after it (default: none)",
       jit_bench::Seconds(options.time_limit)},
      {"commit", "ID", "of the tree that was built; goes into a new record",
       jit_bench::Text(options.commit)},
      {"merge", "", "compiles nothing: the records of the command line become --record",
       jit_bench::Switch(options.merge)},
      {"source", "CASE", "compiles nothing: prints the program of that case",
       jit_bench::Integer(0, options.source)},
      {"help", "", "prints this text", jit_bench::Switch(options.help)},
  };
}

std::string HelpText(const std::vector<Flag>& flags) {
  return absl::StrCat(
      "NAME\n"
      "  gemmd_compile_matrix - compile every kernel that gemmd can ask for\n\n"
      "SYNOPSIS\n"
      "  gemmd_compile_matrix --record FILE [--architecture NAME] [--workers N] [--shard I/N]\n"
      "      [--seed N] [--time_limit SECONDS]\n"
      "  gemmd_compile_matrix --merge --record FILE [--architecture NAME] RECORD...\n"
      "  gemmd_compile_matrix --source CASE [--architecture NAME] [--kernels REGEX]\n\n"
      "DESCRIPTION\n"
      "  Goes through all formats, options, shapes and architectures, takes the kernels that the\n"
      "  selection chooses, each once, and compiles them with NVRTC; no GPU is needed. A fault is "
      "a\n"
      "  kernel that is rejected, that has warnings, whose matrix instructions are serialized, or\n"
      "  that has a stack although it promises none (all but Blackwell's generic kernels).\n\n"
      "  The record says, per architecture, how many kernels there are, how many compiled, failed\n"
      "  and are missing; it has the faults with the compiler's text, and the digest of the "
      "device\n"
      "  sources that it is for. It is written every 30 seconds and at the end, and a run with a\n"
      "  record that exists goes on where it stopped: parts, limits and machines can be mixed.\n"
      "  --merge makes one record of several, says what is missing, and does not compile.\n"
      "  Listing the kernels comes first and takes most of a minute where sm_90a is among the\n"
      "  architectures. A case's number is its place in the list that --architecture and --kernels\n"
      "  leave. Progress goes to standard error.\n\n"
      "OPTIONS\n",
      jit_bench::DescribeFlags(flags),
      "\nEXIT STATUS\n"
      "  0   the record is complete and has no fault\n"
      "  1   it has faults\n"
      "  2   no faults, and kernels are missing (all of a shard were compiled: see the record)\n"
      "  64  the command line is wrong\n"
      "  65  a record is of other sources, another compiler or another matrix\n"
      "  69  no NVRTC\n"
      "  73  the record cannot be written\n"
      "  74  a record cannot be read\n\n"
      "ENVIRONMENT\n"
      "  GEMMD_NVRTC  the NVRTC library, as for the daemon\n\n"
      "EXAMPLES\n"
      "  gemmd_compile_matrix --record=all.json --time_limit=540\n"
      "  gemmd_compile_matrix --record=some.json --seed=7 --time_limit=600\n"
      "  gemmd_compile_matrix --record=int8.json --architecture=sm_90a --kernels='_int8s?_.*_128x'\n"
      "  gemmd_compile_matrix --record=1.json --shard=1/4    # and 2/4, 3/4, 4/4 elsewhere\n"
      "  gemmd_compile_matrix --merge --record=all.json 1.json 2.json 3.json 4.json\n");
}

int Fail(int code, const absl::Status& status) {
  std::cerr << "gemmd_compile_matrix: " << std::string(status.message()) << "\n";
  return code;
}

// Of the options' architecture, with the options' names. Says on standard error that it lists them: sm_90a's take most
// of a minute, in which nothing else is told.
absl::StatusOr<std::vector<MatrixCase>> CasesOf(const Options& options) {
  std::cerr << "listing the kernels of " << (options.architecture.empty() ? "all architectures" : options.architecture)
            << "\n";
  std::vector<MatrixCase> cases = WholeMatrix(options.architecture);
  if (cases.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--architecture: no kernels for '", options.architecture, "'"));
  }
  if (options.kernels.empty()) return cases;
  try {
    const std::regex wanted(options.kernels, std::regex::extended);
    std::erase_if(cases, [&](const MatrixCase& one) { return !std::regex_search(one.source.label, wanted); });
  } catch (const std::regex_error&) {
    return absl::InvalidArgumentError(absl::StrCat("--kernels: '", options.kernels, "' is no regular expression"));
  }
  if (!cases.empty()) return cases;
  return absl::InvalidArgumentError(absl::StrCat("--kernels: no kernel's name contains '", options.kernels, "'"));
}

absl::Status ParseShard(const std::string& text, RunOptions& options) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
  int shard = 0;
  int shards = 0;
  if (!absl::SimpleAtoi(parts.first, &shard) || !absl::SimpleAtoi(parts.second, &shards) ||
      shard < 1 || shard > shards) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shard: '", text, "' is not I/N with I from 1 to N"));
  }
  options.shard = static_cast<size_t>(shard - 1);
  options.shards = static_cast<size_t>(shards);
  return absl::OkStatus();
}

absl::Status CheckOptions(const Options& options, RunOptions& run) {
  GEMMD_RETURN_IF_ERROR(ParseShard(options.shard, run));
  if (options.source >= 0) return absl::OkStatus();
  if (options.record.empty()) return absl::InvalidArgumentError("--record is needed");
  if (options.merge == options.files.empty()) {
    return absl::InvalidArgumentError(options.merge ? "--merge needs records"
                                                    : "records are for --merge only");
  }
  return absl::OkStatus();
}

// Nothing when there is no such file.
absl::StatusOr<std::optional<Record>> ReadRecord(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::stringstream text;
  text << file.rdbuf();
  absl::StatusOr<Record> record = Parse(text.str());
  if (!record.ok()) return Annotate(record.status(), path);
  return *std::move(record);
}

absl::Status WriteRecord(const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".tmp";
  std::ofstream file(unfinished, std::ios::trunc);
  file << text;
  file.close();
  if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    return absl::UnknownError(absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

// Ends a run or a merge: writes the record and says what is in it.
int Finish(const Options& options, const Record& record, const std::vector<MatrixCase>& cases) {
  const absl::Status written = WriteRecord(options.record, Render(record, cases));
  if (!written.ok()) return Fail(kExitCannotCreate, written);
  std::cout << Describe(record, cases);
  for (const Fault& fault : record.faults) {
    std::cout << "case " << fault.number << " " << fault.what << ": " << fault.kernel << " for "
              << fault.architecture << "\n";
  }
  if (!record.faults.empty()) return kExitFaults;
  return record.complete() ? 0 : kExitIncomplete;
}

void Tell(const Progress& progress, const Record& record, absl::Duration took) {
  const double seconds = absl::ToDoubleSeconds(took);
  const double rate = static_cast<double>(progress.finished) / seconds;
  const double left = static_cast<double>(progress.total - progress.finished) / rate;
  std::cerr << absl::StrFormat("%5.0f s: %d of %d, %.1f a second, %s left, %d faults\n", seconds,
                               progress.finished, progress.total, rate,
                               progress.finished == 0 ? "?" : absl::StrFormat("%.0f s", left),
                               record.faults.size());
}

int Compile(const Options& options, RunOptions run, absl::Time start) {
  const absl::StatusOr<const jit::NvrtcTable*> nvrtc = jit::LoadNvrtc();
  if (!nvrtc.ok()) return Fail(kExitUnavailable, nvrtc.status());
  const absl::StatusOr<std::optional<Record>> before = ReadRecord(options.record);
  if (!before.ok()) return Fail(kExitCannotRead, before.status());
  const absl::StatusOr<std::vector<MatrixCase>> matrix = CasesOf(options);
  if (!matrix.ok()) return Fail(kExitUsage, matrix.status());
  const std::vector<MatrixCase>& cases = *matrix;
  Record record = RecordOf(cases, jit::CompilerName(**nvrtc), options.commit);
  if (before->has_value()) {
    const absl::Status merged = Merge(**before, record);
    if (!merged.ok()) return Fail(kExitForeign, Annotate(merged, options.record));
  }
  // A record that cannot be written is known before the work.
  const absl::Status writable = WriteRecord(options.record, Render(record, cases));
  if (!writable.ok()) return Fail(kExitCannotCreate, writable);

  run.workers = options.workers;
  if (options.seed >= 0) run.seed = options.seed;
  run.deadline = start + options.time_limit;
  const absl::Time begin = absl::Now();
  absl::Time saved = begin;
  const size_t compiled =
      CompileCases(**nvrtc, cases, run, record, [&](const auto& progress, const auto& now) {
        Tell(progress, now, absl::Now() - begin);
        if (absl::Now() - saved < kSaveEvery) return;
        saved = absl::Now();
        (void)WriteRecord(options.record, Render(now, cases));
      });
  record.runs.push_back({jit_bench::UtcNow(), jit_bench::ProcessorName(), jit::UsableProcessors(),
                         options.workers, options.shard, absl::ToDoubleSeconds(absl::Now() - begin),
                         compiled});
  return Finish(options, record, cases);
}

int MergeAll(const Options& options) {
  std::vector<Record> records;
  for (const std::string& path : options.files) {
    absl::StatusOr<std::optional<Record>> record = ReadRecord(path);
    if (record.ok() && !record->has_value()) {
      record = absl::NotFoundError(absl::StrCat("cannot read ", path));
    }
    if (!record.ok()) return Fail(kExitCannotRead, record.status());
    records.push_back(**std::move(record));
  }
  const absl::StatusOr<std::vector<MatrixCase>> cases = CasesOf(options);
  if (!cases.ok()) return Fail(kExitUsage, cases.status());
  // What this program's matrix is must be known to count by architecture.
  Record merged = RecordOf(*cases, records[0].compiler, records[0].commit);
  for (size_t i = 0; i < records.size(); ++i) {
    const absl::Status status = Merge(records[i], merged);
    if (!status.ok()) return Fail(kExitForeign, Annotate(status, options.files[i]));
  }
  return Finish(options, merged, *cases);
}

int PrintSource(const Options& options) {
  const absl::StatusOr<std::vector<MatrixCase>> cases = CasesOf(options);
  if (!cases.ok()) return Fail(kExitUsage, cases.status());
  const auto number = static_cast<size_t>(options.source);
  if (number >= cases->size()) {
    return Fail(kExitUsage, absl::InvalidArgumentError(absl::StrCat(
                                "--source: there are ", cases->size(), " cases, the first is 0")));
  }
  const jit::KernelSource& source = (*cases)[number].source;
  std::cout << "// " << source.label << " for " << source.architecture << ": "
            << source.name_expression << "\n"
            << source.program;
  return 0;
}

int Main(int argc, char** argv) {
  const absl::Time start = absl::Now();
  Options options;
  RunOptions run;
  const std::vector<Flag> flags = FlagsOf(options);
  absl::Status parsed =
      jit_bench::ParseFlags(std::vector<std::string>(argv + 1, argv + argc), flags, &options.files);
  if (parsed.ok() && options.help) {
    std::cout << HelpText(flags);
    return 0;
  }
  if (parsed.ok()) parsed = CheckOptions(options, run);
  if (!parsed.ok()) return Fail(kExitUsage, parsed);
  if (options.source >= 0) return PrintSource(options);
  return options.merge ? MergeAll(options) : Compile(options, run, start);
}

}  // namespace
}  // namespace gemmd::matrix

int main(int argc, char** argv) { return gemmd::matrix::Main(argc, argv); }
