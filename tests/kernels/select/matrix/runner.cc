#include "tests/kernels/select/matrix/runner.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "kernels/base/mutex.h"
#include "tests/kernels/select/cubin_resources.h"

namespace gemmd::matrix {
namespace {

// Of the compiler's text on usage, the line that has `words`.
std::string LineWith(const std::string& words, const std::string& usage) {
  for (const absl::string_view line : absl::StrSplit(usage, '\n')) {
    if (absl::StrContains(line, words)) return std::string(absl::StripAsciiWhitespace(line));
  }
  return "";
}

// What one kernel adds to the record.
void Note(const MatrixCase& one, size_t index, const absl::StatusOr<jit::CompiledKernel>& kernel,
          absl::Duration took, Record& record) {
  const auto fault = [&](const char* what, std::string text) {
    return Fault{index, one.source.label, one.source.architecture, what, std::move(text)};
  };
  if (!kernel.ok()) {
    record.failed.Add(index);
    record.faults.push_back(fault("failed", std::string(kernel.status().message())));
    return;
  }
  record.compiled.Add(index);
  const testing::CubinResources used = testing::ResourcesOf(kernel->cubin);
  Extremes& extremes = record.extremes[one.source.architecture];
  extremes.largest_frame = std::max(extremes.largest_frame, used.frame_bytes);
  extremes.largest_registers = std::max(extremes.largest_registers, used.registers);
  extremes.longest_seconds = std::max(extremes.longest_seconds, absl::ToDoubleSeconds(took));
  if (!kernel->log.empty()) record.faults.push_back(fault("warns", kernel->log));
  // ptxas calls it information: the kernel waits between the steps of the matrix unit.
  const std::string serialized = LineWith("instructions are serialized", kernel->usage);
  if (!serialized.empty()) record.faults.push_back(fault("serialises", serialized));
  if (used.registers <= 0) {
    record.faults.push_back(fault("failed", "the cubin does not tell its registers"));
  }
  if (used.frame_bytes <= one.allowed_frame_bytes()) return;
  const std::string text = absl::StrCat(used.frame_bytes, " bytes of stack, ", used.registers,
                                        " registers; ", LineWith("spill stores", kernel->usage));
  if (one.promises_no_spills()) {
    record.faults.push_back(fault("spills", text));
  } else {
    record.stacks.push_back(fault("stack", text));
  }
}

// The work of CompileCases.
class Pool {
 public:
  Pool(const jit::NvrtcTable& nvrtc, const std::vector<MatrixCase>& cases,
       std::vector<size_t> indices, absl::Time deadline, Record& record)
      : nvrtc_(nvrtc),
        cases_(cases),
        indices_(std::move(indices)),
        deadline_(deadline),
        record_(record) {}

  void Work() {
    while (absl::Now() < deadline_) {
      const size_t next = next_++;
      if (next >= indices_.size()) break;
      const MatrixCase& one = cases_[indices_[next]];
      const absl::Time start = absl::Now();
      const absl::StatusOr<jit::CompiledKernel> kernel = jit::Compile(one.source, nvrtc_);
      const absl::Duration took = absl::Now() - start;
      MutexLock lock(mutex_);
      Note(one, indices_[next], kernel, took, record_);
      ++finished_;
    }
    MutexLock lock(mutex_);
    --working_;
    changed_.NotifyAll();
  }

  // Until all workers have left.
  void Watch(int workers, absl::Duration every,
             const std::function<void(const Progress&, const Record&)>& tick)
      ABSL_NO_THREAD_SAFETY_ANALYSIS {
    MutexLock lock(mutex_);
    working_ += workers;
    while (working_ > 0) {
      changed_.WaitUntil(mutex_, absl::Now() + every, [this] { return working_ == 0; });
      tick({finished_, indices_.size()}, record_);
    }
  }

  size_t finished() const {
    MutexLock lock(mutex_);
    return finished_;
  }

 private:
  const jit::NvrtcTable& nvrtc_;
  const std::vector<MatrixCase>& cases_;
  const std::vector<size_t> indices_;
  const absl::Time deadline_;
  std::atomic<size_t> next_{0};
  mutable Mutex mutex_;
  CondVar changed_;
  Record& record_ ABSL_GUARDED_BY(mutex_);
  size_t finished_ ABSL_GUARDED_BY(mutex_) = 0;
  int working_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

std::vector<size_t> CasesToCompile(const RunOptions& options, const Record& record) {
  std::vector<size_t> indices;
  for (size_t i = options.shard; i < record.size; i += options.shards) {
    if (!record.Done(i)) indices.push_back(i);
  }
  if (options.seed.has_value()) {
    std::shuffle(indices.begin(), indices.end(), std::mt19937_64(*options.seed));
  }
  return indices;
}

size_t CompileCases(const jit::NvrtcTable& nvrtc, const std::vector<MatrixCase>& cases,
                    const RunOptions& options, Record& record,
                    const std::function<void(const Progress&, const Record&)>& tick) {
  Pool pool(nvrtc, cases, CasesToCompile(options, record), options.deadline, record);
  std::vector<std::thread> threads;
  for (int i = 0; i < options.workers; ++i) threads.emplace_back([&pool] { pool.Work(); });
  pool.Watch(options.workers, options.tick_every, tick);
  for (std::thread& thread : threads) thread.join();
  return pool.finished();
}

}  // namespace gemmd::matrix
