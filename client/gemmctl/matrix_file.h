// What    Matrices in files: .npy (version 1 and 2, C order) and .safetensors.
// Errors  NotFound: no such file or key.  InvalidArgument BAD_FILE, naming file and fault. Reading: as
//         bounded_file.h; writing: as export_file.h.
// Source  numpy.lib.format; https://github.com/huggingface/safetensors (format section).
// Threads Pure functions of the files.
#ifndef GEMMD_CLIENT_GEMMCTL_MATRIX_FILE_H_
#define GEMMD_CLIENT_GEMMCTL_MATRIX_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/gemmctl/export_file.h"

namespace gemmd::gemmctl {

struct Array {
  std::vector<int64_t> shape;
  std::vector<double> values;  // row-major

  int64_t size() const { return static_cast<int64_t>(values.size()); }
};

absl::StatusOr<Array> ReadNpy(const std::string& path);
absl::StatusOr<Array> ReadSafetensors(const std::string& path, const std::string& key);

// "FILE.npy" or "FILE.safetensors:KEY".
absl::StatusOr<Array> ReadArray(const std::string& source);

// float32, C order; complete and in place on return.
absl::Status WriteNpy(const Array& array, ExportFile& file);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_MATRIX_FILE_H_
