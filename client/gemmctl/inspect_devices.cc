#include "client/gemmctl/inspect_devices.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/gemmctl/export_spec.h"
#include "core/quant/activations.h"
#include "core/quant/input_scale.h"
#include "kernels/contract/element_format.h"
#include "kernels/layer_programs.h"

namespace gemmd::gemmctl {
namespace {

// Compute capabilities 7.5 to 12.1, named as cuda::ArchitectureName names them.
constexpr const char* kArchitectures[] = {"sm_75",  "sm_80",   "sm_86",   "sm_87",   "sm_89",
                                          "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a"};

// What core/exec/validate_call.cc lets through: experts are run by MoE requests, with wide x only.
std::vector<std::string> TypesOfX(const LayerShape& shape) {
  std::vector<std::string> types = {"float32", "float16", "bfloat16"};
  if (shape.experts == 1) types.insert(types.end(), {"float8_e4m3", "float8_e5m2", "int8"});
  return types;
}

// What the CPU device does with x of 16 and 32 bits on a layer that asks for other activations.
std::string UseOfWideX(const StandardTensor& tensor) {
  const NumberFormat wanted = WantedActivation(tensor);
  if (!wanted.present()) return "";
  const std::string why = WhyNotQuantized(tensor);
  return why.empty() ? absl::StrCat("x of 16 and 32 bits becomes ", FormatName(wanted, ""))
                     : absl::StrCat("x of 16 and 32 bits is used as it is: ", why);
}

void AddType(ElementType type, std::vector<std::string>& types) {
  const std::string name = ElementTypeName(type);
  if (std::find(types.begin(), types.end(), name) == types.end()) types.push_back(name);
}

DeviceSupport OnArchitecture(const QuantSpec& spec, const LayerShape& shape,
                             const LayerTraits& traits, const std::string& architecture) {
  DeviceSupport support{.device = architecture};
  const absl::StatusOr<LayerPrograms> programs = ProgramsOf(spec, shape, architecture, traits);
  if (!programs.ok()) {
    support.why = std::string(programs.status().message());
    return support;
  }
  support.activations = TypesOfX(shape);
  for (const PackedProgram& packed : programs->packed) AddType(packed.x_type, support.specialised);
  support.kernels =
      support.specialised.empty() ? KernelFamily::kGeneric : KernelFamily::kSpecialised;
  support.why = programs->why_not_packed;
  // Wider x is made 8-bit x first.
  for (const QuantizeProgram& quantize : programs->quantize) {
    AddType(quantize.launch.x_type, support.specialised);
  }
  return support;
}

}  // namespace

const char* KernelFamilyName(KernelFamily family) {
  switch (family) {
    case KernelFamily::kNone:
      break;
    case KernelFamily::kReference:
      return "reference";
    case KernelFamily::kGeneric:
      return "generic";
    case KernelFamily::kSpecialised:
      return "specialised";
  }
  return "none";
}

std::vector<DeviceSupport> DevicesFor(const StandardTensor& tensor) {
  std::vector<DeviceSupport> devices = {{.device = "cpu",
                                         .kernels = KernelFamily::kReference,
                                         .activations = TypesOfX(tensor.shape),
                                         .why = UseOfWideX(tensor)}};
  const LayerTraits traits = TraitsOf(tensor);
  for (const char* architecture : kArchitectures) {
    devices.push_back(OnArchitecture(tensor.spec, tensor.shape, traits, architecture));
  }
  return devices;
}

}  // namespace gemmd::gemmctl
