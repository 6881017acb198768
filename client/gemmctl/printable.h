// What    Text that came from elsewhere, made harmless for a terminal: names of other clients,
//         paths, messages.
// How     Bytes that are not UTF-8, control characters, direction marks and invisible characters
//         become \xHH, \uHHHH or \UHHHHHHHH; all else stays.
// Threads Pure functions.
#ifndef GEMMD_CLIENT_GEMMCTL_PRINTABLE_H_
#define GEMMD_CLIENT_GEMMCTL_PRINTABLE_H_

#include <cstddef>
#include <string>

namespace gemmd::gemmctl {

// One line: line feeds and tabs are escaped too.
std::string Printable(const std::string& text);

// Line feeds and tabs stay.
std::string PrintableLines(const std::string& text);

// Characters of valid UTF-8.
size_t Columns(const std::string& text);

// At most `columns` characters of valid UTF-8, "..." at the end of what was cut.
std::string Shortened(const std::string& text, size_t columns);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_PRINTABLE_H_
