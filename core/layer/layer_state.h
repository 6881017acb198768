// What    What the registry keeps of a layer and of a load. Private to core/layer.
//
//   LOADING ──▶ PACKING ──▶ READY ──▶ RELEASED
//    ▲│ │           │
//    │▼ ├───────────┴──▶ FAILED
//   QUANTIZING
//
//   LOADING  the source is read and its digest taken
//   QUANTIZING  weights that were read are quantized; then the next part is read, if there is one
//   PACKING  the device loads the tensors
//   READY    at least one session holds it
//   RELEASED the last session gave it up: no new use; its memory goes with the last request in
//            flight
//   FAILED   every registration that waited got the error; nothing is kept
#ifndef GEMMD_CORE_LAYER_LAYER_STATE_H_
#define GEMMD_CORE_LAYER_LAYER_STATE_H_

#include <map>
#include <optional>
#include <utility>

#include "core/layer/layer_registry.h"

namespace gemmd {

// READY. Guarded by the registry's lock.
struct LayerRegistry::Layer {
  uint64_t id = 0;
  Device* device = nullptr;
  std::string digest;
  std::string content;               // key of layer_by_content_
  std::map<std::string, SourceFacts> identities;  // keys of layer_by_identity_
  bool has_input_scale = false;
  LayerTraits traits;
  int64_t not_finite_weights = 0;
  ActivationEncoding encoding;
  std::shared_ptr<DeviceLayer> loaded;
  std::set<uint64_t> sessions;
};

// LOADING or PACKING. Guarded by the registry's lock, except `origin`.
struct LayerRegistry::Load {
  explicit Load(LayerOrigin source) : origin(std::move(source)) {
    if (!origin.measure) bytes = origin.bytes;
  }

  const LayerOrigin origin;
  std::optional<uint64_t> bytes;  // LayerOrigin::bytes; not known before it is measured
  bool is_being_measured = false;
  LayerProgress latest;
  Registrations waiting;  // whoever takes a registration out calls its `done`
  // Keys of load_by_identity_; with what is known of other sources than the load's.
  std::map<std::string, std::optional<SourceFacts>> identities;
  std::string content;  // key of load_by_content_, once known
};

}  // namespace gemmd

#endif  // GEMMD_CORE_LAYER_LAYER_STATE_H_
