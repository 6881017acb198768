#include "kernels/jit/embedded_sources.h"

#include "kernels/jit/sha256.h"

namespace gemmd::jit {

const std::string& EmbeddedSourcesDigest() {
  static const auto* digest = [] {
    Sha256 hash;
    for (const EmbeddedSource& source : EmbeddedSources()) {
      hash.Add(source.name).Add({source.text, source.size});
    }
    return new std::string(ToHex(hash.Finish()));
  }();
  return *digest;
}

}  // namespace gemmd::jit
