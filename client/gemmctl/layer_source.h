// What    What register, run, bench and explain have in common: a session, a device, and a layer
//         from a checkpoint, with its progress on stderr.
// Threads One thread.
#ifndef GEMMD_CLIENT_GEMMCTL_LAYER_SOURCE_H_
#define GEMMD_CLIENT_GEMMCTL_LAYER_SOURCE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/gemmctl/command.h"
#include "nlohmann/json.hpp"

namespace gemmd::gemmctl {

// --checkpoint, --module, --device, --name, --quantize, --gptq-zero-points.
std::vector<Option> LayerOptions();

struct LayerSource {
  std::string path;  // absolute
  std::string module;
  std::string device;  // as the daemon names it
  std::string name;
  std::string device_text;  // "cpu, AMD EPYC 9654"
  v1::LayerSlice slice;     // default: the whole module
  std::optional<v1::QuantizeTo> quantize;
  v1::GptqZeroPoints gptq_zero_points = v1::GPTQ_ZERO_POINTS_UNSPECIFIED;

  // Of the module on any device.
  v1::CheckpointSource Checkpoint() const;
};

// Whether "PATH MODULE" or the options name both, and --quantize and --gptq-zero-points can be read:
// BAD_ARGUMENT, before a session is opened.
absl::Status CheckSource(const Arguments& arguments);

// From "PATH MODULE" or the options; `device` auto is the daemon's best ready one.
absl::StatusOr<LayerSource> FindSource(const Arguments& arguments, const client::Session& session);

// Registers on `device`; on stderr a bar on a terminal, lines otherwise.
absl::StatusOr<client::Layer> RegisterWithProgress(const Context& context, client::Session& session,
                                                   const LayerSource& source,
                                                   const std::string& device);

// On stderr, what the daemon says of how the layer was read.
void TellNotes(const Context& context, const client::Layer& layer);

// Its info, and these notes.
nlohmann::ordered_json LayerJson(const client::Layer& layer);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_LAYER_SOURCE_H_
