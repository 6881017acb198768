#include "client/gemmctl/request_fields.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

// Fields, with all that lies below them.
constexpr std::pair<absl::string_view, absl::string_view> kOptions[] = {
    {"slice.rows", "--rows"},
    {"slice.columns", "--columns"},
    {"slice.experts", "--experts"},
    {"slice.row_parts", "--row-parts"},
    {"slice.tensor", "--tp"},
    {"options.hadamard_block", "--hadamard"},
    {"options.fp16_accumulation", "--fp16-accumulation"},
    {"modules", "--modules"},
    {"exclude", "--exclude"},
    {"name", "--name"},
    {"checkpoint.quantize", "--quantize"},
    {"quantize", "--quantize"},
    {"checkpoint.path", "the checkpoint's folder"},
    {"path", "the checkpoint's folder"},
    {"checkpoint.module", "the module"}};

// The file has fields of these names, too.
constexpr absl::string_view kOfManifest[] = {"shapes[", "layers[", "rows[", "models[", "layers, shapes and models"};

constexpr char kNameCharacters[] = "abcdefghijklmnopqrstuvwxyz_.";

// "the rank of --rows" for slice.rows.rank.rank; nothing for a field that no option fills.
std::string OptionOf(absl::string_view field) {
  for (const auto& [name, option] : kOptions) {
    absl::string_view rest = field;
    if (!absl::ConsumePrefix(&rest, name)) continue;
    if (rest.empty()) return std::string(option);
    if (rest[0] == '.') return absl::StrCat("the ", rest.substr(rest.rfind('.') + 1), " of ", option);
  }
  return "";
}

// Other faults of a target stand after its field: "checkpoint.quantize: weights of 16 bits are not quantized".
std::string MessageOfTarget(const std::string& message) {
  absl::string_view rest = message;
  absl::ConsumePrefix(&rest, "checkpoint.");
  return absl::StartsWith(rest, "quantize: ") ? absl::StrCat("--", rest) : message;
}

}  // namespace

std::string MessageForOptions(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  const std::string message(status.message());
  if (reason != "OUT_OF_RANGE" && reason != "MISSING_FIELD") return MessageOfTarget(message);
  for (const absl::string_view field : kOfManifest) {
    if (absl::StartsWith(message, field)) return absl::StrCat("--manifest: ", message);
  }
  absl::string_view rest = message;
  std::string what;
  for (const absl::string_view of : {"the length of ", "the number of "}) {
    if (absl::ConsumePrefix(&rest, of)) what = std::string(of);
  }
  const absl::string_view field = rest.substr(0, rest.find_first_not_of(kNameCharacters));
  const std::string option = OptionOf(field);
  return option.empty() ? message : absl::StrCat(what, option, rest.substr(field.size()));
}

}  // namespace gemmd::gemmctl
