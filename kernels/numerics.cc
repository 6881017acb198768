#include "kernels/numerics.h"

#include "absl/strings/str_cat.h"
#include "kernels/jit/sha256.h"

namespace gemmd {

uint64_t NumericsOf(absl::string_view kernel_key, int cluster) {
  const jit::Sha256Digest digest =
      jit::Sha256().Add(kernel_key).Add(absl::StrCat(cluster)).Finish();
  uint64_t numerics = 0;
  for (int i = 0; i < 8; ++i) numerics = numerics << 8 | digest[static_cast<size_t>(i)];
  return numerics == 0 ? 1 : numerics;
}

}  // namespace gemmd
