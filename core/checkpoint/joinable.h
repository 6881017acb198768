// What    Whether the parts of a layer that engines run as one can be one: they must share bits, types, groups and the order
//         of columns. Only what differs in names, types or proportions of its tensors, or in what the config says, is read
//         to know, one of each kind; of the others the g_idx alone.
// Limits  As layer_kinds.h: what only the numbers in the files tell, the first of a kind tells for all.
// Threads Not thread-safe; reads the files.
#ifndef GEMMD_CORE_CHECKPOINT_JOINABLE_H_
#define GEMMD_CORE_CHECKPOINT_JOINABLE_H_

#include <map>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/composite.h"

namespace gemmd {

class JoinCheck {
 public:
  explicit JoinCheck(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  // Why the parts of `module` cannot be one layer, naming them (without their prefix) and both values. Empty where they
  // can, where it has none, and where something else is wrong with it: reading it tells that.
  std::string WhyApart(const std::string& module, const PartNames& parts);

 private:
  std::string Read(const std::string& module, bool all_experts);

  const Checkpoint& checkpoint_;
  std::map<std::string, std::string> read_;  // why, by kind
};

// `modules` (of FuseModules) with the parts in place of each that JoinCheck refuses, sorted; and in `notes` why. Those of
// `stored` are no parts of others.
std::vector<std::string> SplitUnlike(const Checkpoint& checkpoint, const std::vector<std::string>& stored,
                                     const std::vector<std::string>& modules, std::vector<std::string>& notes);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_JOINABLE_H_
