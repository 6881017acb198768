// What    What there is to say of modules that are read, because other programs take something in their files otherwise.
// Cost    Reads small tensors of the formats that have something to say (zero points of GPTQ, of symmetric ones a row),
//         nothing of others.
// Errors  None: what is wrong with a module is told when it is read.
// Threads A pure function of the files.
#ifndef GEMMD_CORE_CHECKPOINT_READING_NOTES_H_
#define GEMMD_CORE_CHECKPOINT_READING_NOTES_H_

#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/model_plan.h"
#include "core/checkpoint/reading_options.h"

namespace gemmd {

// Sentences for people, one for each tensor; of many the first, and how many more modules there are. Of `modules`, which
// may be joined of parts, with the experts of their slices; as `options` have them read.
std::vector<std::string> ReadingNotes(const Checkpoint& checkpoint, const std::vector<PlannedModule>& modules,
                                      const ReadingOptions& options = {});

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_READING_NOTES_H_
