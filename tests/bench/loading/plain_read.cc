#include "tests/bench/loading/plain_read.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd::bench {
namespace {

absl::Status Refused(const std::filesystem::path& path) {
  return absl::UnavailableError(absl::StrCat(path.string(), ": ", std::strerror(errno)));
}

class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

constexpr size_t kPart = size_t{16} << 20;

// Pages that the system has yet to provide.
class FreshMemory {
 public:
  FreshMemory()
      : address_(mmap(nullptr, kPart, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
  }
  ~FreshMemory() {
    if (address_ != MAP_FAILED) munmap(address_, kPart);
  }
  FreshMemory(const FreshMemory&) = delete;
  FreshMemory& operator=(const FreshMemory&) = delete;
  char* data() const { return address_ == MAP_FAILED ? nullptr : static_cast<char*>(address_); }

 private:
  void* address_;
};

absl::StatusOr<uint64_t> ReadOne(const std::filesystem::path& path, Target target,
                                 std::vector<char>& buffer) {
  const OpenFile file(path);
  if (file.get() < 0) return Refused(path);
  uint64_t total = 0;
  while (true) {
    std::optional<FreshMemory> fresh;
    if (target == Target::kFreshMemory) fresh.emplace();
    char* const to = fresh ? fresh->data() : buffer.data();
    if (to == nullptr) return absl::ResourceExhaustedError("no memory to read into");
    const ssize_t got = pread(file.get(), to, kPart, static_cast<off_t>(total));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Refused(path);
    if (got == 0) return total;
    total += static_cast<uint64_t>(got);
  }
}

}  // namespace

absl::StatusOr<std::vector<std::filesystem::path>> TensorFiles(
    const std::filesystem::path& directory) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (!files.empty()) return files;
  return absl::NotFoundError(absl::StrCat(directory.string(), ": no .safetensors file"));
}

absl::StatusOr<ReadRate> ReadAll(const std::vector<std::filesystem::path>& files, int threads,
                                 Target target) {
  std::atomic<size_t> next{0};
  std::vector<absl::StatusOr<uint64_t>> results(static_cast<size_t>(threads), uint64_t{0});
  const auto work = [&](size_t thread) {
    std::vector<char> buffer(kPart);
    for (size_t i = next++; i < files.size() && results[thread].ok(); i = next++) {
      const absl::StatusOr<uint64_t> got = ReadOne(files[i], target, buffer);
      results[thread] = got.ok() ? absl::StatusOr<uint64_t>(*results[thread] + *got) : got;
    }
  };
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> workers;
  for (size_t i = 0; i < results.size(); ++i) workers.emplace_back(work, i);
  for (std::thread& worker : workers) worker.join();
  ReadRate rate;
  rate.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (const auto& result : results) {
    GEMMD_RETURN_IF_ERROR(result.status());
    rate.bytes += *result;
  }
  return rate;
}

absl::Status DropFromCache(const std::vector<std::filesystem::path>& files) {
  for (const std::filesystem::path& path : files) {
    const OpenFile file(path);
    if (file.get() < 0 || fdatasync(file.get()) != 0) return Refused(path);
    errno = posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    if (errno != 0) return Refused(path);
  }
  return absl::OkStatus();
}

}  // namespace gemmd::bench
