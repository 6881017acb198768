// What    What lies in a checkpoint's directory and is not read, because an index or model.safetensors says what the model
//         is: in words, for people.
// Threads Pure functions of the files.
#ifndef GEMMD_CORE_CHECKPOINT_UNREAD_NOTES_H_
#define GEMMD_CORE_CHECKPOINT_UNREAD_NOTES_H_

#include <string>
#include <vector>

#include "core/checkpoint/checkpoint_files.h"

namespace gemmd {

// Of files, and of tensors in those that are read. Reads the headers of the latter.
std::vector<std::string> NotesOfUnread(const CheckpointFiles& files);

// At most eight of `names`, and how many more.
std::string SomeOf(const std::vector<std::string>& names);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_UNREAD_NOTES_H_
