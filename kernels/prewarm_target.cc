#include "kernels/prewarm_target.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status.h"
#include "kernels/cuda/device_info.h"
#include "kernels/jit/compiler.h"

namespace gemmd {
namespace {

std::string DeviceName(int number) { return cuda::ArchitectureName(number / 10, number % 10); }

bool MayExist(int number, const std::vector<int>& known) {
  return known.empty() || std::find(known.begin(), known.end(), number) != known.end();
}

absl::Status BadArchitecture(absl::string_view fault, const std::vector<int>& known) {
  const std::string names = absl::StrJoin(
      known, ", ", [](std::string* text, int number) { absl::StrAppend(text, DeviceName(number)); });
  return Error(absl::StatusCode::kInvalidArgument, "BAD_ARCHITECTURE",
               absl::StrCat(fault, known.empty() ? "" : "; NVRTC compiles for ", names));
}

}  // namespace

absl::Status CheckDeviceName(const std::string& architecture, const std::vector<int>& known) {
  GEMMD_RETURN_IF_ERROR(jit::CheckArchitecture(architecture));
  const int number = jit::ArchitectureNumber(architecture);
  const std::string name = DeviceName(number);
  if (architecture == name || !MayExist(number, known)) return absl::OkStatus();
  return BadArchitecture(
      absl::StrCat("no GPU looks for kernels of ", architecture, ", did you mean ", name, "?"), known);
}

absl::Status CheckPrewarmTarget(const std::string& architecture, const std::vector<int>& known) {
  GEMMD_RETURN_IF_ERROR(CheckDeviceName(architecture, known));
  if (MayExist(jit::ArchitectureNumber(architecture), known)) return absl::OkStatus();
  return BadArchitecture(absl::StrCat("there is no architecture ", architecture, " for this compiler"), known);
}

}  // namespace gemmd
