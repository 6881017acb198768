// What    LayerTraits: what a layer has beside its QuantSpec that decides which kernels it needs.
#ifndef GEMMD_KERNELS_CONTRACT_LAYER_TRAITS_H_
#define GEMMD_KERNELS_CONTRACT_LAYER_TRAITS_H_

namespace gemmd {

struct LayerTraits {
  bool has_input_scale = false;  // x is multiplied by one float32 factor per column first
  // The layer says how its activations are quantized, in its QuantSpec or beyond it: x of 8 bits was multiplied
  // before.
  bool declares_activations = false;
  friend constexpr bool operator==(const LayerTraits&, const LayerTraits&) = default;
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_LAYER_TRAITS_H_
