// What    A bundle of these entries, whole or not.
#ifndef GEMMD_TESTS_KERNELS_ENCODE_BUNDLE_H_
#define GEMMD_TESTS_KERNELS_ENCODE_BUNDLE_H_

#include <string>
#include <utility>
#include <vector>

#include "kernels/jit/bundle.h"

namespace gemmd::jit {

inline std::string EncodeBundle(const std::vector<std::string>& entries) {
  BundleWriter writer(0);
  for (const std::string& entry : entries) writer.Add(entry);
  return std::move(writer).Finish();
}

}  // namespace gemmd::jit

#endif  // GEMMD_TESTS_KERNELS_ENCODE_BUNDLE_H_
