#include "kernels/jit/kernel_key.h"

#include "kernels/jit/sha256.h"

namespace gemmd::jit {

std::string KeyOf(const KeyInputs& inputs) {
  Sha256 hash;
  hash.Add(kKeySchema).Add(inputs.program).Add(inputs.name_expression).Add(inputs.architecture);
  hash.Add(inputs.sources_digest).Add(inputs.compiler);
  for (const std::string& option : inputs.options) hash.Add(option);
  return ToHex(hash.Finish());
}

bool IsKey(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace gemmd::jit
