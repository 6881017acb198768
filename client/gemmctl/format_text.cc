#include "client/gemmctl/format_text.h"

#include "absl/strings/str_cat.h"

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
