#include "client/gemmctl/format_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gemmd::gemmctl {
namespace {

std::string FloatText(const v1::NumberFormat& format) {
  const auto is = [&format](uint32_t exponent, uint32_t mantissa) {
    return format.exponent_bits() == exponent && format.mantissa_bits() == mantissa;
  };
  if (is(8, 23)) return "float32";
  if (is(5, 10)) return "float16";
  if (is(8, 7)) return "bfloat16";
  return absl::StrCat("e", format.exponent_bits(), "m", format.mantissa_bits());
}

}  // namespace

std::string SourceText(const v1::LayerInfo& info) {
  const bool here = info.quantized() != v1::SCALE_RULE_UNSPECIFIED;
  return absl::StrCat(info.source_format(), here ? ", quantized" : "");
}

std::string QuantizedText(const v1::LayerInfo& info) {
  if (info.quantized() == v1::SCALE_RULE_UNSPECIFIED) return "";
  const std::string rule = v1::ScaleRule_Name(info.quantized()).substr(std::string("SCALE_RULE_").size());
  return absl::StrFormat("by the daemon, rule %s, relative error of the weights %.2e", absl::AsciiStrToLower(rule),
                         info.quantization_error());
}

std::string FormatText(const v1::NumberFormat& format, const std::string& absent) {
  switch (format.kind()) {
    case v1::NUMBER_KIND_INTEGER:
      return absl::StrCat("int", format.bits());
    case v1::NUMBER_KIND_FLOAT:
      return FloatText(format);
    case v1::NUMBER_KIND_EXPONENT:
      return absl::StrCat("e", format.bits(), "m0");
    default:
      return absent;
  }
}

}  // namespace gemmd::gemmctl
