// Tuning: measuring in the pauses that requests leave.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/exec/tune_call.h"
#include "core/node.h"
#include "core/node_impl.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(2);

absl::StatusOr<Device*> FindTunable(const Node::Impl& impl, const std::string& id) {
  if (!id.empty()) {
    GEMMD_ASSIGN_OR_RETURN(const Node::Impl::Place* const place, impl.FindPlace(id));
    return place->device.get();
  }
  for (const Node::Impl::Place& place : impl.places) {
    if (place.device->description().kind == DeviceKind::kCuda) return place.device.get();
  }
  return Error(absl::StatusCode::kFailedPrecondition, "NOT_TUNABLE",
               "this node has no GPU: kernels are measured on the device that they are to serve");
}

}  // namespace

absl::Status Node::Tune(const std::string& device_id, std::vector<TuneLayer> layers,
                        TuneSettings settings, std::function<bool()> cancelled,
                        TuneProgress progress) {
  GEMMD_ASSIGN_OR_RETURN(Device* const device, FindTunable(*impl_, device_id));
  TuneCall call{std::move(layers), std::move(settings), {}, std::move(progress)};
  Impl& impl = *impl_;
  call.control.cancelled = [&impl, &cancelled] { return impl.activity.draining() || cancelled(); };
  call.control.disturbances = [&impl]() -> uint64_t { return impl.requests_total; };
  call.control.wait = [&impl, &cancelled, deadline = call.settings.deadline]() -> absl::Status {
    while (true) {
      if (impl.activity.draining()) return Draining();
      if (cancelled()) return absl::CancelledError("the client has gone");
      if (impl.activity.idle()) return absl::OkStatus();
      if (absl::Now() >= deadline) {
        return Error(absl::StatusCode::kDeadlineExceeded, "TIME_LIMIT",
                     "requests kept the node busy until the time limit");
      }
      absl::SleepFor(kPoll);
    }
  };
  return device->Tune(call);
}

}  // namespace gemmd
