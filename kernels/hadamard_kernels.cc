#include "kernels/hadamard_kernels.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd {

HadamardKernels::HadamardKernels(std::shared_ptr<jit::KernelCache> cache, LoadedKernels* kernels,
                                 std::string architecture)
    : cache_(std::move(cache)), kernels_(*kernels), architecture_(std::move(architecture)) {}

HadamardKernels::~HadamardKernels() {
  MutexLock lock(mutex_);
  for (const auto& [key, entry] : entries_) {
    if (entry.answer != nullptr) cache_->Forget(entry.wish);
  }
}

absl::StatusOr<const QuantizeKernel*> HadamardKernels::Find(const QuantizeKernel& plain, int64_t block) {
  const Key key{plain.x_type, plain.code_type, plain.mode, plain.multiplies, plain.k, plain.group, block};
  MutexLock lock(mutex_);
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    absl::StatusOr<QuantizeProgram> program = HadamardProgram(plain, block, architecture_);
    if (!program.ok()) return Annotate(program.status(), "options.hadamard_block");
    found = entries_.emplace(key, Entry{*std::move(program), nullptr}).first;
  }
  Entry& entry = found->second;
  if (entry.program.launch.kernel == nullptr) GEMMD_RETURN_IF_ERROR(Advance(entry));
  return &entry.program.launch;
}

absl::Status HadamardKernels::Advance(Entry& entry) {
  if (entry.answer == nullptr) {
    const jit::SharedKernel cached = cache_->Find(entry.program.source);
    if (cached != nullptr) return Load(entry, *cached);
    Ask(entry);
  }
  std::optional<absl::StatusOr<jit::SharedKernel>> compiled;
  {
    MutexLock lock(entry.answer->mutex);
    compiled = entry.answer->compiled;
  }
  if (!compiled.has_value()) {
    return Error(absl::StatusCode::kUnavailable, "KERNEL_COMPILING",
                 absl::StrCat("options.hadamard_block: ", entry.program.launch.name,
                              " is being compiled; ask again in a second"));
  }
  entry.answer.reset();
  GEMMD_RETURN_IF_ERROR(compiled->status());
  return Load(entry, ***compiled);
}

void HadamardKernels::Ask(Entry& entry) {
  entry.answer = std::make_shared<Answer>();
  entry.wish = cache_->Ask(entry.program.source, jit::CompilePriority::kClient,
                           [answer = entry.answer](const absl::StatusOr<jit::SharedKernel>& compiled) {
                             MutexLock lock(answer->mutex);
                             answer->compiled = compiled;
                           });
}

absl::Status HadamardKernels::Load(Entry& entry, const jit::CompiledKernel& compiled) {
  GEMMD_ASSIGN_OR_RETURN(entry.program.launch.kernel, kernels_.Load(compiled));
  return absl::OkStatus();
}

}  // namespace gemmd
