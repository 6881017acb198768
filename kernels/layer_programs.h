// What    The kernels that a layer needs: what is compiled for each, and how it is launched. Without
//         a GPU, a driver or the weights, so that prewarming and loading agree.
// Errors  Unimplemented NO_KERNEL; InvalidArgument BAD_ARCHITECTURE.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_LAYER_PROGRAMS_H_
#define GEMMD_KERNELS_LAYER_PROGRAMS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/contract/code_order.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/jit/compiler.h"
#include "kernels/launch/layer_plan.h"
#include "kernels/contract/layer_traits.h"
#include "kernels/row_range.h"

namespace gemmd {

struct Measurements;  // select/tuning_table.h
struct Sm90Choice;

struct GemmProgram {
  jit::KernelSource source;
  GemmKernel launch;  // its `kernel` is null
};

// A specialised kernel, for requests with x of `x_type` and up to `largest_m` rows; a batch-invariant one
// for any number of them.
struct PackedProgram {
  ElementType x_type;
  int64_t largest_m;
  GemmProgram program;
  bool half_sums = false;  // for requests that permit sums of float16; not every such kernel has them
};

// Makes the 8-bit x of the packed kernels from wider x, or multiplies x by the layer's input scale, or both.
struct QuantizeProgram {
  jit::KernelSource source;
  QuantizeKernel launch;  // its `kernel` is null
};

struct LayerPrograms {
  CodeOrder codes = CodeOrder::kRows;  // as all kernels of the layer read them
  std::optional<GemmProgram> dense;  // the generic kernels; absent with several experts
  GemmProgram indexed;
  std::vector<PackedProgram> packed;  // ascending in M within an x_type and half_sums
  std::vector<PackedProgram> invariant;  // for batch-invariant requests: at most one for an x_type
  bool packed_takes_group_scales = false;
  std::string why_not_packed;  // when `packed` is empty
  std::vector<QuantizeProgram> quantize;  // to 8 bits; they multiply where the layer has an input scale
  std::string why_not_quantized;  // when `quantize` is empty
  std::vector<QuantizeProgram> scale;  // with an input scale: for each type of x that is multiplied
};

// Follows what was measured of the layer's kernels, else the model.
absl::StatusOr<LayerPrograms> ProgramsOf(const QuantSpec& spec, const LayerShape& shape,
                                         const std::string& architecture,
                                         const Measurements& measurements,
                                         const LayerTraits& traits);
absl::StatusOr<LayerPrograms> ProgramsOf(const QuantSpec& spec, const LayerShape& shape,
                                         const std::string& architecture,
                                         const LayerTraits& traits = {});

// For a layer whose weights cannot be packed: the generic kernels only.
absl::StatusOr<LayerPrograms> GenericProgramsOf(const QuantSpec& spec, const LayerShape& shape,
                                                const std::string& architecture,
                                                const std::string& why_not_packed,
                                                const LayerTraits& traits = {});

// What transforms x by Hadamard blocks of `block` columns in the launch of `plain`, a kernel that quantizes or
// multiplies x, or one without both (mode kNone).
absl::StatusOr<QuantizeProgram> HadamardProgram(const QuantizeKernel& plain, int64_t block,
                                                const std::string& architecture);

GemmProgram Sm90Program(const Sm90Choice& choice, const std::string& architecture);

// What is compiled for a layer that gets requests of these numbers of rows; no range: of any number.
// The generic kernels and those for batch-invariant requests are always among it.
absl::StatusOr<std::vector<jit::KernelSource>> LayerSources(const QuantSpec& spec,
                                                            const LayerShape& shape,
                                                            const std::string& architecture,
                                                            const std::vector<RowRange>& rows = {},
                                                            const LayerTraits& traits = {});
absl::StatusOr<std::vector<jit::KernelSource>> LayerSources(const QuantSpec& spec,
                                                            const LayerShape& shape,
                                                            const std::string& architecture,
                                                            const std::vector<RowRange>& rows,
                                                            const LayerTraits& traits,
                                                            const Measurements& measurements);

// The kernels around the GEMMs of a mixture-of-experts request.
std::vector<jit::KernelSource> MoeSources(const std::string& architecture);

// Packs the codes of every layer that has packed kernels.
jit::KernelSource PackSource(const std::string& architecture);

// The generic kernels of the formats that checkpoints mostly have, and those around them: with them
// compiled, most layers are served at once.
std::vector<jit::KernelSource> CommonSources(const std::string& architecture);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_LAYER_PROGRAMS_H_
