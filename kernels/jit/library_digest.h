// What    Which build of a shared library is loaded, found from the address of one of its
//         functions.
// Threads Pure functions of the loaded libraries.
#ifndef GEMMD_KERNELS_JIT_LIBRARY_DIGEST_H_
#define GEMMD_KERNELS_JIT_LIBRARY_DIGEST_H_

#include <string>

namespace gemmd::jit {

// The GNU build id in hexadecimal; without one the SHA-256 of the library's file. Empty when neither
// can be had.
std::string LibraryDigest(const void* function);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_LIBRARY_DIGEST_H_
