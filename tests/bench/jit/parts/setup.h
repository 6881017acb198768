// What    What every part of a run is given, and where it puts its rows.
// Threads One thread.
#ifndef GEMMD_TESTS_BENCH_JIT_PARTS_SETUP_H_
#define GEMMD_TESTS_BENCH_JIT_PARTS_SETUP_H_

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/bench/jit/parts/gpu.h"
#include "tests/bench/jit/parts/measurement.h"

namespace gemmd::jit_bench {

struct Setup {
  std::string architecture;
  int workers = 0;
  int samples = 0;                  // of one compilation, and of one opening of the cache
  int layer_samples = 0;            // of a whole layer
  int entries = 0;                  // of the cache directory
  std::filesystem::path scratch;    // folder for cache directories
  std::vector<std::string> helper;  // command line of a compile helper
  const Gpu* gpu = nullptr;         // null: see no_gpu
  std::string no_gpu;
};

// Rows of a run; each is told on standard error as it comes.
class Log {
 public:
  using Keep = std::function<void(const std::vector<Measurement>& rows)>;

  // `keep` gets all rows after each new one, so that a run that is cut off leaves what it has.
  Log(int cores, Keep keep) : cores_(cores), keep_(std::move(keep)) {}
  void Add(Measurement row);
  // `value`, or why there is none.
  void Add(Measurement row, const absl::StatusOr<bench::Summary>& value);
  const std::vector<Measurement>& rows() const { return rows_; }

 private:
  const int cores_;
  const Keep keep_;
  std::vector<Measurement> rows_;
};

// Of `samples` calls; the first one that fails ends it.
absl::StatusOr<bench::Summary> Sample(int samples,
                                      const std::function<absl::StatusOr<double>()>& measure);

class Stopwatch {
 public:
  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// An empty folder below `parent`, removed with all that is in it.
class ScratchDirectory {
 public:
  explicit ScratchDirectory(const std::filesystem::path& parent);
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }  // empty: it could not be made

 private:
  std::filesystem::path path_;
};

}  // namespace gemmd::jit_bench

#endif  // GEMMD_TESTS_BENCH_JIT_PARTS_SETUP_H_
