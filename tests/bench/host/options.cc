#include "tests/bench/host/options.h"

#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/bench/host/bench_format.h"

namespace gemmd::bench {
namespace {

// One flag: how it is written, what it says in the help, and what it does with its value.
struct Flag {
  const char* name;
  const char* value;  // null: a switch
  const char* help;
  std::function<absl::Status(const std::string&, Options&)> apply;
};

absl::Status Bad(const std::string& text, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' ", why));
}

template <typename T>
absl::Status ParseInteger(const std::string& text, int64_t least, T& out) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < least ||
      std::cmp_greater(value, std::numeric_limits<T>::max())) {
    return Bad(text, absl::StrCat("is no integer of at least ", least));
  }
  out = static_cast<T>(value);
  return absl::OkStatus();
}

absl::Status ParseIntegers(const std::string& text, std::vector<int64_t>& out) {
  for (const auto& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
    int64_t value = 0;
    if (absl::Status status = ParseInteger(part, 1, value); !status.ok()) return status;
    out.push_back(value);
  }
  return absl::OkStatus();
}

absl::Status ParseFormats(const std::string& text, std::vector<std::string>& out) {
  for (const auto& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
    if (absl::Status status = FindFormat(part).status(); !status.ok()) {
      return absl::InvalidArgumentError(status.message());
    }
    out.push_back(part);
  }
  return absl::OkStatus();
}

absl::Status ParseSeconds(const std::string& text, absl::Duration& out) {
  double seconds = 0;
  if (!absl::SimpleAtod(text, &seconds) || !(seconds > 0)) {
    return Bad(text, "is no positive number of seconds");
  }
  out = absl::Seconds(seconds);
  return absl::OkStatus();
}

template <typename T>
std::function<absl::Status(const std::string&, Options&)> Text(T Options::*member) {
  return [member](const std::string& text, Options& options) {
    options.*member = text;
    return absl::OkStatus();
  };
}

std::function<absl::Status(const std::string&, Options&)> Off(bool Options::*member) {
  return [member](const std::string&, Options& options) {
    options.*member = false;
    return absl::OkStatus();
  };
}

std::function<absl::Status(const std::string&, Options&)> On(bool Options::*member) {
  return [member](const std::string&, Options& options) {
    options.*member = true;
    return absl::OkStatus();
  };
}

const std::vector<Flag>& Flags() {
  static const auto* flags = new std::vector<Flag>{
      {"suite", "FILE", "points to measure (default tests/bench/suite.json)",
       Text(&Options::suite)},
      {"format", "LIST", "only these formats of the suite",
       [](const std::string& t, Options& o) { return ParseFormats(t, o.filter.formats); }},
      {"n", "LIST", "only layers with these N",
       [](const std::string& t, Options& o) { return ParseIntegers(t, o.filter.n); }},
      {"k", "LIST", "only layers with these K",
       [](const std::string& t, Options& o) { return ParseIntegers(t, o.filter.k); }},
      {"m", "LIST", "these numbers of tokens instead of the suite's",
       [](const std::string& t, Options& o) { return ParseIntegers(t, o.filter.m); }},
      {"samples", "N", "samples of each median (default 21)",
       [](const std::string& t, Options& o) { return ParseInteger(t, 1, o.samples); }},
      {"warmups", "N", "launches before the first sample (default 2)",
       [](const std::string& t, Options& o) { return ParseInteger(t, 0, o.warmups); }},
      {"time_limit", "SECONDS", "points that do not fit are listed as missing (default 600)",
       [](const std::string& t, Options& o) { return ParseSeconds(t, o.time_limit); }},
      {"output", "FILE", "JSON of the results (default: standard output)", Text(&Options::output)},
      {"cache_dir", "DIR", "keeps compiled kernels for the next run", Text(&Options::cache_dir)},
      {"device", "N", "which GPU, largest first, as the daemon counts (default 0)",
       [](const std::string& t, Options& o) { return ParseInteger(t, 0, o.device); }},
      {"seed", "N", "of weights and activations (default 1)",
       [](const std::string& t, Options& o) { return ParseInteger(t, 0, o.seed); }},
      {"cupti", "FILE", "libcupti.so to load (default: the usual places)",
       Text(&Options::cupti_library)},
      {"cublas", "FILE", "libcublasLt.so to load (default: the usual places)",
       Text(&Options::cublas_library)},
      {"commit", "ID", "of the tree that was built; goes into every row", Text(&Options::commit)},
      {"digest", "HEX", "of the kernels' sources (tests/gpu/receipt.py --digest)",
       Text(&Options::digest)},
      {"no_cublas", nullptr, "leaves out the cuBLAS controls", Off(&Options::cublas)},
      {"no_graph", nullptr, "leaves out graph replay", Off(&Options::graph)},
      {"no_check", nullptr, "leaves out the comparison with the reference", Off(&Options::check)},
      {"quantize_x", nullptr, "also bfloat16 x on layers that quantize it: both kernels",
       On(&Options::quantize_x)},
      {"fp16_accumulation", nullptr, "float16 x also with sums of float16",
       On(&Options::fp16_accumulation)},
      {"batch_invariant", nullptr, "batch-invariant requests: the generic kernels",
       On(&Options::batch_invariant)},
      {"manifest", nullptr, "prints the layers for gemmctl prewarm and tune, and measures nothing",
       On(&Options::manifest)},
      {"help", nullptr, "prints this text", On(&Options::help)},
  };
  return *flags;
}

const Flag* FindFlag(const std::string& name) {
  for (const Flag& flag : Flags()) {
    if (name == flag.name) return &flag;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const Flag* flag =
        argument.rfind("--", 0) == 0 ? FindFlag(argument.substr(2, equals - 2)) : nullptr;
    if (flag == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("unknown argument ", argument));
    }
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (flag->value != nullptr && ++i < arguments.size()) {
      value = arguments[i];
    }
    if ((flag->value == nullptr) != value.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", flag->name, flag->value == nullptr ? " takes no value" : " needs a value"));
    }
    if (absl::Status status = flag->apply(value, options); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag->name, ": ", status.message()));
    }
  }
  return options;
}

std::string HelpText() {
  std::string text =
      "NAME\n"
      "  gemmd_bench - time gemmd's dense kernels on this machine's GPU\n\n"
      "SYNOPSIS\n"
      "  gemmd_bench [--suite FILE] [--format LIST] [--n LIST] [--k LIST] [--m LIST] "
      "[option...]\n\n"
      "DESCRIPTION\n"
      "  For every point of the suite: plans and loads a random layer as the daemon does, "
      "compares\n"
      "  the result with the double-precision reference on sampled rows and columns, and measures\n"
      "    kernel  the sum of the CUPTI durations of the operation's kernels, with a cold L2\n"
      "    graph   the same inside a replayed CUDA graph, and event to event around the replay\n"
      "    host    one launch on the host, before CUPTI is attached\n"
      "  cuBLAS runs the same shapes as a control: bf16, and e4m3 with tensor scales. What the\n"
      "  numbers mean in detail: tests/bench/README.md. Progress goes to standard error.\n\n"
      "  A LIST is comma-separated. Formats: ";
  absl::StrAppend(&text, absl::StrJoin(FormatNames(), ", "), ".\n\nOPTIONS\n");
  for (const Flag& flag : Flags()) {
    const std::string left =
        flag.value == nullptr ? flag.name : absl::StrCat(flag.name, "=", flag.value);
    absl::StrAppend(&text, "  --", left, std::string(left.size() < 20 ? 20 - left.size() : 1, ' '),
                    flag.help, "\n");
  }
  absl::StrAppend(
      &text,
      "\nEXIT STATUS\n"
      "  0   every point was measured, and right where it was checked\n"
      "  1   a point failed, came out wrong, or did not fit into the time limit\n"
      "  64  the command line is wrong\n"
      "  69  no GPU, no driver, or no CUPTI\n"
      "  73  the output cannot be written\n"
      "  74  the suite cannot be read\n\n"
      "ENVIRONMENT\n"
      "  GEMMD_NVRTC  the NVRTC library, as for the daemon\n\n"
      "EXAMPLES\n"
      "  gemmd_bench --format=w4a16_int4_g128 --n=8192 --k=8192 --m=1,16,64 --output=points.json\n"
      "  gemmd_bench --time_limit=120 --commit=$(git rev-parse HEAD) \\\n"
      "      --digest=$(tests/gpu/receipt.py --digest) --output=results.json\n");
  return text;
}

}  // namespace gemmd::bench
