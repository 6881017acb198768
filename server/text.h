// What    Checks of text that people write into files, flags and variables.
#ifndef GEMMD_SERVER_TEXT_H_
#define GEMMD_SERVER_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace gemmd {

// Position of the first byte that is neither printable UTF-8 nor a tab or an end of line; npos if none.
size_t FindBadText(absl::string_view text);

bool HasControlCharacter(absl::string_view text);

// For messages: at most 64 characters of `text`, printable ones only.
std::string Shortened(absl::string_view text);

}  // namespace gemmd

#endif  // GEMMD_SERVER_TEXT_H_
