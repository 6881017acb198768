// What    What is compiled: kernels that stand for their kind, and the kernels of whole layers.
//         Layers are 8192 x 8192, formats are those of tests/bench/host/bench_format.h.
// Errors  As ProgramsOf; NotFound: the layer has no kernel of that kind on this architecture.
// Threads Pure functions.
#ifndef GEMMD_TESTS_BENCH_JIT_PARTS_SUBJECTS_H_
#define GEMMD_TESTS_BENCH_JIT_PARTS_SUBJECTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/jit/compiler.h"

namespace gemmd::jit_bench {

enum class KernelKind { kGeneric, kSmallestM, kLargestM };

struct Subject {
  std::string format;
  KernelKind kind;
};

// A specialised kernel of each family of formats, and the generic kernel of one layer.
const std::vector<Subject>& Subjects();
std::string NameOf(const Subject& subject);
absl::StatusOr<jit::KernelSource> SourceOf(const Subject& subject, const std::string& architecture);

// The formats whose layers are compiled whole.
const std::vector<std::string>& LayerFormats();

// What the daemon compiles for a layer whose requests bring x of the format's type.
struct LayerWork {
  std::vector<jit::KernelSource> generic;      // before the layer is READY
  std::vector<jit::KernelSource> specialised;  // behind it
};
absl::StatusOr<LayerWork> WorkOf(const std::string& format, const std::string& architecture);

// `source` under another key: the same kernel to the compiler.
jit::KernelSource Variant(jit::KernelSource source, int number);

}  // namespace gemmd::jit_bench

#endif  // GEMMD_TESTS_BENCH_JIT_PARTS_SUBJECTS_H_
