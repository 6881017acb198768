#include "client/progress_text.h"

#include "absl/strings/str_cat.h"

namespace gemmd::client {
namespace {

std::string Of(const v1::RegisterLayerProgress& progress) {
  return absl::StrCat(progress.bytes_done(), " of ", progress.bytes_total(), " bytes");
}

}  // namespace

std::string ProgressText(const v1::RegisterLayerProgress& progress) {
  switch (progress.stage()) {
    case v1::RegisterLayerProgress::STAGE_LOADING:
      return progress.bytes_total() == 0 ? "reading had begun"
                                         : absl::StrCat("reading: ", Of(progress), " were done");
    case v1::RegisterLayerProgress::STAGE_QUANTIZING:
      return absl::StrCat("quantizing: ", Of(progress), " of the weights were done");
    case v1::RegisterLayerProgress::STAGE_PACKING:
      return "all was read, the device was taking it";
    case v1::RegisterLayerProgress::STAGE_READY:
      return "it was ready";
    default:
      return "it waited for its turn";
  }
}

std::string ProgressText(const v1::RegisterModelProgress& progress) {
  const std::string modules =
      absl::StrCat(progress.modules_done(), " of ", progress.modules_total(), " modules were done");
  const v1::ModuleProgress& module = progress.module();
  const bool is_done = module.has_failure() || module.progress().has_layer();
  if (module.module().empty() || is_done) return modules;
  return absl::StrCat(modules, "; '", module.module(), "': ", ProgressText(module.progress()));
}

}  // namespace gemmd::client
