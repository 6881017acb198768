// What    The part of a Layer that survives a restart of the daemon. Internal to the library.
// Threads Thread-safe.
#ifndef GEMMD_CLIENT_LAYER_RECORD_H_
#define GEMMD_CLIENT_LAYER_RECORD_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/region_record.h"
#include "client/session_state.h"
#include "gemmd/v1/layer.pb.h"

namespace gemmd::client {

using ProgressFunction = std::function<void(const v1::RegisterLayerProgress&)>;

class LayerRecord : public Resource {
 public:
  // A region the source reads, and where its reference belongs in the request.
  struct SourceRegion {
    std::shared_ptr<RegionRecord> region;
    std::function<v1::RegionRef*(v1::RegisterLayerRequest&)> slot;
  };

  LayerRecord(v1::RegisterLayerRequest request, std::vector<SourceRegion> regions,
              std::shared_ptr<LayerUses> uses, ProgressFunction progress)
      : request_(std::move(request)),
        regions_(std::move(regions)),
        uses_(std::move(uses)),
        progress_(std::move(progress)) {}

  v1::LayerInfo info() const;
  std::vector<std::string> notes() const;

  // The id valid on `link`; registers there when necessary.
  absl::StatusOr<uint64_t> IdOn(Link& link, absl::Time deadline);

 protected:
  absl::Status Register(Link& link, absl::Time deadline) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unregister(Link& link) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

 private:
  // The last message, which holds the layer.
  absl::StatusOr<v1::RegisterLayerProgress> Load(Link& link, absl::Time deadline);
  absl::Status Accept(const v1::RegisterLayerProgress& ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const v1::RegisterLayerRequest request_;
  const std::vector<SourceRegion> regions_;
  const std::shared_ptr<LayerUses> uses_;
  const ProgressFunction progress_;
  uint64_t serial_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::LayerInfo info_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_LAYER_RECORD_H_
