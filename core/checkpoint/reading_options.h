// What    Choices of how files are read that leave more than one answer.
// Threads Pure values.
#ifndef GEMMD_CORE_CHECKPOINT_READING_OPTIONS_H_
#define GEMMD_CORE_CHECKPOINT_READING_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace gemmd {

// Zero points of GPTQ version 1 are stored minus one. How one is added where a field holds the largest number, of 2, 4
// and 8 bits; 3-bit fields cross words and are always taken one by one. Both are the same where no field does.
enum class GptqZeroPoints : uint8_t {
  kWord,         // to all fields of a word at once: a field that wraps carries into the next, as writers borrow from it
  kFieldMasked,  // to each field alone: (stored + 1) modulo 2^bits
};

// Their names in options and settings, in order.
inline constexpr const char* kGptqZeroPointsNames[] = {"word", "field-masked"};

struct ReadingOptions {
  GptqZeroPoints gptq_zero_points = GptqZeroPoints::kWord;

  // Of all options: equal texts promise equal tensors of equal files.
  std::string Text() const { return kGptqZeroPointsNames[static_cast<size_t>(gptq_zero_points)]; }
};

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_READING_OPTIONS_H_
