// What    What there is to say of modules that are read, because other programs take something in their files otherwise.
// Cost    Reads small tensors of the formats that have something to say (zero points of GPTQ), nothing of others.
// Errors  None: what is wrong with a module is told when it is read.
// Threads A pure function of the files.
#ifndef GEMMD_CORE_CHECKPOINT_READING_NOTES_H_
#define GEMMD_CORE_CHECKPOINT_READING_NOTES_H_

#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"

namespace gemmd {

// Sentences for people, one for each tensor; of many the first, and how many more modules there are. `modules` may be
// joined of parts.
std::vector<std::string> ReadingNotes(const Checkpoint& checkpoint, const std::vector<std::string>& modules);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_READING_NOTES_H_
