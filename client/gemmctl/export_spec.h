// What    What a layer's numbers mean, as JSON, complete: what export writes beside the tensors and inspect
//         prints.
// Layout  Field names of kernels/contract/quant_spec.h and core/quant/standard_tensor.h; a number format is
//         an object of its five fields, or null where the tensor is absent. core/quant/README.md
//         lists the values.
// Threads Pure functions.
#ifndef GEMMD_CLIENT_GEMMCTL_EXPORT_SPEC_H_
#define GEMMD_CLIENT_GEMMCTL_EXPORT_SPEC_H_

#include <string>

#include "core/quant/standard_tensor.h"
#include "nlohmann/json.hpp"

namespace gemmd::gemmctl {

// spec, shape, scale_columns, gate_up_interleaved, has_input_scale, encoding.
nlohmann::ordered_json LayerJson(const StandardTensor& tensor);

// "int4", "e2m1", "bfloat16"; `absent` for a format that is not there.
std::string FormatName(const NumberFormat& format, const std::string& absent);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_EXPORT_SPEC_H_
