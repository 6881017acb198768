#include "kernels/select/sm90_candidates.h"

namespace gemmd {

Sm90Tiling TilingOf(const Sm90Choice& choice) {
  const Sm90Config& config = choice.config;
  return {config.tokens, config.row_groups, config.column_groups, config.stage_slabs,
          config.stages, config.sharers, config.weight_sharers, choice.cluster,       choice.resident};
}

std::optional<Sm90Choice> FindSm90Candidate(const QuantSpec& spec, const LayerShape& shape,
                                            ElementType x_type, int64_t m,
                                            const Sm90Tiling& tiling) {
  for (const Sm90Choice& candidate : Sm90CandidatesAt(spec, shape, x_type, m)) {
    if (TilingOf(candidate) == tiling) return candidate;
  }
  return std::nullopt;
}

}  // namespace gemmd
