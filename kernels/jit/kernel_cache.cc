#include "kernels/jit/kernel_cache.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "kernels/jit/compile_backend.h"
#include "kernels/jit/flights.h"
#include "kernels/jit/kernel_builder.h"
#include "kernels/jit/kernel_tiers.h"

namespace gemmd::jit {
namespace {

constexpr absl::Duration kRestAfter = absl::Seconds(15);
constexpr int kMostWorkers = 32;  // a compiler at work takes a hundred megabytes

std::unique_ptr<CompileBackend> MakeBackend(const KernelCacheOptions& options) {
  if (options.helper.empty()) return InProcessBackend(options.nvrtc);
  return HelperBackend(options.helper, options.compile_limit);
}

int WorkersOf(const KernelCacheOptions& options) {
  return options.workers > 0 ? options.workers : std::min(UsableProcessors(), kMostWorkers);
}

// Whether those who ask with `priority` load the kernel into a GPU of this process.
bool Loads(CompilePriority priority) { return priority <= CompilePriority::kSpecialise; }

}  // namespace

// A call that misses memory boards the flight of its key. A thread that starts one looks on the disk
// itself; what is not there, and what an answer starts, is built by a worker.
//   GetOrCompile: board -> disk? -> queue -> await      Ask: board -> queue
//   worker: build -> keep -> settle
// A flight may start just after the one of the same key has landed: whoever missed memory before looks again.
class KernelCache::State {
 public:
  State(const KernelCacheOptions& options, std::unique_ptr<DiskTier> disk, std::string why_no_disk)
      : tiers_(std::move(disk), std::move(why_no_disk), options.observer),
        backend_(MakeBackend(options)),
        builder_(tiers_, *backend_, options.observer),
        queue_(std::make_unique<CompileQueue>(WorkersOf(options), options.max_queued, kRestAfter,
                                              [this] { backend_->Rest(); })),
        flights_(*queue_) {}
  ~State() {
    Close();
    queue_.reset();  // its jobs use everything else
  }
  void Close() {
    flights_.Close();
    backend_->Stop();
  }

  absl::StatusOr<SharedKernel> GetOrCompile(const KernelSource& source,
                                            const CompileRequest& request);
  void LookForCompiler() { backend_->LookForCompiler(nullptr); }
  uint64_t Ask(const KernelSource& source, CompilePriority priority, Answer answer);
  SharedKernel Find(const KernelSource& source);
  CacheStats stats() const;
  absl::StatusOr<std::string> Compiler() { return backend_->Identity(); }
  CompilerFacts LastCompiler() const { return backend_->LastFacts(); }
  absl::StatusOr<std::vector<int>> Architectures() { return backend_->Architectures(); }
  KernelTiers& tiers() { return tiers_; }
  Flights& flights() { return flights_; }

 private:
  absl::StatusOr<SharedKernel> GetOnce(const KernelSource& source, const CompileRequest& request);
  void LookForCompilerSoon();
  // What is known without a flight: memory has the kernel, or nobody can compile it. Otherwise
  // `compiler` is set.
  std::optional<absl::StatusOr<SharedKernel>> WithoutFlight(const KernelSource& source,
                                                            CompilePriority priority,
                                                            KernelOrigin& origin,
                                                            std::string& compiler);
  absl::StatusOr<Flights::Boarding> Board(const KernelSource& source, const std::string& compiler,
                                          CompilePriority priority, Answer answer);
  bool LandFromMemory(Flight& flight);
  bool LandFromDisk(Flight& flight);
  void Enqueue(const std::shared_ptr<Flight>& flight);
  void Land(Flight& flight, Built built);

  KernelTiers tiers_;
  const std::unique_ptr<CompileBackend> backend_;
  KernelBuilder builder_;
  std::unique_ptr<CompileQueue> queue_;
  Flights flights_;
  std::atomic<bool> looks_soon_{false};
};

// The failure may be that of a compiler that was replaced since: another makes other keys, under which nothing is
// remembered.
absl::StatusOr<SharedKernel> KernelCache::State::GetOrCompile(const KernelSource& source,
                                                              const CompileRequest& request) {
  absl::StatusOr<SharedKernel> kernel = GetOnce(source, request);
  if (!IsRemembered(kernel.status())) return kernel;
  if (absl::Now() >= request.deadline) {
    LookForCompilerSoon();
    return kernel;
  }
  backend_->LookForCompiler([&request] {
    return absl::Now() >= request.deadline || (request.cancelled && request.cancelled());
  });
  return GetOnce(source, request);
}

// For those who do not wait: a worker does it, and the next request knows.
void KernelCache::State::LookForCompilerSoon() {
  if (looks_soon_.exchange(true)) return;
  queue_->Add(CompilePriority::kSpecialise, [this](const absl::Status& go) {
    if (go.ok()) backend_->LookForCompiler(nullptr);
    looks_soon_ = false;
  });
}

absl::StatusOr<SharedKernel> KernelCache::State::GetOnce(const KernelSource& source,
                                                         const CompileRequest& request) {
  std::string compiler;
  KernelOrigin origin = KernelOrigin::kMemory;
  auto known = WithoutFlight(source, request.priority, origin, compiler);
  if (known.has_value()) {
    if (request.origin != nullptr) *request.origin = origin;
    return *std::move(known);
  }
  GEMMD_ASSIGN_OR_RETURN(const Flights::Boarding boarding,
                         Board(source, compiler, request.priority, nullptr));
  const bool starts = boarding.starts && !LandFromMemory(*boarding.flight);
  if (starts && !LandFromDisk(*boarding.flight)) Enqueue(boarding.flight);
  return flights_.Await(*boarding.flight, request);
}

uint64_t KernelCache::State::Ask(const KernelSource& source, CompilePriority priority,
                                 Answer answer) {
  std::string compiler;
  KernelOrigin origin = KernelOrigin::kMemory;
  const auto known = WithoutFlight(source, priority, origin, compiler);
  if (known.has_value()) {
    answer(*known);
    return 0;
  }
  const absl::StatusOr<Flights::Boarding> boarding = Board(source, compiler, priority, answer);
  if (!boarding.ok()) {
    if (IsRemembered(boarding.status())) LookForCompilerSoon();
    answer(boarding.status());
    return 0;
  }
  if (boarding->starts && !LandFromMemory(*boarding->flight)) Enqueue(boarding->flight);
  return boarding->wish;
}

std::optional<absl::StatusOr<SharedKernel>> KernelCache::State::WithoutFlight(
    const KernelSource& source, CompilePriority priority, KernelOrigin& origin,
    std::string& compiler) {
  if (SharedKernel kernel = tiers_.FindInMemory(source); kernel != nullptr) return kernel;
  const absl::Status sane = CheckArchitecture(source.architecture);
  if (!sane.ok()) return sane;
  absl::StatusOr<std::string> identity = backend_->Identity();
  if (identity.ok()) {
    compiler = *std::move(identity);
    return std::nullopt;
  }
  if (absl::IsCancelled(identity.status())) return identity.status();
  auto kernel = tiers_.ReadDiskOfAnyCompiler(source);
  if (!kernel.has_value()) return identity.status();
  origin = KernelOrigin::kDisk;
  return tiers_.Keep(source, *std::move(kernel), /*on_disk=*/true, Loads(priority));
}

absl::StatusOr<Flights::Boarding> KernelCache::State::Board(const KernelSource& source,
                                                            const std::string& compiler,
                                                            CompilePriority priority,
                                                            Answer answer) {
  const std::string key = KernelKey(source, compiler);
  GEMMD_RETURN_IF_ERROR(tiers_.FailureOf(key));
  return flights_.Board(source, compiler, key, priority, std::move(answer));
}

bool KernelCache::State::LandFromMemory(Flight& flight) {
  SharedKernel kernel = tiers_.FindInMemory(flight.source);
  if (kernel == nullptr) return false;
  flights_.Settle(flight, std::move(kernel), KernelOrigin::kMemory);
  return true;
}

bool KernelCache::State::LandFromDisk(Flight& flight) {
  auto kernel = tiers_.ReadDisk(flight.source, flight.compiler, flight.key, /*drop=*/false);
  if (!kernel.has_value()) return false;
  Land(flight, {*std::move(kernel), /*stored=*/true, KernelOrigin::kDisk});
  return true;
}

void KernelCache::State::Enqueue(const std::shared_ptr<Flight>& flight) {
  const CompilePriority priority = flights_.PriorityOf(*flight);
  const uint64_t ticket = queue_->Add(priority, [this, flight](const absl::Status& go) {
    if (!go.ok()) return Land(*flight, {go});
    Land(*flight,
         builder_.Build({flight->source, flight->compiler, flight->key, flight->unwanted}));
  });
  flights_.Queued(*flight, ticket, priority);
}

void KernelCache::State::Land(Flight& flight, Built built) {
  if (!built.kernel.ok()) {
    tiers_.RememberFailure(flight.key, built.kernel.status());
    flights_.Settle(flight, built.kernel.status(), built.origin);
    return;
  }
  const bool loads = Loads(flights_.PriorityOf(flight));
  flights_.Settle(flight, tiers_.Keep(flight.source, *std::move(built.kernel), built.stored, loads),
                  built.origin);
}

SharedKernel KernelCache::State::Find(const KernelSource& source) {
  if (SharedKernel kernel = tiers_.FindInMemory(source); kernel != nullptr) return kernel;
  if (tiers_.disk() == nullptr) return nullptr;
  const absl::StatusOr<std::string> compiler = backend_->Identity();
  auto kernel = compiler.ok() ? tiers_.ReadDisk(source, *compiler, KernelKey(source, *compiler),
                                                /*drop=*/false)
                              : tiers_.ReadDiskOfAnyCompiler(source);
  if (!kernel.has_value()) return nullptr;
  return tiers_.Keep(source, *std::move(kernel), /*on_disk=*/true, /*loads=*/true);
}

CacheStats KernelCache::State::stats() const {
  CacheStats stats;
  builder_.AddTo(stats);
  flights_.AddTo(stats);
  tiers_.AddTo(stats);
  stats.queued = queue_->queued();
  stats.running = static_cast<uint64_t>(queue_->running());
  return stats;
}

absl::StatusOr<std::unique_ptr<KernelCache>> KernelCache::Open(const KernelCacheOptions& options) {
  std::unique_ptr<DiskTier> disk;
  std::string why_no_disk = options.why_no_directory;
  if (!options.directory.empty()) {
    auto opened = DiskTier::Open({options.directory, options.max_bytes, options.files});
    if (opened.ok()) {
      disk = *std::move(opened);
    } else {
      why_no_disk = std::string(opened.status().message());
    }
  }
  return std::unique_ptr<KernelCache>(
      new KernelCache(std::make_unique<State>(options, std::move(disk), std::move(why_no_disk))));
}

KernelCache::KernelCache(std::unique_ptr<State> state) : state_(std::move(state)) {}

KernelCache::~KernelCache() = default;

absl::StatusOr<SharedKernel> KernelCache::GetOrCompile(const KernelSource& source,
                                                       const CompileRequest& request) {
  return state_->GetOrCompile(source, request);
}

uint64_t KernelCache::Ask(const KernelSource& source, CompilePriority priority, Answer answer) {
  return state_->Ask(source, priority, std::move(answer));
}

void KernelCache::Forget(uint64_t wish) { state_->flights().Forget(wish); }

SharedKernel KernelCache::Find(const KernelSource& source) { return state_->Find(source); }

SharedKernel KernelCache::FindOfAnyCompiler(const KernelSource& source, bool& on_disk) {
  on_disk = false;
  KernelTiers& tiers = state_->tiers();
  if (SharedKernel kernel = tiers.FindInMemory(source); kernel != nullptr) return kernel;
  auto kernel = tiers.ReadDiskOfAnyCompiler(source);
  if (!kernel.has_value()) return nullptr;
  on_disk = true;
  return tiers.Keep(source, *std::move(kernel), /*on_disk=*/true, /*loads=*/false);
}

absl::Status KernelCache::Store(const CompiledKernel& kernel) {
  return state_->tiers().Store(kernel);
}

void KernelCache::Close() { state_->Close(); }

std::optional<QuarantineRecord> KernelCache::Quarantined(const std::string& key, int driver) const {
  return state_->tiers().quarantine().Find(key, driver);
}

void KernelCache::Quarantine(const CompiledKernel& kernel, int driver, absl::string_view why) {
  state_->tiers().quarantine().Add(kernel, driver, why);
}

CacheStats KernelCache::stats() const { return state_->stats(); }

absl::StatusOr<std::string> KernelCache::Compiler() { return state_->Compiler(); }

CompilerFacts KernelCache::LastCompiler() const { return state_->LastCompiler(); }

absl::StatusOr<std::vector<int>> KernelCache::Architectures() { return state_->Architectures(); }

void KernelCache::LookForCompiler() { state_->LookForCompiler(); }

void KernelCache::ForgetFailures() { state_->tiers().Forget(); }

DiskTier* KernelCache::disk() { return state_->tiers().disk(); }

const std::string& KernelCache::why_no_disk() const { return state_->tiers().why_no_disk(); }

absl::Status KernelCache::ImportEntry(const std::string& key, absl::string_view bytes) {
  return state_->tiers().Import(key, bytes);
}

absl::Status KernelCache::DropEntry(const std::string& key, const absl::Status& why) {
  return state_->tiers().Drop(key, why);
}

void KernelCache::LookAgain() { state_->tiers().LookAgain(); }

void KernelCache::Evict() { state_->tiers().Evict(); }

}  // namespace gemmd::jit
