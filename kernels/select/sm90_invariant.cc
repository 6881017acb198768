#include "kernels/select/sm90_invariant.h"

#include <limits>

namespace gemmd {

std::optional<Sm90Choice> ChooseBatchInvariantSm90(const QuantSpec& spec, const LayerShape& shape,
                                                   ElementType x_type) {
  constexpr int64_t kDecodingRows = 32;
  std::optional<Sm90Choice> best;
  for (const Sm90Choice& choice : ChooseSm90(spec, shape, x_type)) {
    if (choice.config.is_slabwise()) continue;  // takes x with a map only
    best = choice;
    if (choice.largest_m >= kDecodingRows) break;
  }
  if (best.has_value()) best->largest_m = std::numeric_limits<int64_t>::max();
  return best;
}

}  // namespace gemmd
