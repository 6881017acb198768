// What    Who compiles: NVRTC in this process, or in helper processes that may crash or hang.
// Errors  Identity, Architectures: Unavailable NVRTC_MISSING. Compile: as compiler.h; Internal
//         COMPILER_CRASHED when the helper died or ran out of time; Unavailable COMPILER_CHANGED when
//         another NVRTC was installed since Identity (ask again), HELPER_UNAVAILABLE when no helper
//         starts.
//         Cancelled: `abandoned` said so, or Stop was called.
// Threads Every method is thread-safe.
#ifndef GEMMD_KERNELS_JIT_COMPILE_BACKEND_H_
#define GEMMD_KERNELS_JIT_COMPILE_BACKEND_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/jit/compiler.h"

namespace gemmd::jit {

// A compiler, or why there is none.
struct CompilerFacts {
  std::string name = {};                // CompilerName; empty: there is none, or nobody has looked
  std::string path = {};                // its library
  std::string problem = {};             // why there is none
  std::vector<int> architectures = {};  // NvrtcTable::architectures
};

class CompileBackend {
 public:
  virtual ~CompileBackend() = default;
  // CompilerName of the compiler that Compile would use now.
  virtual absl::StatusOr<std::string> Identity() = 0;
  // What Identity found last. Nothing is started, and nobody waits.
  virtual CompilerFacts LastFacts() const = 0;
  // NvrtcTable::architectures of that compiler.
  virtual absl::StatusOr<std::vector<int>> Architectures() = 0;
  // `compiler`: what the caller's key says. `abandoned` is asked now and then; true ends the
  // compilation early where that is possible: in a helper process.
  virtual absl::StatusOr<CompiledKernel> Compile(const KernelSource& source,
                                                 const std::string& compiler,
                                                 const std::function<bool()>& abandoned) = 0;
  // Looks whether the compiler is still the one that Identity tells, where that can be another: the library is loaded
  // anew by a helper process, unless one is alive already or the last look is not long ago. `abandoned` as Compile's.
  virtual void LookForCompiler(const std::function<bool()>& abandoned) { (void)abandoned; }
  // Nothing was asked for a while: gives back what can be had again.
  virtual void Rest() {}
  // Ends what waits for a helper process; none is started from now on. A compilation in this process goes on.
  virtual void Stop() {}
};

CompilerFacts FactsOf(const absl::StatusOr<const NvrtcTable*>& nvrtc);

// `nvrtc` null: the library of this machine, loaded when it is first needed.
std::unique_ptr<CompileBackend> InProcessBackend(const NvrtcTable* nvrtc);

// `command` starts a process that calls RunCompileHelper. One helper per compilation at a time; they
// are reused. One that takes longer than `limit` for a kernel is killed.
std::unique_ptr<CompileBackend> HelperBackend(std::vector<std::string> command,
                                              absl::Duration limit);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_COMPILE_BACKEND_H_
