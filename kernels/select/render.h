// What    Values of configs as C++ source: what `struct Config` of a generated program is made of.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_SELECT_RENDER_H_
#define GEMMD_KERNELS_SELECT_RENDER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/contract/code_order.h"
#include "kernels/contract/element_type.h"
#include "kernels/contract/number_format.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/contract/quantize_args.h"
#include "kernels/contract/row_mapping.h"

namespace gemmd::render {

// A field's C++ type and value.
struct Rendered {
  std::string type;
  std::string value;
};

Rendered Render(const NumberFormat& format);
Rendered Render(ZeroPointKind kind);
Rendered Render(CodeOrder order);
Rendered Render(RowMapping mapping);
Rendered Render(ElementType type);
Rendered Render(QuantizeMode mode);
Rendered Render(InputActivation activation);
Rendered Render(bool value);
Rendered Render(int value);

// The whole program: an include of kernels/device/`header` and struct Config.
template <typename Config>
std::string Program(const std::string& header, const Config& config) {
  std::string program = absl::StrCat("#include \"kernels/device/", header,
                                     "\"\nnamespace gemmd::device {\nstruct Config {\n");
  VisitFields(config, [&](const char* name, const auto& field) {
    const Rendered rendered = Render(field);
    absl::StrAppend(&program, "  static constexpr ", rendered.type, " ", name, " = ",
                    rendered.value, ";\n");
  });
  absl::StrAppend(&program, "};\n}  // namespace gemmd::device\n");
  return program;
}

template <typename Config>
std::vector<std::pair<std::string, std::string>> Fields(const Config& config) {
  std::vector<std::pair<std::string, std::string>> fields;
  VisitFields(config, [&](const char* name, const auto& field) {
    fields.emplace_back(name, Render(field).value);
  });
  return fields;
}

}  // namespace gemmd::render

#endif  // GEMMD_KERNELS_SELECT_RENDER_H_
