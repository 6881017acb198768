#include "client/gemmctl/matrix_file.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/gemmctl/bounded_file.h"
#include "client/gemmctl/numbers.h"
#include "kernels/base/status.h"
#include "nlohmann/json.hpp"

namespace gemmd::gemmctl {
namespace {

absl::Status Bad(const std::string& path, absl::string_view fault) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FILE", absl::StrCat(path, ": ", fault));
}

// As the format's own library: a longer header is a damaged one.
constexpr uint64_t kMostHeaderBytes = 100'000'000;

// Product of the extents, or -1 when it is negative or absurd.
int64_t Count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) {
    if (extent < 0 || (extent > 0 && count > (int64_t{1} << 40) / extent)) return -1;
    count *= extent;
  }
  return count;
}

absl::StatusOr<Array> MakeArray(const std::string& path, v1::DataType dtype, int64_t element_bytes,
                                std::vector<int64_t> shape, absl::string_view bytes) {
  const int64_t count = Count(shape);
  if (count < 0 || static_cast<uint64_t>(count) * element_bytes != bytes.size()) {
    return Bad(path, absl::StrCat("shape [", absl::StrJoin(shape, ", "), "] does not fit ",
                                  bytes.size(), " bytes of data"));
  }
  auto values = Decode(
      dtype, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
  if (!values.ok()) return Annotate(values.status(), path);
  return Array{std::move(shape), *std::move(values)};
}

struct ElementType {
  const char* name;
  v1::DataType dtype;
  int64_t bytes;
};

constexpr ElementType kSafetensorsTypes[] = {
    {"F32", v1::DATA_TYPE_FLOAT32, 4},   {"F16", v1::DATA_TYPE_FLOAT16, 2},
    {"BF16", v1::DATA_TYPE_BFLOAT16, 2}, {"I8", v1::DATA_TYPE_INT8, 1},
    {"I32", v1::DATA_TYPE_INT32, 4},     {"I64", v1::DATA_TYPE_INT64, 8}};
constexpr ElementType kNpyTypes[] = {{"<f4", v1::DATA_TYPE_FLOAT32, 4},
                                     {"<f2", v1::DATA_TYPE_FLOAT16, 2},
                                     {"|i1", v1::DATA_TYPE_INT8, 1},
                                     {"<i4", v1::DATA_TYPE_INT32, 4},
                                     {"<i8", v1::DATA_TYPE_INT64, 8}};

template <size_t kCount>
const ElementType* FindType(const ElementType (&types)[kCount], const std::string& name) {
  for (const ElementType& type : types) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

// The text after `key` in a .npy header, up to one of `ends`.
std::string HeaderField(const std::string& header, const std::string& key, const char* ends) {
  const size_t at = header.find("'" + key + "':");
  if (at == std::string::npos) return "";
  const size_t start = header.find_first_not_of(" '(", at + key.size() + 3);
  if (start == std::string::npos) return "";
  return header.substr(start, header.find_first_of(ends, start) - start);
}

}  // namespace

absl::StatusOr<Array> ReadNpy(const std::string& path) {
  GEMMD_ASSIGN_OR_RETURN(const BoundedFile file, BoundedFile::Open(path));
  if (file.size() < 12) return Bad(path, "is no .npy file");
  GEMMD_ASSIGN_OR_RETURN(const std::string start, file.Read(0, 12));
  if (start.compare(0, 6, "\x93NUMPY") != 0) return Bad(path, "is no .npy file");
  const size_t length_bytes = start[6] == 1 ? 2 : 4;
  size_t header_bytes = 0;
  for (size_t i = 0; i < length_bytes; ++i) {
    header_bytes |= static_cast<size_t>(static_cast<uint8_t>(start[8 + i])) << (8 * i);
  }
  const size_t data_at = 8 + length_bytes + header_bytes;
  if (header_bytes > kMostHeaderBytes || data_at > file.size()) {
    return Bad(path, "the header is longer than the file");
  }
  GEMMD_ASSIGN_OR_RETURN(const std::string header, file.Read(8 + length_bytes, header_bytes));
  if (HeaderField(header, "fortran_order", ",}") != "False") return Bad(path, "is not in C order");
  const std::string name = HeaderField(header, "descr", "'");
  const ElementType* type = FindType(kNpyTypes, name);
  if (type == nullptr) return Bad(path, absl::StrCat("element type '", name, "' is not supported"));
  std::vector<int64_t> shape;
  for (absl::string_view part : absl::StrSplit(HeaderField(header, "shape", ")"), ',')) {
    int64_t extent = 0;
    if (absl::SimpleAtoi(part, &extent)) shape.push_back(extent);
  }
  GEMMD_ASSIGN_OR_RETURN(const std::string data, file.Read(data_at, file.size() - data_at));
  return MakeArray(path, type->dtype, type->bytes, std::move(shape), data);
}

absl::StatusOr<Array> ReadSafetensors(const std::string& path, const std::string& key) {
  GEMMD_ASSIGN_OR_RETURN(const BoundedFile file, BoundedFile::Open(path));
  uint64_t header_bytes = 0;
  if (file.size() < sizeof(header_bytes)) return Bad(path, "is shorter than its header length");
  GEMMD_ASSIGN_OR_RETURN(const std::string start, file.Read(0, sizeof(header_bytes)));
  std::memcpy(&header_bytes, start.data(), sizeof(header_bytes));
  if (header_bytes > kMostHeaderBytes || header_bytes > file.size() - 8) {
    return Bad(path, "the header is longer than the file");
  }
  GEMMD_ASSIGN_OR_RETURN(const std::string text, file.Read(8, header_bytes));
  const auto header = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object() || !header.contains(key)) {
    return Error(absl::StatusCode::kNotFound, "BAD_FILE",
                 absl::StrCat(path, ": holds no tensor ", key));
  }
  const nlohmann::json& entry = header[key];
  if (!entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets") ||
      !entry["dtype"].is_string() || !entry["shape"].is_array() ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2) {
    return Bad(path, absl::StrCat(key, ": damaged header entry"));
  }
  const ElementType* type = FindType(kSafetensorsTypes, entry["dtype"].get<std::string>());
  if (type == nullptr)
    return Bad(path, absl::StrCat(key, ": element type ", entry["dtype"].dump()));
  std::vector<int64_t> shape;
  for (const auto& extent : entry["shape"])
    shape.push_back(extent.is_number() ? extent.get<int64_t>() : -1);
  const auto number = [](const nlohmann::json& value) {
    return value.is_number_unsigned() ? value.get<uint64_t>() : ~uint64_t{0};
  };
  const uint64_t begin = number(entry["data_offsets"][0]);
  const uint64_t end = number(entry["data_offsets"][1]);
  const uint64_t data_bytes = file.size() - 8 - header_bytes;
  if (begin > end || end > data_bytes)
    return Bad(path, absl::StrCat(key, ": data leave the file"));
  GEMMD_ASSIGN_OR_RETURN(const std::string data, file.Read(8 + header_bytes + begin, end - begin));
  return MakeArray(absl::StrCat(path, ":", key), type->dtype, type->bytes, std::move(shape), data);
}

absl::StatusOr<Array> ReadArray(const std::string& source) {
  constexpr char kSuffix[] = ".safetensors:";
  if (const size_t at = source.find(kSuffix); at != std::string::npos) {
    const size_t colon = at + sizeof(kSuffix) - 2;
    return ReadSafetensors(source.substr(0, colon), source.substr(colon + 1));
  }
  if (absl::EndsWith(source, ".npy")) return ReadNpy(source);
  return Error(absl::StatusCode::kInvalidArgument, "BAD_ARGUMENT",
               absl::StrCat("'", source, "' is neither FILE.npy nor FILE.safetensors:KEY"));
}

absl::Status WriteNpy(const Array& array, ExportFile& file) {
  std::string header =
      absl::StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(array.shape, ", "), array.shape.size() == 1 ? "," : "", "), }");
  // Data start at a multiple of 64; the header ends with a newline.
  header.append((64 - (10 + header.size() + 1) % 64) % 64, ' ');
  header += '\n';
  std::string start = "\x93NUMPY";
  start += {'\x01', '\0', static_cast<char>(header.size() & 255),
            static_cast<char>(header.size() >> 8)};
  start += header;
  GEMMD_RETURN_IF_ERROR(file.Write(start.data(), start.size()));
  GEMMD_ASSIGN_OR_RETURN(const Bytes bytes, Encode(v1::DATA_TYPE_FLOAT32, array.values));
  GEMMD_RETURN_IF_ERROR(file.Write(bytes.data(), bytes.size()));
  return file.Commit();
}

}  // namespace gemmd::gemmctl
