#include "server/text.h"

#include <cstdint>

namespace gemmd {
namespace {

constexpr size_t kShort = 64;

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// Bytes of the UTF-8 character at the start of `text`; 0 when it is none.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const size_t size = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const uint32_t second = byte(1);
  const bool too_long = (byte(0) == 0xe0 && second < 0xa0) || (byte(0) == 0xf0 && second < 0x90);
  const bool surrogate = byte(0) == 0xed && second >= 0xa0;
  const bool too_large = byte(0) == 0xf4 && second >= 0x90;
  return too_long || surrogate || too_large ? 0 : size;
}

}  // namespace

size_t FindBadText(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const bool layout = text[i] == '\n' || text[i] == '\r' || text[i] == '\t';
    const size_t size = CharacterBytes(text.substr(i));
    if (size == 0 || (IsControl(text[i]) && !layout)) return i;
    i += size;
  }
  return std::string::npos;
}

bool HasControlCharacter(absl::string_view text) {
  for (const char c : text) {
    if (IsControl(c)) return true;
  }
  return false;
}

std::string Shortened(absl::string_view text) {
  std::string out(text.substr(0, kShort));
  for (char& c : out) {
    if (IsControl(c)) c = '?';
  }
  if (text.size() <= kShort) return out;
  while (!out.empty() && FindBadText(out) != std::string::npos) out.pop_back();  // half a character
  return out + "...";
}

}  // namespace gemmd
