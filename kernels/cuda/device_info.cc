#include "kernels/cuda/device_info.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status.h"

namespace gemmd::cuda {
namespace {

// Asks one device question after question; a failing one is noted and gives the fallback.
class DeviceQuery {
 public:
  DeviceQuery(const DriverTable& driver, DeviceInfo& info) : driver_(driver), info_(info) {}

  bool Open() { return Note(driver_.cuDeviceGet(&device_, info_.ordinal), "cuDeviceGet"); }
  int Attribute(CUdevice_attribute attribute, const char* name) {
    int value = 0;
    return Note(driver_.cuDeviceGetAttribute(&value, attribute, device_), name) ? value : 0;
  }
  std::string Name() {
    char name[256] = {};
    return Note(driver_.cuDeviceGetName(name, sizeof(name) - 1, device_), "name") ? name : "";
  }
  std::string Uuid(bool is_mig) {
    CUuuid uuid{};
    return Note(driver_.cuDeviceGetUuid(&uuid, device_), "uuid") ? FormatUuid(uuid, is_mig) : "";
  }
  uint64_t MemoryBytes() {
    size_t bytes = 0;
    return Note(driver_.cuDeviceTotalMem(&bytes, device_), "memory") ? bytes : 0;
  }

 private:
  bool Note(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return true;
    info_.unknown.push_back(absl::StrCat(what, ": ", ResultText(driver_, result)));
    return false;
  }

  const DriverTable& driver_;
  DeviceInfo& info_;
  CUdevice device_ = 0;
};

void DescribeIdentity(DeviceQuery& query, DeviceInfo& info) {
  info.name = query.Name();
  // A MIG instance reports the slice in its name, and its own UUID.
  info.uuid = query.Uuid(info.name.find(" MIG ") != std::string::npos);
  info.cc_major = query.Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, "cc_major");
  if (info.cc_major == 0) return;
  const size_t failures = info.unknown.size();
  info.cc_minor = query.Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, "cc_minor");
  if (info.unknown.size() == failures) {
    info.architecture = ArchitectureName(info.cc_major, info.cc_minor);
  }
}

void DescribeSizes(DeviceQuery& query, DeviceInfo& info) {
  info.memory_bytes = query.MemoryBytes();
  info.sm_count = query.Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "sm_count");
  info.clock_mhz = query.Attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, "clock") / 1000;  // kHz
  info.shared_bytes_per_block =
      query.Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, "shared_per_block");
  info.shared_bytes_per_sm =
      query.Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, "shared_per_sm");
  info.l2_bytes = query.Attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, "l2_bytes");
}

void DescribeAbilities(DeviceQuery& query, DeviceInfo& info) {
  const bool vmm =
      query.Attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "vmm") != 0;
  const bool fd =
      query.Attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "fd") != 0;
  info.has_vmm = vmm && fd;
  info.integrated = query.Attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED, "integrated") != 0;
}

DeviceInfo Describe(const DriverTable& driver, int ordinal) {
  DeviceInfo info;
  info.ordinal = ordinal;
  DeviceQuery query(driver, info);
  if (!query.Open()) return info;
  DescribeIdentity(query, info);
  DescribeSizes(query, info);
  DescribeAbilities(query, info);
  return info;
}

}  // namespace

absl::Status DeviceInfo::Usable() const {
  const std::string gpu = absl::StrCat("GPU ", ordinal, " (", name, ")");
  if (uuid.empty() || architecture.empty()) {
    return Error(absl::StatusCode::kUnavailable, "DRIVER_UNSUPPORTED",
                 absl::StrCat(gpu, " does not answer: ", absl::StrJoin(unknown, "; ")));
  }
  if (cc_major * 10 + cc_minor < 75) {
    return Error(absl::StatusCode::kUnimplemented, "DRIVER_UNSUPPORTED",
                 absl::StrCat(gpu, " has compute capability ", cc_major, ".", cc_minor,
                              "; gemmd needs 7.5 (Turing) or later"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DeviceInfo>> ListGpus(const DriverTable& driver) {
  int count = 0;
  const CUresult result = driver.cuDeviceGetCount(&count);
  if (result == CUDA_ERROR_NO_DEVICE) return std::vector<DeviceInfo>();
  GEMMD_RETURN_IF_ERROR(ToStatus(driver, result, "cuDeviceGetCount"));
  std::vector<DeviceInfo> gpus;
  for (int ordinal = 0; ordinal < count; ++ordinal) gpus.push_back(Describe(driver, ordinal));
  return gpus;
}

std::string ArchitectureName(int cc_major, int cc_minor) {
  return absl::StrCat("sm_", cc_major, cc_minor, cc_major >= 9 ? "a" : "");
}

std::string FormatUuid(const CUuuid& uuid, bool is_mig) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = is_mig ? "MIG" : "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace gemmd::cuda
