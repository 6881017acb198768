#include "client/gemmctl/cache_text.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "client/gemmctl/printable.h"
#include "client/gemmctl/table.h"

namespace gemmd::gemmctl {

void TellProblems(const Context& context, const std::string& what, const NamedKernels& kernels) {
  for (const v1::CachedKernel& kernel : kernels) {
    std::fprintf(context.err, "%s %s: %s\n", what.c_str(), Printable(kernel.key()).c_str(),
                 Printable(kernel.problem()).c_str());
  }
}

void WarnOfOverflow(const Context& context, const std::string& what, const v1::CacheOverflow& overflow) {
  if (overflow.removed() > 0) {
    context.Warn(absl::StrCat(overflow.removed(), " of the ", what, " kernels are gone again: they were purged ",
                              "meanwhile, or another process removed them"));
  }
  if (overflow.kernels() == 0) return;
  context.Warn(absl::StrCat(overflow.kernels(), " of the ", what, " kernels did not stay: all of them take ",
                            BytesText(overflow.needed_bytes()), ", and cache_max_bytes is ",
                            BytesText(overflow.limit_bytes())));
}

}  // namespace gemmd::gemmctl
