#include "client/gemmctl/printable.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gemmd::gemmctl {
namespace {

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: what stands there is no UTF-8
};

// The character at `at`: shortest form only, no surrogates, nothing beyond U+10FFFF.
Character Decode(const std::string& text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() - at < bytes) return {};
  uint32_t code = first & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if (!IsContinuation(text[at + i])) return {};
    code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, bytes};
}

// Controls, marks and overrides of direction, line separators, invisible characters and tags.
bool IsHarmful(uint32_t code) {
  struct Range {
    uint32_t first, last;
  };
  constexpr Range kRanges[] = {{0x0000, 0x001f}, {0x007f, 0x009f},  {0x00ad, 0x00ad},
                               {0x061c, 0x061c}, {0x180e, 0x180e},  {0x200b, 0x200f},
                               {0x2028, 0x202e}, {0x2060, 0x206f},  {0xfeff, 0xfeff},
                               {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
  for (const Range& range : kRanges) {
    if (code >= range.first && code <= range.last) return true;
  }
  return false;
}

std::string Escaped(uint32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\t') return "\\t";
  if (code < 0x80) return absl::StrFormat("\\x%02x", code);
  return code < 0x10000 ? absl::StrFormat("\\u%04x", code) : absl::StrFormat("\\U%08x", code);
}

std::string Escape(const std::string& text, bool lines) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Character character = Decode(text, at);
    const bool layout = text[at] == '\n' || text[at] == '\t';
    if (character.bytes == 0) {
      absl::StrAppend(&out, absl::StrFormat("\\x%02x", static_cast<unsigned char>(text[at++])));
      continue;
    }
    if (IsHarmful(character.code) && !(lines && layout)) {
      out += Escaped(character.code);
    } else {
      out.append(text, at, character.bytes);
    }
    at += character.bytes;
  }
  return out;
}

}  // namespace

std::string Printable(const std::string& text) { return Escape(text, false); }

std::string PrintableLines(const std::string& text) { return Escape(text, true); }

size_t Columns(const std::string& text) {
  size_t columns = 0;
  for (const char byte : text) columns += IsContinuation(byte) ? 0 : 1;
  return columns;
}

std::string Shortened(const std::string& text, size_t columns) {
  constexpr size_t kDots = 3;
  if (Columns(text) <= columns) return text;
  const size_t kept = columns > kDots ? columns - kDots : 0;
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    if (!IsContinuation(text[end]) && seen++ == kept) break;
  }
  return text.substr(0, end) + "...";
}

}  // namespace gemmd::gemmctl
