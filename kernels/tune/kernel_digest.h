// What    What a time was measured of: a digest of the sources that the tuned kernels are made from, and
//         of everything these include. Comments and layout do not count.
// Threads Any.
#ifndef GEMMD_KERNELS_TUNE_KERNEL_DIGEST_H_
#define GEMMD_KERNELS_TUNE_KERNEL_DIGEST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/jit/embedded_sources.h"

namespace gemmd {

// Of the sources in this program. Lower-case hexadecimal, 64 characters.
const std::string& TunedKernelsDigest();

// Of `roots` and what they include out of `sources`; what is not there does not count.
std::string DigestOfIncluded(absl::Span<const jit::EmbeddedSource> sources,
                             const std::vector<std::string>& roots);

// `text` without comments, each run of white space one space or one line break.
std::string WithoutComments(absl::string_view text);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_TUNE_KERNEL_DIGEST_H_
