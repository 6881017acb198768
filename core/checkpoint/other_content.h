// What    What lies in a file in place of a checkpoint's: a download that brought something else.
// Threads A pure function.
#ifndef GEMMD_CORE_CHECKPOINT_OTHER_CONTENT_H_
#define GEMMD_CORE_CHECKPOINT_OTHER_CONTENT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace gemmd {

// Bytes of a file's start that OtherContent needs.
inline constexpr size_t kTellingStart = 64;

// What a file that begins with `start` is, and what to do, in words; empty: nothing known. Asked of files that are not
// what they should be.
std::string OtherContent(absl::string_view start);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_OTHER_CONTENT_H_
