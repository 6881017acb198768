// What    The SM90 kernels that could serve a layer at one M, best first as the model has it: what
//         tuning measures. A measured choice names one of them by its tiling.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_SELECT_SM90_CANDIDATES_H_
#define GEMMD_KERNELS_SELECT_SM90_CANDIDATES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/select/sm90_choice.h"

namespace gemmd {

// What of a choice does not follow from the layer.
struct Sm90Tiling {
  int tokens = 0;
  int row_groups = 0;
  int column_groups = 0;
  int stage_slabs = 0;
  int stages = 0;
  int sharers = 0;
  int weight_sharers = 0;
  int cluster = 0;
  int resident = 0;
  friend bool operator==(const Sm90Tiling&, const Sm90Tiling&) = default;
};

template <typename Tiling, typename Visitor>
void VisitTiling(Tiling& tiling, Visitor&& visit) {
  auto& [tokens, row_groups, column_groups, stage_slabs, stages, sharers, weight_sharers, cluster, resident] =
      tiling;
  visit("tokens", tokens);
  visit("row_groups", row_groups);
  visit("column_groups", column_groups);
  visit("stage_slabs", stage_slabs);
  visit("stages", stages);
  visit("sharers", sharers);
  visit("weight_sharers", weight_sharers);
  visit("cluster", cluster);
  visit("resident", resident);
}

Sm90Tiling TilingOf(const Sm90Choice& choice);

// Distinct, each for exactly `m` rows. The first is what ChooseSm90 takes. Empty when M has more rows than
// a grid can count.
std::vector<Sm90Choice> Sm90CandidatesAt(const QuantSpec& spec, const LayerShape& shape,
                                         ElementType x_type, int64_t m);

// The candidate of that tiling; nothing when there is no such one, or no more.
std::optional<Sm90Choice> FindSm90Candidate(const QuantSpec& spec, const LayerShape& shape,
                                            ElementType x_type, int64_t m,
                                            const Sm90Tiling& tiling);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_SELECT_SM90_CANDIDATES_H_
