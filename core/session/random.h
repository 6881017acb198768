// What    Unpredictable bytes from the kernel: tokens and ids that no client can guess.
#ifndef GEMMD_CORE_SESSION_RANDOM_H_
#define GEMMD_CORE_SESSION_RANDOM_H_

#include <cstdint>
#include <string>

namespace gemmd {

std::string RandomBytes(int count);

// Never 0, which means "none" in every id field.
uint64_t RandomId();

}  // namespace gemmd

#endif  // GEMMD_CORE_SESSION_RANDOM_H_
