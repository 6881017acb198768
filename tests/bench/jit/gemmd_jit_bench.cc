// gemmd_jit_bench: see gemmd_jit_bench --help and tests/bench/README.md.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/jit/compile_queue.h"
#include "kernels/kernel_store.h"
#include "tests/bench/jit/parts/cache_times.h"
#include "tests/bench/jit/parts/compile_times.h"
#include "tests/bench/jit/parts/conditions.h"
#include "tests/bench/jit/parts/filled_cache.h"
#include "tests/bench/jit/parts/flags.h"
#include "tests/bench/jit/parts/layer_times.h"

namespace gemmd::jit_bench {
namespace {

constexpr int kExitMissed = 1;
constexpr int kExitUsage = 64;
constexpr int kExitUnavailable = 69;
constexpr int kExitCannotCreate = 73;
constexpr char kHelperFlag[] = "--compile_helper";  // not for people, as the daemon's

struct Options {
  bool help = false;
  bool strict = false;
  std::vector<std::string> parts = {"a", "b", "c", "d", "e"};
  std::string architecture;
  int workers = 0;
  int samples = 5;
  int layer_samples = 3;
  int entries = 200;
  std::string scratch;
  std::string fill;
  std::string output;
  std::string commit = "unknown";
};

std::vector<Flag> FlagsOf(Options& options) {
  return {
      {"parts", "LIST", "only these of a,b,c,d,e (default: all)", List(options.parts)},
      {"arch", "NAME", "architecture of the kernels (default: the GPU's, else sm_90a)",
       Text(options.architecture)},
      {"workers", "N", "compilations at a time in part b (default: all cores, at most 32)",
       Integer(1, options.workers)},
      {"samples", "N", "of each compilation and each opening (default 5)",
       Integer(1, options.samples)},
      {"layer_samples", "N", "of each layer (default 3)", Integer(1, options.layer_samples)},
      {"entries", "N", "kernels in the directory of parts c, d and e (default 200)",
       Integer(1, options.entries)},
      {"scratch", "DIR", "where cache directories are made (default: the temporary folder)",
       Text(options.scratch)},
      {"fill", "DIR", "only fills the cache directory DIR with --entries kernels",
       Text(options.fill)},
      {"output", "FILE", "JSON of the results (default: standard output)", Text(options.output)},
      {"commit", "ID", "of the tree that was built; goes into the file", Text(options.commit)},
      {"strict", "", "exit status 1 when a number misses its bar", Switch(options.strict)},
      {"help", "", "prints this text", Switch(options.help)},
  };
}

std::string HelpText(const std::vector<Flag>& flags) {
  return absl::StrCat(
      "NAME\n"
      "  gemmd_jit_bench - time gemmd's kernel compiler and kernel cache on this machine\n\n"
      "SYNOPSIS\n"
      "  gemmd_jit_bench [--parts LIST] [--workers N] [--output FILE] [option...]\n"
      "  gemmd_jit_bench --fill DIR [--entries N] [--arch NAME]\n\n"
      "DESCRIPTION\n"
      "  Measures through the same code as the daemon, with NVRTC and with a GPU where there is\n"
      "  one. Without a GPU everything is measured but what needs a driver; those rows have no\n"
      "  value and say why. Bars are medians.\n\n"
      "    a  one specialised kernel without any cache: in this process, by a compile helper that\n"
      "       runs, and by one that is started for it. Bar 1000 ms\n"
      "    b  every kernel of an 8192 x 8192 layer over all M through a cache with an empty\n"
      "       directory and helpers: asked for at once; and in the daemon's order, until the "
      "layer\n"
      "       is READY and until its last specialised kernel is there. Bar 2000 ms, with 16 cores\n"
      "    c  a kernel that the process has: KernelCache::GetOrCompile. Bar 1000 ns\n"
      "    d  a kernel on disk: to its verified bytes, with and without the page cache; to a "
      "module\n"
      "       that is loaded into the GPU's context. Bar 5 ms\n"
      "    e  a cache with many entries on disk, from KernelStore::Open to its first kernel, to "
      "all\n"
      "       of them verified, and to all of them loaded. Bar 1000 ms. The time of the CUDA\n"
      "       context stands beside it. restart.py measures a whole daemon\n\n"
      "  The directory of c, d and e holds the kernels of part a in turn, each under many keys.\n"
      "  Progress goes to standard error. The file is written anew after each row, so that a run\n"
      "  that is cut off leaves what it has. report.py makes a table of it.\n\n"
      "OPTIONS\n",
      DescribeFlags(flags),
      "\nEXIT STATUS\n"
      "  0   measured\n"
      "  1   with --strict: a number missed its bar, or has none because it could not be measured\n"
      "      for another reason than a missing GPU\n"
      "  64  the command line is wrong\n"
      "  69  --fill: no NVRTC, or the directory cannot be written\n"
      "  73  the output or the scratch folder cannot be written\n\n"
      "ENVIRONMENT\n"
      "  GEMMD_NVRTC  the NVRTC library, as for the daemon\n"
      "  TMPDIR       the temporary folder\n\n"
      "EXAMPLES\n"
      "  gemmd_jit_bench --commit=$(git rev-parse HEAD) --output=jit.json\n"
      "  gemmd_jit_bench --parts=b --workers=16 --layer_samples=5\n");
}

int Fail(int code, const absl::Status& status) {
  std::cerr << "gemmd_jit_bench: " << std::string(status.message()) << "\n";
  return code;
}

absl::Status CheckParts(const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (part.size() != 1 || part[0] < 'a' || part[0] > 'e') {
      return absl::InvalidArgumentError(absl::StrCat("--parts: '", part, "' is none of a to e"));
    }
  }
  return absl::OkStatus();
}

Setup SetupOf(const Options& options, const absl::StatusOr<Gpu>& gpu) {
  Setup setup;
  setup.architecture = options.architecture;
  if (setup.architecture.empty()) setup.architecture = gpu.ok() ? gpu->info.architecture : "sm_90a";
  setup.workers = options.workers > 0 ? options.workers : std::min(jit::UsableProcessors(), 32);
  setup.samples = options.samples;
  setup.layer_samples = options.layer_samples;
  setup.entries = options.entries;
  setup.scratch = options.scratch;
  setup.helper = {"/proc/self/exe", kHelperFlag};
  if (gpu.ok()) {
    setup.gpu = &*gpu;
  } else {
    setup.no_gpu = absl::StrCat("no GPU: ", gpu.status().message());
  }
  return setup;
}

void Measure(const Setup& setup, const std::vector<std::string>& parts, Log& log) {
  const auto wanted = [&parts](const char* part) {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  if (wanted("a")) MeasureCompiles(setup, log);
  if (wanted("b")) MeasureLayers(setup, log);
  const unsigned cache = (wanted("c") ? kLookups : 0u) | (wanted("d") ? kDiskHits : 0u) |
                         (wanted("e") ? kRestarts : 0u);
  if (cache != 0) MeasureCache(setup, cache, log);
}

bool Passed(const std::vector<Measurement>& rows, const Setup& setup) {
  return std::all_of(rows.begin(), rows.end(), [&](const Measurement& row) {
    if (row.value.samples == 0) return row.reason == setup.no_gpu;
    return Judge(row, jit::UsableProcessors()) != Verdict::kMissed;
  });
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".tmp";
  std::ofstream file(unfinished, std::ios::trunc);
  file << text;
  file.close();
  if (file && std::rename(unfinished.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat("cannot write ", path));
}

absl::Status Write(const std::string& path, const std::string& text) {
  if (!path.empty()) return WriteFile(path, text);
  std::cout << text;
  return absl::OkStatus();
}

int Fill(const Options& options) {
  const auto sources =
      FillCache(options.fill, options.architecture.empty() ? "sm_90a" : options.architecture,
                options.entries);
  if (!sources.ok()) return Fail(kExitUnavailable, sources.status());
  std::cerr << sources->size() << " kernels in " << options.fill << "\n";
  return 0;
}

int Run(const Options& options) {
  const ScratchDirectory writable(options.scratch);
  if (writable.path().empty()) {
    return Fail(kExitCannotCreate,
                absl::UnknownError(absl::StrCat("cannot write in ", options.scratch)));
  }
  const absl::StatusOr<Gpu> gpu = OpenGpu();
  const Setup setup = SetupOf(options, gpu);
  const Conditions conditions = ConditionsOf(setup, options.commit);
  Log log(jit::UsableProcessors(), [&](const std::vector<Measurement>& rows) {
    if (!options.output.empty()) (void)WriteFile(options.output, RenderReport(conditions, rows));
  });
  Measure(setup, options.parts, log);
  const absl::Status written = Write(options.output, RenderReport(conditions, log.rows()));
  if (!written.ok()) return Fail(kExitCannotCreate, written);
  return options.strict && !Passed(log.rows(), setup) ? kExitMissed : 0;
}

int Main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == kHelperFlag) return RunCompileHelper();
  Options options;
  options.scratch = std::filesystem::temp_directory_path().string();
  const std::vector<Flag> flags = FlagsOf(options);
  absl::Status parsed = ParseFlags(std::vector<std::string>(argv + 1, argv + argc), flags);
  if (parsed.ok()) parsed = CheckParts(options.parts);
  if (!parsed.ok()) return Fail(kExitUsage, parsed);
  if (options.help) {
    std::cout << HelpText(flags);
    return 0;
  }
  return options.fill.empty() ? Run(options) : Fill(options);
}

}  // namespace
}  // namespace gemmd::jit_bench

int main(int argc, char** argv) { return gemmd::jit_bench::Main(argc, argv); }
