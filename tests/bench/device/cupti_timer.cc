#include "tests/bench/device/cupti_timer.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"

namespace gemmd::bench {
namespace {

constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr size_t kBufferAlignment = 8;

struct FilledBuffer {
  uint8_t* data;
  size_t bytes;
};

// CUPTI's callbacks carry no pointer of ours.
struct FilledBuffers {
  Mutex mutex;
  std::vector<FilledBuffer> list ABSL_GUARDED_BY(mutex);
};
FilledBuffers& Filled() {
  static auto* filled = new FilledBuffers;
  return *filled;
}

void CUPTIAPI GiveBuffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer != nullptr ? kBufferBytes : 0;
  *most_records = 0;  // as many as fit
}

void CUPTIAPI TakeBuffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  FilledBuffers& filled = Filled();
  MutexLock lock(filled.mutex);
  filled.list.push_back({buffer, valid_bytes});
}

// "void gemmd::device::Gemm<Config>(...)" -> "gemmd::device::Gemm".
std::string ShortName(const char* mangled) {
  if (mangled == nullptr) return "unnamed";
  int status = 0;
  char* demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 ? demangled : mangled;
  std::free(demangled);
  name = name.substr(0, name.find_first_of("<("));
  return name.rfind("void ", 0) == 0 ? name.substr(5) : name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CuptiTimer>> CuptiTimer::Load(const std::string& library) {
  GEMMD_ASSIGN_OR_RETURN(
      SharedLibrary cupti,
      SharedLibrary::Load(library, {"libcupti.so.13", "libcupti.so.12", "libcupti.so"}));
  Functions functions{};
  GEMMD_RETURN_IF_ERROR(cupti.Find("cuptiActivityRegisterCallbacks", functions.register_callbacks));
  GEMMD_RETURN_IF_ERROR(cupti.Find("cuptiActivityEnable", functions.enable));
  GEMMD_RETURN_IF_ERROR(cupti.Find("cuptiActivityDisable", functions.disable));
  GEMMD_RETURN_IF_ERROR(cupti.Find("cuptiActivityFlushAll", functions.flush_all));
  GEMMD_RETURN_IF_ERROR(cupti.Find("cuptiActivityGetNextRecord", functions.next_record));
  GEMMD_RETURN_IF_ERROR(cupti.Find("cuptiActivityGetNumDroppedRecords", functions.dropped_records));
  GEMMD_RETURN_IF_ERROR(cupti.Find("cuptiGetVersion", functions.get_version));
  GEMMD_RETURN_IF_ERROR(cupti.Find("cuptiGetResultString", functions.result_string));
  return std::unique_ptr<CuptiTimer>(new CuptiTimer(std::move(cupti), functions));
}

absl::Status CuptiTimer::ToStatus(CUptiResult result, const char* call) const {
  if (result == CUPTI_SUCCESS) return absl::OkStatus();
  const char* text = nullptr;
  functions_.result_string(result, &text);
  return absl::UnavailableError(
      absl::StrCat(call, ": ", text != nullptr ? text : "unknown error", " (", int{result}, ")"));
}

std::string CuptiTimer::version() const {
  uint32_t version = 0;
  functions_.get_version(&version);
  return absl::StrCat(version);
}

absl::Status CuptiTimer::Start() {
  if (!registered_) {
    GEMMD_RETURN_IF_ERROR(ToStatus(functions_.register_callbacks(&GiveBuffer, &TakeBuffer),
                                   "cuptiActivityRegisterCallbacks"));
    registered_ = true;
  }
  return ToStatus(functions_.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
}

absl::StatusOr<std::vector<KernelRecord>> CuptiTimer::Stop() {
  GEMMD_RETURN_IF_ERROR(
      ToStatus(functions_.disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityDisable"));
  GEMMD_RETURN_IF_ERROR(
      ToStatus(functions_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll"));
  std::vector<FilledBuffer> buffers;
  {
    FilledBuffers& filled = Filled();
    MutexLock lock(filled.mutex);
    buffers.swap(filled.list);
  }
  std::vector<KernelRecord> records;
  absl::Status status;
  for (const FilledBuffer& buffer : buffers) {
    if (status.ok()) status = ReadBuffer(buffer.data, buffer.bytes, records);
    std::free(buffer.data);
  }
  GEMMD_RETURN_IF_ERROR(status);
  size_t dropped = 0;
  functions_.dropped_records(nullptr, 0, &dropped);
  if (dropped > 0) return absl::InternalError(absl::StrCat("CUPTI dropped ", dropped, " records"));
  std::sort(records.begin(), records.end(),
            [](const KernelRecord& a, const KernelRecord& b) { return a.start_ns < b.start_ns; });
  return records;
}

absl::Status CuptiTimer::ReadBuffer(uint8_t* buffer, size_t bytes,
                                    std::vector<KernelRecord>& records) const {
  CUpti_Activity* record = nullptr;
  for (;;) {
    const CUptiResult result = functions_.next_record(buffer, bytes, &record);
    if (result == CUPTI_ERROR_MAX_LIMIT_REACHED) return absl::OkStatus();
    GEMMD_RETURN_IF_ERROR(ToStatus(result, "cuptiActivityGetNextRecord"));
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL &&
        record->kind != CUPTI_ACTIVITY_KIND_KERNEL) {
      continue;
    }
    // The fields read here have kept their places since the fourth version of this record.
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    records.push_back({ShortName(kernel->name), kernel->start,
                       static_cast<double>(kernel->end - kernel->start) / 1000});
  }
}

}  // namespace gemmd::bench
