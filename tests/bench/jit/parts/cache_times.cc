#include "tests/bench/jit/parts/cache_times.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/status.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/kernel_store.h"
#include "tests/bench/jit/parts/filled_cache.h"

namespace gemmd::jit_bench {
namespace {

constexpr double kLookupBarNanoseconds = 1000;
constexpr double kDiskBar = 5;
constexpr double kRestartBar = 1000;
constexpr int kLookupBatches = 21;
constexpr int kLookupsPerBatch = 20000;

class CacheMeasurement {
 public:
  CacheMeasurement(const Setup& setup, Log& log)
      : setup_(setup),
        log_(log),
        directory_(setup.scratch),
        sources_(FillCache(directory_.path(), setup.architecture, setup.entries)) {}

  void Lookups() {
    log_.Add({.part = "c",
              .what = "kernel from memory",
              .subject = Entries(),
              .unit = "ns",
              .value = {},
              .bar = kLookupBarNanoseconds},
             LookUp());
  }

  void DiskHits() {
    AddDisk("disk to verified kernel", ReadEach(/*drop_pages=*/false, /*load=*/false));
    AddDisk("the same, not in the page cache", ReadEach(/*drop_pages=*/true, /*load=*/false));
    AddDisk("disk to loaded module", NeedsGpu([&] { return ReadEach(false, /*load=*/true); }));
  }

  void Restarts() {
    AddRestart("cache opened", 0, Restart(0));
    AddRestart("opened, first kernel verified", kRestartBar, Restart(1));
    AddRestart("opened, all kernels verified", kRestartBar, Restart(setup_.entries));
    AddRestart("opened, all kernels loaded", kRestartBar,
               NeedsGpu([this] { return Restart(setup_.entries, /*load=*/true); }));
    AddContext();
  }

 private:
  using Value = absl::StatusOr<bench::Summary>;

  std::string Entries() const { return absl::StrCat(setup_.entries, " entries"); }

  void AddDisk(const char* what, const Value& value) {
    log_.Add({.part = "d",
              .what = what,
              .subject = Entries(),
              .unit = "ms",
              .value = {},
              .bar = kDiskBar},
             value);
  }
  void AddRestart(const char* what, double bar, const Value& value) {
    log_.Add(
        {.part = "e", .what = what, .subject = Entries(), .unit = "ms", .value = {}, .bar = bar},
        value);
  }
  void AddContext() {
    Value value = absl::UnavailableError(setup_.no_gpu);
    if (setup_.gpu != nullptr) value = bench::Summarize({setup_.gpu->start_milliseconds});
    log_.Add({.part = "e",
              .what = "CUDA driver and context",
              .subject = "this process",
              .unit = "ms",
              .value = {}},
             value);
  }

  Value NeedsGpu(const std::function<Value()>& measure) const {
    if (setup_.gpu == nullptr) return absl::UnavailableError(setup_.no_gpu);
    if (setup_.gpu->info.architecture != setup_.architecture) {
      return absl::UnavailableError(absl::StrCat("the GPU is ", setup_.gpu->info.architecture,
                                                 ", the kernels are for ", setup_.architecture));
    }
    return measure();
  }

  absl::StatusOr<std::shared_ptr<KernelStore>> Open() const {
    return KernelStore::Open({.directory = directory_.path(), .compile_helper = setup_.helper});
  }

  // As requests for kernels that the process has loaded.
  Value LookUp() const {
    GEMMD_RETURN_IF_ERROR(sources_.status());
    GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<KernelStore> store, Open());
    GEMMD_RETURN_IF_ERROR(Read(*store, sources_->size(), nullptr));
    return Sample(kLookupBatches, [&]() -> absl::StatusOr<double> {
      const Stopwatch watch;
      for (int i = 0; i < kLookupsPerBatch; ++i) {
        const jit::KernelSource& source = (*sources_)[static_cast<size_t>(i) % sources_->size()];
        GEMMD_RETURN_IF_ERROR(
            store->cache()->GetOrCompile(source, absl::InfiniteFuture()).status());
      }
      return watch.milliseconds() * 1e6 / kLookupsPerBatch;
    });
  }

  // Each entry once, by a cache that is open and knows its compiler.
  Value ReadEach(bool drop_pages, bool load) const {
    GEMMD_RETURN_IF_ERROR(sources_.status());
    GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<KernelStore> store, Open());
    GEMMD_RETURN_IF_ERROR(store->cache()->Compiler().status());
    if (drop_pages) DropFromPageCache(directory_.path());
    std::optional<Modules> modules;
    if (load) modules.emplace(*setup_.gpu);
    std::vector<double> times;
    for (const jit::KernelSource& source : *sources_) {
      const Stopwatch watch;
      GEMMD_RETURN_IF_ERROR(ReadOne(*store, source, load ? &*modules : nullptr));
      times.push_back(watch.milliseconds());
    }
    return bench::Summarize(std::move(times));
  }

  // From nothing to the first `count` kernels.
  Value Restart(int count, bool load = false) const {
    GEMMD_RETURN_IF_ERROR(sources_.status());
    return Sample(setup_.samples, [&]() -> absl::StatusOr<double> {
      std::optional<Modules> modules;  // unloaded after the clock stops
      if (load) modules.emplace(*setup_.gpu);
      const Stopwatch watch;
      GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<KernelStore> store, Open());
      GEMMD_RETURN_IF_ERROR(Read(*store, static_cast<size_t>(count), load ? &*modules : nullptr));
      return watch.milliseconds();
    });
  }

  absl::Status Read(KernelStore& store, size_t count, Modules* modules) const {
    for (size_t i = 0; i < count; ++i) {
      GEMMD_RETURN_IF_ERROR(ReadOne(store, (*sources_)[i], modules));
    }
    return absl::OkStatus();
  }

  static absl::Status ReadOne(KernelStore& store, const jit::KernelSource& source,
                              Modules* modules) {
    const jit::SharedKernel kernel = store.cache()->Find(source);
    if (kernel == nullptr) return absl::NotFoundError("an entry of the directory was not found");
    return modules != nullptr ? modules->Load(*kernel) : absl::OkStatus();
  }

  const Setup& setup_;
  Log& log_;
  const ScratchDirectory directory_;
  const absl::StatusOr<std::vector<jit::KernelSource>> sources_;
};

}  // namespace

void MeasureCache(const Setup& setup, unsigned parts, Log& log) {
  CacheMeasurement measurement(setup, log);
  if ((parts & kLookups) != 0) measurement.Lookups();
  if ((parts & kDiskHits) != 0) measurement.DiskHits();
  if ((parts & kRestarts) != 0) measurement.Restarts();
}

}  // namespace gemmd::jit_bench
