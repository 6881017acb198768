// What    Region: memory that requests refer to, registered with the daemon while the object lives.
// Kinds   host    a HostArena of ours, shared as a descriptor (CPU device)
//         cuda    the caller's CUDA memory, by IPC handle; the caller frees it after the Region
//         daemon  memory the daemon allocates; bytes travel in messages
// Restart A region is registered anew with a restarted daemon. Daemon-owned memory comes back
//         empty: until the next Write, requests that read it fail with Aborted CONTENT_LOST.
// Errors  REGION_OUT_OF_BOUNDS, NOT_IPC_CAPABLE, and what the daemon answers (proto/README.md).
// Threads Different regions: any threads. One region: Write, Read and use in requests may run
//         concurrently, Release and destruction may not, and must come after the answers of
//         requests that use it.
#ifndef GEMMD_CLIENT_REGION_H_
#define GEMMD_CLIENT_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/region_record.h"
#include "client/session_state.h"

namespace gemmd::client {

class Region {
 public:
  Region() = default;  // empty
  Region(Region&& other) noexcept = default;
  Region& operator=(Region&& other) noexcept;
  ~Region() { Release(); }

  bool empty() const { return record_ == nullptr; }
  uint64_t size() const { return record_->size(); }
  const std::string& device() const { return record_->device(); }
  // Host memory of a region of kind host; null for the others.
  std::byte* data() const { return record_->data(); }

  absl::Status Write(uint64_t offset, absl::Span<const std::byte> bytes);
  absl::Status Read(uint64_t offset, absl::Span<std::byte> bytes) const;

  // Unregisters; the destructor does it too.
  void Release();

  // For this library.
  const std::shared_ptr<RegionRecord>& record() const { return record_; }

 private:
  friend class Session;
  Region(std::shared_ptr<SessionState> session, std::shared_ptr<RegionRecord> record)
      : session_(std::move(session)), record_(std::move(record)) {}

  std::shared_ptr<SessionState> session_;
  std::shared_ptr<RegionRecord> record_;
};

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_REGION_H_
