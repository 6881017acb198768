#include "core/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/json.h"
#include "core/checkpoint/other_content.h"

namespace gemmd {
namespace {

constexpr char kMetadata[] = "__metadata__";
constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;  // the limit of the reference implementation
constexpr uint64_t kReadPart = 16 << 20;

// Bits of one element, or 0 for a dtype we do not know.
int BitsOf(const std::string& dtype) {
  static const auto* const kBits = new std::map<std::string, int>{
      {"BOOL", 8},        {"U8", 8},          {"I8", 8},   {"F8_E4M3", 8}, {"F8_E5M2", 8},
      {"F8_E8M0", 8},     {"F8_E4M3FNUZ", 8}, {"I16", 16}, {"U16", 16},    {"F16", 16},
      {"BF16", 16},       {"I32", 32},        {"U32", 32}, {"F32", 32},    {"I64", 64},
      {"U64", 64},        {"F64", 64},        {"C64", 64}, {"F4", 4},      {"F6_E2M3", 6},
      {"F8_E5M2FNUZ", 8}, {"F6_E3M2", 6},
  };
  const auto found = kBits->find(dtype);
  return found == kBits->end() ? 0 : found->second;
}

absl::StatusOr<std::vector<int64_t>> Extents(const JsonTable& entry, const char* key) {
  const JsonTable* field = FindField(entry, {key});
  if (field == nullptr || !field->is_array()) {
    return BadCheckpoint(absl::StrCat(key, " is missing or not a list"));
  }
  std::vector<int64_t> extents;
  for (const JsonTable& element : *field) {
    if (!element.is_number_unsigned() || element.get<uint64_t>() > uint64_t{1} << 62) {
      return BadCheckpoint(absl::StrCat(key, " holds something else than integers from 0 to 2^62"));
    }
    extents.push_back(element.get<int64_t>());
  }
  return extents;
}

// Bytes of a tensor, overflow-safe.
absl::StatusOr<uint64_t> BytesOf(const TensorInfo& tensor) {
  const int bits = BitsOf(tensor.dtype);
  if (bits == 0) return BadCheckpoint(absl::StrCat("unknown dtype \"", tensor.dtype, "\""));
  uint64_t total = bits;
  for (const int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(total, static_cast<uint64_t>(extent), &total)) {
      return BadCheckpoint(absl::StrCat("shape ", DescribeShape(tensor.shape), " overflows"));
    }
  }
  if (total % 8 != 0) {
    return BadCheckpoint(absl::StrCat(tensor.Describe(), " does not fill whole bytes"));
  }
  return total / 8;
}

absl::StatusOr<TensorInfo> ParseTensor(const JsonTable& entry, uint64_t data_start,
                                       uint64_t data_size) {
  TensorInfo tensor;
  const JsonTable* dtype = FindField(entry, {"dtype"});
  if (dtype == nullptr || !dtype->is_string()) return BadCheckpoint("dtype is missing");
  tensor.dtype = dtype->get<std::string>();
  GEMMD_ASSIGN_OR_RETURN(tensor.shape, Extents(entry, "shape"));
  GEMMD_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, Extents(entry, "data_offsets"));
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    return BadCheckpoint(absl::StrCat("data_offsets ", DescribeShape(offsets), " are not a range"));
  }
  const uint64_t end = offsets[1];
  if (end > data_size) {
    return BadCheckpoint(absl::StrCat("data_offsets end at ", end, ", but the file holds ",
                                      data_size, " bytes of data"));
  }
  GEMMD_ASSIGN_OR_RETURN(const uint64_t expected, BytesOf(tensor));
  tensor.offset = data_start + offsets[0];
  tensor.bytes = end - offsets[0];
  if (tensor.bytes != expected) {
    return BadCheckpoint(absl::StrCat(tensor.Describe(), " takes ", expected,
                                      " bytes, data_offsets give ", tensor.bytes));
  }
  return tensor;
}

// Every byte of the data belongs to exactly one tensor, as in the reference implementation.
absl::Status CheckCoverage(const TensorsByName& tensors, uint64_t data_start, uint64_t file_size) {
  std::vector<const TensorsByName::value_type*> sorted;
  for (const auto& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.offset, a->second.bytes) <
           std::pair(b->second.offset, b->second.bytes);
  });
  uint64_t end = data_start;
  for (const auto* entry : sorted) {
    const auto& [name, tensor] = *entry;
    if (tensor.offset != end) {
      return BadCheckpoint(
          absl::StrCat("tensor ", name, " begins at byte ", tensor.offset,
                       tensor.offset < end ? " and overlaps" : " after a gap behind",
                       " the tensor that ends at ", end));
    }
    end += tensor.bytes;
  }
  if (end != file_size) {
    return BadCheckpoint(
        absl::StrCat("the last tensor ends at byte ", end, " of a file of ", file_size));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> HeaderLength(absl::string_view start, uint64_t file_size) {
  if (file_size < kLengthBytes || start.size() < kLengthBytes) {
    return BadCheckpoint(absl::StrCat("a file of ", file_size, " bytes is no safetensors file"));
  }
  uint64_t length;
  std::memcpy(&length, start.data(), sizeof(length));
  if (length > kLargestHeader) {  // so is any text
    const std::string other = OtherContent(start);
    if (!other.empty()) return BadCheckpoint(other);
    return BadCheckpoint(
        absl::StrCat("header of ", length, " bytes, the limit is ", kLargestHeader));
  }
  if (length > file_size - kLengthBytes) {
    return BadCheckpoint(absl::StrCat("header of ", length, " bytes in a file of ", file_size));
  }
  return length;
}

}  // namespace

std::string DescribeShape(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

std::string TensorInfo::Describe() const { return absl::StrCat(dtype, " ", DescribeShape(shape)); }

absl::StatusOr<TensorsByName> ParseSafetensorsHeader(absl::string_view start, uint64_t file_size) {
  GEMMD_ASSIGN_OR_RETURN(const uint64_t length, HeaderLength(start, file_size));
  if (start.size() - kLengthBytes < length) return BadCheckpoint("the header is cut off");
  auto header = ParseJsonObject<JsonTable>(start.substr(kLengthBytes, length));
  if (!header.ok()) return Annotate(header.status(), "header");
  const uint64_t data_start = kLengthBytes + length;
  TensorsByName tensors;
  for (const auto& [name, entry] : header->items()) {
    if (name == kMetadata) continue;
    auto tensor = ParseTensor(entry, data_start, file_size - data_start);
    if (!tensor.ok()) return Annotate(tensor.status(), absl::StrCat("tensor ", name));
    tensors.emplace(name, *std::move(tensor));
  }
  GEMMD_RETURN_IF_ERROR(CheckCoverage(tensors, data_start, file_size));
  return tensors;
}

// The open file, for as long as something is read from it.
class SafetensorsFile::Descriptor {
 public:
  static absl::StatusOr<Descriptor> Open(const std::filesystem::path& path,
                                         const std::string& name) {
    // O_NONBLOCK: opening a FIFO must not wait for a writer.
    Descriptor file(name, open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file.fd_ >= 0) return file;
    return BadCheckpoint(absl::StrCat(name, ": cannot be opened: ", std::strerror(errno)));
  }
  Descriptor(Descriptor&& other) noexcept
      : name_(std::move(other.name_)), fd_(std::exchange(other.fd_, -1)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }

  absl::StatusOr<Version> Stat() const {
    struct stat status;
    if (fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
      return BadCheckpoint(absl::StrCat(name_, ": not a regular file"));
    }
    return Version{status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
                   status.st_ctim.tv_sec, status.st_ctim.tv_nsec};
  }

  absl::Status CheckUnchanged(const Version& since) const {
    GEMMD_ASSIGN_OR_RETURN(const Version now, Stat());
    if (now == since) return absl::OkStatus();
    return BadCheckpoint(absl::StrCat(name_, ": changed since its header was read"));
  }

  absl::Status ReadAt(uint64_t offset, char* destination, uint64_t size) const {
    while (size > 0) {
      const ssize_t got = pread(fd_, destination, size, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        return BadCheckpoint(absl::StrCat(name_, ": read failed: ", std::strerror(errno)));
      }
      if (got == 0) return BadCheckpoint(absl::StrCat(name_, ": became shorter while it was read"));
      destination += got;
      offset += got;
      size -= got;
    }
    return absl::OkStatus();
  }

 private:
  Descriptor(std::string name, int fd) : name_(std::move(name)), fd_(fd) {}

  std::string name_;
  int fd_;
};

// The length and the whole header.
struct SafetensorsFile::Start {
  std::string bytes;
  Version version;
  uint64_t file_size() const { return static_cast<uint64_t>(version[0]); }
};

absl::StatusOr<SafetensorsFile::Start> SafetensorsFile::ReadStart(const std::filesystem::path& path,
                                                                  const std::string& name) {
  GEMMD_ASSIGN_OR_RETURN(const Descriptor descriptor, Descriptor::Open(path, name));
  Start start;
  GEMMD_ASSIGN_OR_RETURN(start.version, descriptor.Stat());
  start.bytes.resize(std::min(start.file_size(), uint64_t{kTellingStart}));
  GEMMD_RETURN_IF_ERROR(descriptor.ReadAt(0, start.bytes.data(), start.bytes.size()));
  const auto length = HeaderLength(start.bytes, start.file_size());
  if (!length.ok()) return Annotate(length.status(), name);
  start.bytes.resize(kLengthBytes + *length);
  GEMMD_RETURN_IF_ERROR(
      descriptor.ReadAt(kLengthBytes, start.bytes.data() + kLengthBytes, *length));
  return start;
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(
    const std::filesystem::path& path, const std::string& name) {
  GEMMD_ASSIGN_OR_RETURN(const Start start, ReadStart(path, name));
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile(path, name));
  file->version_ = start.version;
  auto tensors = ParseSafetensorsHeader(start.bytes, start.file_size());
  if (!tensors.ok()) return Annotate(tensors.status(), name);
  file->tensors_ = *std::move(tensors);
  return file;
}

absl::StatusOr<std::vector<std::string>> ReadTensorNames(const std::filesystem::path& path,
                                                         const std::string& name) {
  GEMMD_ASSIGN_OR_RETURN(const SafetensorsFile::Start start,
                         SafetensorsFile::ReadStart(path, name));
  const auto header =
      ParseJsonObject<JsonTable>(absl::string_view(start.bytes).substr(kLengthBytes));
  if (!header.ok()) return Annotate(header.status(), absl::StrCat(name, ": header"));
  std::vector<std::string> names;
  for (const auto& [tensor, entry] : header->items()) {
    if (tensor != kMetadata) names.push_back(tensor);
  }
  return names;
}

const TensorInfo* SafetensorsFile::Find(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? nullptr : &found->second;
}

namespace {

// A header may promise more than the machine has: files of that size may be sparse.
absl::StatusOr<Buffer> Allocate(uint64_t bytes, const std::string& file) {
  try {
    return Buffer::Uninitialized(bytes);
  } catch (const std::bad_alloc&) {
    return Error(absl::StatusCode::kResourceExhausted, "HOST_MEMORY",
                 absl::StrCat(file, ": the machine has no memory for a tensor of ", bytes, " bytes"));
  }
}

}  // namespace

absl::StatusOr<Buffer> SafetensorsFile::Read(const TensorInfo& tensor,
                                             const std::function<bool(uint64_t)>& on_bytes) const {
  GEMMD_ASSIGN_OR_RETURN(const Descriptor descriptor, Descriptor::Open(path_, name_));
  GEMMD_RETURN_IF_ERROR(descriptor.CheckUnchanged(version_));
  GEMMD_ASSIGN_OR_RETURN(Buffer bytes, Allocate(tensor.bytes, name_));
  for (uint64_t done = 0; done < tensor.bytes;) {
    const uint64_t part = std::min(kReadPart, tensor.bytes - done);
    GEMMD_RETURN_IF_ERROR(descriptor.ReadAt(tensor.offset + done,
                                            reinterpret_cast<char*>(bytes.data()) + done, part));
    done += part;
    if (on_bytes != nullptr && !on_bytes(part))
      return absl::CancelledError("loading was cancelled");
  }
  // Half of it may be older than the other half.
  GEMMD_RETURN_IF_ERROR(descriptor.CheckUnchanged(version_));
  return bytes;
}

}  // namespace gemmd
