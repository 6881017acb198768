// What    One safetensors file: its header, and the bytes of its tensors.
// Layout  8 bytes little-endian length of the header, the header (JSON: name -> dtype, shape,
//         data_offsets), then the tensors' bytes without gaps.
// Errors  InvalidArgument BAD_CHECKPOINT naming file and tensor; of Read ResourceExhausted HOST_MEMORY too.
// Threads A SafetensorsFile is immutable; its methods are thread-safe.
// Why     pread, not mmap: a mapped file that somebody truncates kills the process with SIGBUS. The file is
//         open while bytes are read only: one with hundreds of shards may be kept for long, and what is
//         deleted must give its disk space back.
// Source  https://github.com/huggingface/safetensors#format
#ifndef GEMMD_CORE_CHECKPOINT_SAFETENSORS_H_
#define GEMMD_CORE_CHECKPOINT_SAFETENSORS_H_

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

struct TensorInfo {
  std::string dtype;  // as the header spells it: "I32", "F8_E4M3", ...
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // from the start of the file
  uint64_t bytes = 0;

  std::string Describe() const;  // "I32 [32, 96]"
};

using TensorsByName = std::map<std::string, TensorInfo>;

std::string DescribeShape(const std::vector<int64_t>& shape);

// Tensors of a file of `file_size` bytes that begins with `start`: the 8 bytes of the length and
// the whole header at least, as far as `file_size` allows.
absl::StatusOr<TensorsByName> ParseSafetensorsHeader(absl::string_view start, uint64_t file_size);

// The names in the header of a file that cannot be opened as one: of data that was cut short. Errors where the header
// itself is damaged.
absl::StatusOr<std::vector<std::string>> ReadTensorNames(const std::filesystem::path& path,
                                                         const std::string& name);

class SafetensorsFile {
 public:
  // Reads the header. `path` must be free of symbolic links; `name` is the one errors show, with the
  // checkpoint's path.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::filesystem::path& path,
                                                               const std::string& name);
  const std::string& name() const { return name_; }
  const TensorsByName& tensors() const { return tensors_; }
  const TensorInfo* Find(const std::string& tensor) const;

  // The bytes of one of this file's tensors; an error when the file changed since its header was read.
  // `on_bytes` (may be null) is called with the number of bytes of each part read, and returns false to
  // cancel.
  absl::StatusOr<Buffer> Read(const TensorInfo& tensor,
                              const std::function<bool(uint64_t)>& on_bytes = nullptr) const;

 private:
  friend absl::StatusOr<std::vector<std::string>> ReadTensorNames(const std::filesystem::path& path,
                                                                  const std::string& name);
  // Size and times. Not the inode: some network file systems number a file anew each time it is opened.
  using Version = std::array<int64_t, 5>;
  class Descriptor;
  struct Start;

  static absl::StatusOr<Start> ReadStart(const std::filesystem::path& path,
                                         const std::string& name);

  SafetensorsFile(std::filesystem::path path, std::string name)
      : path_(std::move(path)), name_(std::move(name)) {}

  std::filesystem::path path_;
  std::string name_;
  Version version_{};  // when the header was read
  TensorsByName tensors_;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_SAFETENSORS_H_
