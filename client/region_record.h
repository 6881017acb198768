// What    The part of a Region that survives a restart of the daemon. Internal to the library.
// Threads Thread-safe.
#ifndef GEMMD_CLIENT_REGION_RECORD_H_
#define GEMMD_CLIENT_REGION_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/cuda_memory.h"
#include "client/host_arena.h"
#include "client/session_state.h"
#include "gemmd/v1/region.pb.h"

namespace gemmd::client {

class RegionRecord : public Resource {
 public:
  RegionRecord(std::string device, uint64_t size, std::string label)
      : device_(std::move(device)), size_(size), label_(std::move(label)) {}

  const std::string& device() const { return device_; }
  uint64_t size() const { return size_; }
  virtual std::byte* data() const { return nullptr; }

  // Both check the bounds first.
  absl::Status Write(SessionState& session, uint64_t offset, absl::Span<const std::byte> bytes);
  absl::Status Read(SessionState& session, uint64_t offset, absl::Span<std::byte> bytes);

  // The reference valid on `link`; registers there when necessary. With `reads`, CONTENT_LOST when
  // the bytes did not survive a restart.
  absl::StatusOr<v1::RegionRef> RefOn(Link& link, absl::Time deadline, bool reads);

 protected:
  virtual absl::Status FillSource(Link& link, absl::Time deadline,
                                  v1::RegisterRegionRequest& request) = 0;
  virtual absl::Status DoWrite(SessionState& session, uint64_t offset,
                               absl::Span<const std::byte> bytes) = 0;
  virtual absl::Status DoRead(SessionState& session, uint64_t offset,
                              absl::Span<std::byte> bytes) = 0;
  virtual bool keeps_content() const { return true; }

  absl::Status Register(Link& link, absl::Time deadline) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unregister(Link& link) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MarkWritten();

 private:
  const std::string device_;
  const uint64_t size_;
  const std::string label_;
  v1::RegionRef ref_ ABSL_GUARDED_BY(mutex_);
  int registrations_ ABSL_GUARDED_BY(mutex_) = 0;
  bool content_lost_ ABSL_GUARDED_BY(mutex_) = false;
};

class HostRegionRecord : public RegionRecord {
 public:
  HostRegionRecord(std::string device, std::shared_ptr<HostArena> arena, std::string label)
      : RegionRecord(std::move(device), arena->size(), std::move(label)),
        arena_(std::move(arena)) {}
  std::byte* data() const override { return arena_->data(); }

 protected:
  absl::Status FillSource(Link& link, absl::Time deadline,
                          v1::RegisterRegionRequest& request) override;
  absl::Status DoWrite(SessionState& session, uint64_t offset,
                       absl::Span<const std::byte> bytes) override;
  absl::Status DoRead(SessionState& session, uint64_t offset, absl::Span<std::byte> bytes) override;

 private:
  const std::shared_ptr<HostArena> arena_;
};

class CudaRegionRecord : public RegionRecord {
 public:
  CudaRegionRecord(CudaExport exported, uintptr_t address, std::string label)
      : RegionRecord(exported.device, exported.memory.size(), std::move(label)),
        exported_(std::move(exported)),
        address_(address) {}

 protected:
  absl::Status FillSource(Link& link, absl::Time deadline,
                          v1::RegisterRegionRequest& request) override;
  absl::Status DoWrite(SessionState& session, uint64_t offset,
                       absl::Span<const std::byte> bytes) override;
  absl::Status DoRead(SessionState& session, uint64_t offset, absl::Span<std::byte> bytes) override;

 private:
  const CudaExport exported_;
  const uintptr_t address_;
};

class DaemonRegionRecord : public RegionRecord {
 public:
  using RegionRecord::RegionRecord;

 protected:
  absl::Status FillSource(Link& link, absl::Time deadline,
                          v1::RegisterRegionRequest& request) override;
  absl::Status DoWrite(SessionState& session, uint64_t offset,
                       absl::Span<const std::byte> bytes) override;
  absl::Status DoRead(SessionState& session, uint64_t offset, absl::Span<std::byte> bytes) override;
  bool keeps_content() const override { return false; }
};

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_REGION_RECORD_H_
