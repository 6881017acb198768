// What    A fuzz target: one input, and the seeds that the standing-alone program starts from.
#ifndef GEMMD_TESTS_FUZZ_FUZZ_TARGET_H_
#define GEMMD_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Returns 0; a fault ends the process (abort or sanitizer).
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace gemmd {

// Valid inputs. Made from tests/data.
std::vector<std::string> FuzzSeeds();

}  // namespace gemmd

#endif  // GEMMD_TESTS_FUZZ_FUZZ_TARGET_H_
