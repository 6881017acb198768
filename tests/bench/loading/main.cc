// What    gemmd_loading_bench: makes a checkpoint of a wanted size, and measures how fast a running daemon loads
//         all of it, against the rate at which the same files can be read.
// Exit    0 measured, 1 a call failed, 2 usage, 69 no daemon.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/admin.h"
#include "client/gemmctl/arguments.h"
#include "client/session.h"
#include "core/checkpoint/checkpoint.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "nlohmann/json.hpp"
#include "tests/bench/loading/plain_read.h"
#include "tests/bench/loading/process_usage.h"
#include "tests/bench/loading/synthetic_checkpoint.h"

namespace gemmd::bench {
namespace {

using gemmctl::Arguments;

std::vector<gemmctl::Option> Options() {
  return {
      {"format", 0, "NAME", "pack-quantized", "make: pack-quantized (compressed-tensors) or gptq"},
      {"megabytes", 0, "N", "2048", "make: size of all tensors, in MiB"},
      {"n", 0, "N", "8192", "make: outputs of a layer"},
      {"k", 0, "N", "8192", "make: inputs of a layer"},
      {"shards", 0, "N", "4", "make: number of files"},
      {"socket", 0, "PATH", "", "run: socket of the daemon"},
      {"device", 0, "ID", "cpu", "run: cpu, cuda (the first GPU) or cuda:<GPU UUID>"},
      {"parallel", 0, "N", "4", "run: registrations under way at a time"},
      {"cold", 0, "", "", "run: have the files forgotten before they are read, and before loading"},
      {"help", 'h', "", "", "print this"}};
}

struct Run {
  std::string directory;
  std::string device;
  int parallel = 1;
  bool cold = false;
};

// One or more layers, held until the object goes.
class Loader {
 public:
  Loader(client::Session& session, const Run& run, const std::vector<std::string>& modules)
      : session_(session), run_(run), modules_(modules), layers_(modules.size()) {}

  // Registers every module; the first error stops it.
  absl::Status LoadAll() {
    std::vector<std::thread> threads;
    for (int i = 0; i < run_.parallel; ++i) threads.emplace_back([this] { Work(); });
    for (std::thread& thread : threads) thread.join();
    return status_;
  }

  uint64_t layer_bytes() const {
    uint64_t total = 0;
    for (const client::Layer& layer : layers_) total += layer.info().bytes();
    return total;
  }

 private:
  void Work() {
    for (size_t i = next_++; i < modules_.size() && !failed_; i = next_++) {
      auto layer = session_.RegisterCheckpoint(run_.directory, modules_[i], run_.device);
      if (layer.ok()) {
        layers_[i] = *std::move(layer);
        continue;
      }
      failed_ = true;
      MutexLock lock(mutex_);
      if (status_.ok()) status_ = Annotate(layer.status(), modules_[i]);
    }
  }

  client::Session& session_;
  const Run& run_;
  const std::vector<std::string>& modules_;
  std::vector<client::Layer> layers_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  absl::Status status_;
};

nlohmann::ordered_json RateJson(const ReadRate& rate) {
  return {{"bytes", rate.bytes},
          {"seconds", rate.seconds},
          {"bytes_per_second", rate.bytes_per_second()}};
}

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(": ") + 2);
  }
  return "unknown";
}

// What one run measured.
struct Measured {
  ReadRate first_read;   // as the files were, or from the disk with --cold
  ReadRate cached_read;  // again, one thread
  ReadRate parallel_read;
  ReadRate fresh_read;  // one thread, into memory that was never touched
  ReadRate loading;
  double first_layer_seconds = 0;  // before `loading`: kernels are compiled for it
  uint64_t layer_bytes = 0;
  ProcessUsage before;
  ProcessUsage after;
};

absl::StatusOr<Measured> MeasureReads(const Run& run) {
  GEMMD_ASSIGN_OR_RETURN(const auto files, TensorFiles(run.directory));
  Measured measured;
  if (run.cold) GEMMD_RETURN_IF_ERROR(DropFromCache(files));
  GEMMD_ASSIGN_OR_RETURN(measured.first_read, ReadAll(files, 1));
  GEMMD_ASSIGN_OR_RETURN(measured.cached_read, ReadAll(files, 1));
  GEMMD_ASSIGN_OR_RETURN(measured.parallel_read, ReadAll(files, run.parallel));
  GEMMD_ASSIGN_OR_RETURN(measured.fresh_read, ReadAll(files, 1, Target::kFreshMemory));
  if (run.cold) GEMMD_RETURN_IF_ERROR(DropFromCache(files));
  return measured;
}

absl::StatusOr<double> SecondsOf(Loader& loader) {
  const auto begin = std::chrono::steady_clock::now();
  GEMMD_RETURN_IF_ERROR(loader.LoadAll());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

absl::Status MeasureLoading(client::Session& session, const Run& run, int pid, Measured& measured) {
  GEMMD_ASSIGN_OR_RETURN(std::vector<std::string> modules, ListModules(run.directory));
  if (modules.size() < 2) return absl::InvalidArgumentError("the checkpoint has less than two layers");
  const size_t all = modules.size();
  const std::vector<std::string> first_module = {modules.front()};
  modules.erase(modules.begin());
  Loader first(session, run, first_module), rest(session, run, modules);
  GEMMD_ASSIGN_OR_RETURN(measured.first_layer_seconds, SecondsOf(first));
  GEMMD_RETURN_IF_ERROR(ResetPeak(pid));
  GEMMD_ASSIGN_OR_RETURN(measured.before, UsageOf(pid));
  GEMMD_ASSIGN_OR_RETURN(measured.loading.seconds, SecondsOf(rest));
  GEMMD_ASSIGN_OR_RETURN(measured.after, UsageOf(pid));
  measured.layer_bytes = rest.layer_bytes();
  measured.loading.bytes = measured.first_read.bytes / all * modules.size();  // layers are alike
  return absl::OkStatus();
}

nlohmann::ordered_json Report(const Run& run, const v1::GetStatusResponse& status,
                              const Measured& measured) {
  const ReadRate& bound = run.cold ? measured.first_read : measured.cached_read;
  // On the CPU device the layers themselves are host memory.
  const uint64_t held = run.device == "cpu" ? measured.layer_bytes : 0;
  const auto above = static_cast<int64_t>(measured.after.peak_resident_bytes) -
                     static_cast<int64_t>(measured.before.resident_bytes) -
                     static_cast<int64_t>(held);
  const double cpu = measured.after.user_seconds - measured.before.user_seconds +
                     measured.after.system_seconds - measured.before.system_seconds;
  return {{"checkpoint", std::filesystem::path(run.directory).filename().string()},
          {"device", run.device},
          {"processor", ProcessorName()},
          {"cores", std::thread::hardware_concurrency()},
          {"version", status.version()},
          {"cold", run.cold},
          {"parallel", run.parallel},
          {"first_read", RateJson(measured.first_read)},
          {"cached_read", RateJson(measured.cached_read)},
          {"parallel_read", RateJson(measured.parallel_read)},
          {"fresh_read", RateJson(measured.fresh_read)},
          {"first_layer_seconds", measured.first_layer_seconds},
          {"loading", RateJson(measured.loading)},
          {"share_of_read_rate", measured.loading.bytes_per_second() / bound.bytes_per_second()},
          {"share_of_fresh_read_rate",
           measured.loading.bytes_per_second() / measured.fresh_read.bytes_per_second()},
          {"layer_bytes", measured.layer_bytes},
          {"daemon_cpu_seconds", cpu},
          {"daemon_peak_bytes", measured.after.peak_resident_bytes},
          {"daemon_bytes_before", measured.before.resident_bytes},
          {"peak_above_layers_bytes", above}};
}

// "cuda" is the first GPU of the daemon.
absl::StatusOr<std::string> FindDevice(const v1::GetStatusResponse& status,
                                       const std::string& wanted) {
  for (const v1::DeviceInfo& device : status.devices()) {
    if (device.id() == wanted || (wanted == "cuda" && device.id() != "cpu")) return device.id();
  }
  return gemmctl::BadArgument(absl::StrCat("the daemon has no device '", wanted, "'"));
}

absl::Status Measure(const Arguments& arguments) {
  Run run{.directory = std::filesystem::absolute(arguments.positional()[1]).string(),
          .cold = arguments.Has("cold")};
  GEMMD_ASSIGN_OR_RETURN(const int64_t parallel, arguments.Integer("parallel", 1, 256));
  run.parallel = static_cast<int>(parallel);
  GEMMD_ASSIGN_OR_RETURN(const client::Admin admin, client::Admin::Open(arguments.Text("socket")));
  GEMMD_ASSIGN_OR_RETURN(const v1::GetStatusResponse status, admin.Status());
  GEMMD_ASSIGN_OR_RETURN(run.device, FindDevice(status, arguments.Text("device")));
  GEMMD_ASSIGN_OR_RETURN(
      client::Session session,
      client::Session::Open({.address = arguments.Text("socket"), .name = "gemmd_loading_bench"}));
  GEMMD_ASSIGN_OR_RETURN(Measured measured, MeasureReads(run));
  GEMMD_RETURN_IF_ERROR(MeasureLoading(session, run, static_cast<int>(status.pid()), measured));
  std::printf("%s\n", Report(run, status, measured).dump(2).c_str());
  return absl::OkStatus();
}

absl::Status Make(const Arguments& arguments) {
  SyntheticOptions options{.format = arguments.Text("format")};
  GEMMD_ASSIGN_OR_RETURN(const int64_t megabytes, arguments.Integer("megabytes", 1, 1 << 24));
  GEMMD_ASSIGN_OR_RETURN(options.n, arguments.Integer("n", 8, 1 << 20));
  GEMMD_ASSIGN_OR_RETURN(options.k, arguments.Integer("k", 128, 1 << 20));
  GEMMD_ASSIGN_OR_RETURN(const int64_t shards, arguments.Integer("shards", 1, 99999));
  options.bytes = static_cast<uint64_t>(megabytes) << 20;
  options.shards = static_cast<int>(shards);
  GEMMD_ASSIGN_OR_RETURN(const SyntheticCheckpoint made,
                         MakeCheckpoint(arguments.positional()[1], options));
  std::printf("%lld layers, %.2f GiB\n", static_cast<long long>(made.layers),
              static_cast<double>(made.tensor_bytes) / (1 << 30));
  return absl::OkStatus();
}

absl::Status Dispatch(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.positional();
  if (words.size() != 2 || (words[0] != "make" && words[0] != "run")) {
    return gemmctl::BadArgument("usage: gemmd_loading_bench make|run DIR [options]; see --help");
  }
  return words[0] == "make" ? Make(arguments) : Measure(arguments);
}

}  // namespace
}  // namespace gemmd::bench

int main(int argc, char** argv) {
  using gemmd::gemmctl::Arguments;
  const auto options = gemmd::bench::Options();
  const auto arguments = Arguments::Parse(options, std::vector<std::string>(argv + 1, argv + argc));
  if (arguments.ok() && arguments->Has("help")) {
    std::printf("usage: gemmd_loading_bench make|run DIR [options]\n\n%s",
                gemmd::gemmctl::OptionsHelp(options).c_str());
    return 0;
  }
  const absl::Status status =
      arguments.ok() ? gemmd::bench::Dispatch(*arguments) : arguments.status();
  if (status.ok()) return 0;
  const std::string reason = gemmd::ReasonOf(status);
  std::fprintf(stderr, "gemmd_loading_bench: %s [%s]\n", std::string(status.message()).c_str(),
               reason.c_str());
  return reason == "BAD_ARGUMENT" ? 2 : reason == "NOT_RUNNING" ? 69 : 1;
}
