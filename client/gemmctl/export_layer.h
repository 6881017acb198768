// What    Writes a layer as one safetensors file: in the standard representation, or dequantized.
// Layout  core/quant/README.md, "Files".
// Memory  The layer, and one block of at most 4 MiB of what is written.
// Errors  As ExportFile; Cancelled when `progress` returns false.
// Threads Pure functions of the layer.
#ifndef GEMMD_CLIENT_GEMMCTL_EXPORT_LAYER_H_
#define GEMMD_CLIENT_GEMMCTL_EXPORT_LAYER_H_

#include <string>

#include "absl/status/status.h"
#include "client/gemmctl/export_file.h"
#include "core/checkpoint/checkpoint.h"

namespace gemmd::gemmctl {

struct ExportedLayer {
  CheckpointLayer layer;
  std::string module;
  std::string digest;  // of layer.tensor
};

// Tensors codes, scales and so on, bit for bit.
absl::Status WriteStandard(const ExportedLayer& exported, const ProgressFunction& progress,
                           ExportFile& file);

// float32 MODULE.weight with the roundings of exporters, MODULE.bias and MODULE.input_scale where the layer
// has them: y = (x * input_scale) weight^T + bias.
absl::Status WriteFloat32(const ExportedLayer& exported, const ProgressFunction& progress,
                          ExportFile& file);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_EXPORT_LAYER_H_
