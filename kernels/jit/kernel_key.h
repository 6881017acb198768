// What    The name of a compiled kernel: a digest of everything that decides its bytes.
// Keys    SHA-256 over length-prefixed fields, in this order: kKeySchema, program, name expression,
//         architecture with its suffix, digest of the embedded sources, compiler, options. No path,
//         time or environment variable.
// Change  Whoever changes what the fields are or mean raises kKeySchema; tests/data/jit/key_vectors
//         holds keys of the present schema, and a changed key under an old number fails a test.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_JIT_KERNEL_KEY_H_
#define GEMMD_KERNELS_JIT_KERNEL_KEY_H_

#include <string>
#include <vector>

namespace gemmd::jit {

inline constexpr char kKeySchema[] = "gemmd kernel 2";

struct KeyInputs {
  std::string program;
  std::string name_expression;
  std::string architecture;    // "sm_90a"
  std::string sources_digest;  // EmbeddedSourcesDigest()
  std::string compiler;        // CompilerName(): version and build
  std::vector<std::string> options;
};

// Lower-case hexadecimal, 64 characters.
std::string KeyOf(const KeyInputs& inputs);

bool IsKey(const std::string& text);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_KERNEL_KEY_H_
