// Requests: from ids to addresses, then into the session's queue.
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/node.h"
#include "core/node_impl.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

// Resolves the arguments of one request, all on one device, and holds their memory.
class Arguments {
 public:
  Arguments(const Node::Impl& impl, const Session& session, const Device& device)
      : impl_(impl), session_(session), device_(device) {}

  absl::StatusOr<MatrixView> Matrix(absl::string_view field, const TensorRef& ref,
                                    VectorMeaning vector) {
    absl::StatusOr<Node::Impl::Argument> argument = impl_.Acquire(session_, ref.region);
    if (!argument.ok()) return Annotate(argument.status(), field);
    if (argument->device != &device_) {
      return Error(absl::StatusCode::kFailedPrecondition, "WRONG_DEVICE",
                   absl::StrCat(field, " is on ", argument->device->description().id,
                                ", the layer is on ", device_.description().id));
    }
    GEMMD_ASSIGN_OR_RETURN(const MatrixView view,
                           ResolveMatrix(field, ref, argument->extent, vector));
    held_.push_back(std::move(argument->memory));
    return view;
  }

  absl::Status Optional(absl::string_view field, const std::optional<TensorRef>& ref,
                        VectorMeaning vector, std::optional<MatrixView>& out) {
    if (!ref.has_value()) return absl::OkStatus();
    GEMMD_ASSIGN_OR_RETURN(out, Matrix(field, *ref, vector));
    return absl::OkStatus();
  }

  std::vector<std::shared_ptr<Memory>> TakeHeld() { return std::move(held_); }

 private:
  const Node::Impl& impl_;
  const Session& session_;
  const Device& device_;
  std::vector<std::shared_ptr<Memory>> held_;
};

// What differs between dense and MoE requests.
struct Dense {
  using Call = GemmCall;
  using Report = CallReport;
  using Result = GemmResult;
  static constexpr bool kMoe = false;
  static absl::StatusOr<Report> Run(Device& device, Stream& stream, const Call& call) {
    return device.RunGemm(stream, call);
  }
};
struct Moe {
  using Call = MoeCall;
  using Report = MoeReport;
  using Result = MoeResult;
  static constexpr bool kMoe = true;
  static absl::StatusOr<Report> Run(Device& device, Stream& stream, const Call& call) {
    return device.RunMoe(stream, call);
  }
};

// A call with everything it needs to stay valid until it is done.
template <typename Kind>
struct Prepared {
  Device* device = nullptr;
  typename Kind::Call call;
  std::vector<std::shared_ptr<Memory>> held;
};

template <typename Kind>
class RequestJob : public Job {
 public:
  using Done = std::function<void(absl::StatusOr<typename Kind::Result>)>;

  RequestJob(Node::Impl& impl, Prepared<Kind> prepared, Done done)
      : impl_(impl),
        device_(*prepared.device),
        prepared_(std::make_unique<Prepared<Kind>>(std::move(prepared))),
        done_(std::move(done)) {}

  std::function<void()> Run(Stream& stream, absl::Duration queued) override {
    const absl::Time start = absl::Now();
    absl::StatusOr<typename Kind::Report> report = RunOnDevice(stream);
    const Timing timing{queued, absl::Now() - start};
    prepared_.reset();
    return [this, report = std::move(report), timing] {
      Observe(report.status().code(), timing);
      if (!report.ok()) return Finish(report.status());
      Finish(typename Kind::Result{device_.description().id, *report, timing});
    };
  }

  void Fail(const absl::Status& status, absl::Duration queued) override {
    prepared_.reset();
    Observe(status.code(), {queued, absl::ZeroDuration()});
    Finish(status);
  }

  // Fails a job that was never queued.
  void Reject(const absl::Status& status) {
    prepared_.reset();
    impl_.Observe([&](NodeObserver& o) { o.OnRejected(ReasonOf(status)); });
    Finish(status);
  }

 private:
  absl::StatusOr<typename Kind::Report> RunOnDevice(Stream& stream) {
    try {
      return Kind::Run(device_, stream, prepared_->call);
    } catch (const std::exception& error) {
      return Error(absl::StatusCode::kInternal, "INTERNAL",
                   absl::StrCat("the device failed: ", error.what()));
    }
  }

  void Observe(absl::StatusCode code, const Timing& timing) {
    impl_.Observe(
        [&](NodeObserver& o) { o.OnRequest(device_.description().id, Kind::kMoe, code, timing); });
  }

  void Finish(absl::StatusOr<typename Kind::Result> result) {
    done_(std::move(result));
    done_ = nullptr;
    impl_.activity.End();
  }

  Node::Impl& impl_;
  Device& device_;
  std::unique_ptr<Prepared<Kind>> prepared_;  // null once the job is done
  Done done_;
};

absl::StatusOr<Prepared<Dense>> Prepare(const Node::Impl& impl, const Session& session,
                                        const GemmRequest& request) {
  GEMMD_ASSIGN_OR_RETURN(const LayerRegistry::Use use,
                         impl.layers->Find(session.id(), request.layer_id));
  Prepared<Dense> prepared;
  prepared.device = use.device;
  prepared.call.layer = use.layer;
  prepared.call.batch_invariant = request.batch_invariant;
  prepared.call.numerics = request.numerics;
  prepared.call.hadamard_block = request.hadamard_block;
  prepared.call.fp16_accumulation = request.fp16_accumulation;
  Arguments arguments(impl, session, *use.device);
  GEMMD_ASSIGN_OR_RETURN(prepared.call.x, arguments.Matrix("x", request.x, VectorMeaning::kRow));
  GEMMD_ASSIGN_OR_RETURN(prepared.call.y, arguments.Matrix("y", request.y, VectorMeaning::kRow));
  GEMMD_RETURN_IF_ERROR(arguments.Optional("x_scale", request.x_scale, VectorMeaning::kColumn,
                                           prepared.call.x_scale));
  prepared.held = arguments.TakeHeld();
  return prepared;
}

// Both layers of a MoE request, on one device.
absl::Status FindExperts(const Node::Impl& impl, const Session& session, const MoeRequest& request,
                         Prepared<Moe>& prepared) {
  absl::StatusOr<LayerRegistry::Use> gate_up =
      impl.layers->Find(session.id(), request.gate_up_layer_id);
  if (!gate_up.ok()) return Annotate(gate_up.status(), "gate_up_layer_id");
  absl::StatusOr<LayerRegistry::Use> down = impl.layers->Find(session.id(), request.down_layer_id);
  if (!down.ok()) return Annotate(down.status(), "down_layer_id");
  if (gate_up->device != down->device) {
    return Error(absl::StatusCode::kFailedPrecondition, "WRONG_DEVICE",
                 absl::StrCat("the gate/up layer is on ", gate_up->device->description().id,
                              ", the down layer on ", down->device->description().id));
  }
  prepared.device = gate_up->device;
  prepared.call.gate_up = gate_up->layer;
  prepared.call.down = down->layer;
  return absl::OkStatus();
}

absl::Status ResolveRouting(const MoeRequest& request, Arguments& arguments, MoeCall& call) {
  GEMMD_RETURN_IF_ERROR(
      arguments.Optional("topk_ids", request.topk_ids, VectorMeaning::kColumn, call.topk_ids));
  GEMMD_RETURN_IF_ERROR(arguments.Optional("topk_weights", request.topk_weights,
                                           VectorMeaning::kColumn, call.topk_weights));
  if (!request.router_logits.has_value()) return absl::OkStatus();
  RouterLogits router;
  GEMMD_ASSIGN_OR_RETURN(router.logits, arguments.Matrix("router_logits", *request.router_logits,
                                                         VectorMeaning::kRow));
  router.top_k = request.top_k;
  router.renormalize = request.renormalize;
  call.router_logits = router;
  return absl::OkStatus();
}

void SetOptions(const MoeRequest& request, MoeCall& call) {
  const bool clamped = request.activation == ActivationFunction::kSwigluClamped;
  call.activation = request.activation;
  call.alpha = request.alpha != 0 ? request.alpha : 1.702f;
  call.limit = request.limit == 0 && clamped ? 7.0f : request.limit;
  call.router_weight_on_input = request.router_weight_on_input;
  call.first_expert = request.first_expert;
  call.total_experts = request.total_experts;
  int64_t all = 0;
  const int64_t experts = call.gate_up->shape().experts;
  // An absurd first_expert is refused by ValidateCall, with total_experts 0.
  if (call.total_experts == 0 && !__builtin_add_overflow(call.first_expert, experts, &all)) {
    call.total_experts = all;
  }
}

absl::StatusOr<Prepared<Moe>> Prepare(const Node::Impl& impl, const Session& session,
                                      const MoeRequest& request) {
  Prepared<Moe> prepared;
  GEMMD_RETURN_IF_ERROR(FindExperts(impl, session, request, prepared));
  Arguments arguments(impl, session, *prepared.device);
  GEMMD_ASSIGN_OR_RETURN(prepared.call.x, arguments.Matrix("x", request.x, VectorMeaning::kRow));
  GEMMD_ASSIGN_OR_RETURN(prepared.call.y, arguments.Matrix("y", request.y, VectorMeaning::kRow));
  GEMMD_RETURN_IF_ERROR(ResolveRouting(request, arguments, prepared.call));
  SetOptions(request, prepared.call);
  prepared.held = arguments.TakeHeld();
  return prepared;
}

// Resolves and checks everything a request needs before it may wait.
template <typename Kind, typename Request>
absl::StatusOr<Prepared<Kind>> PrepareChecked(const Node::Impl& impl, const Session& session,
                                              const Request& request) {
  if (session.ended()) {
    return Error(absl::StatusCode::kAborted, "SESSION_ENDED", "the session ended");
  }
  GEMMD_ASSIGN_OR_RETURN(Prepared<Kind> prepared, Prepare(impl, session, request));
  GEMMD_RETURN_IF_ERROR(ValidateCall(prepared.call));
  GEMMD_RETURN_IF_ERROR(prepared.device->health());
  return prepared;
}

// Ends a running call whose time, client or session is gone. The session owns the queue that holds
// the call, so the call must not own the session.
StopFunction StopWhenGone(const std::shared_ptr<Session>& session, absl::Time deadline,
                          std::function<bool()> cancelled) {
  return [owner = std::weak_ptr<Session>(session), deadline,
          cancelled = std::move(cancelled)]() -> absl::Status {
    // First: the daemon closes the connections of sessions that it ended, which cancels their calls.
    const std::shared_ptr<Session> alive = owner.lock();
    if (alive == nullptr || alive->ended()) {
      return Error(absl::StatusCode::kAborted, "SESSION_ENDED",
                   "the session ended while the request ran");
    }
    if (cancelled && cancelled()) {
      return Error(absl::StatusCode::kCancelled, "CANCELLED", "the client gave up while it ran");
    }
    if (absl::Now() < deadline) return absl::OkStatus();
    return Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE",
                 "the deadline passed while the request ran");
  };
}

template <typename Kind, typename Request>
void Submit(Node::Impl& impl, const std::shared_ptr<Session>& session, const Request& request,
            absl::Time deadline, std::function<bool()> cancelled,
            typename RequestJob<Kind>::Done done) {
  const auto reject = [&impl](const absl::Status& status) {
    impl.Observe([&](NodeObserver& o) { o.OnRejected(ReasonOf(status)); });
  };
  if (absl::Status begun = impl.activity.Begin(); !begun.ok()) {
    reject(begun);
    return done(begun);
  }
  absl::StatusOr<Prepared<Kind>> prepared = PrepareChecked<Kind>(impl, *session, request);
  if (!prepared.ok()) {
    reject(prepared.status());
    done(prepared.status());
    return impl.activity.End();
  }
  Device& device = *prepared->device;
  prepared->call.stop = StopWhenGone(session, deadline, cancelled);
  auto job = std::make_shared<RequestJob<Kind>>(impl, *std::move(prepared), std::move(done));
  job->deadline = deadline;
  job->cancelled = std::move(cancelled);
  if (absl::Status status = session->Submit(device, job); !status.ok()) return job->Reject(status);
  ++impl.requests_total;
}

}  // namespace

void Node::SubmitGemm(const std::shared_ptr<Session>& session, const GemmRequest& request,
                      absl::Time deadline, std::function<bool()> cancelled,
                      std::function<void(absl::StatusOr<GemmResult>)> done) {
  Submit<Dense>(*impl_, session, request, deadline, std::move(cancelled), std::move(done));
}

void Node::SubmitMoe(const std::shared_ptr<Session>& session, const MoeRequest& request,
                     absl::Time deadline, std::function<bool()> cancelled,
                     std::function<void(absl::StatusOr<MoeResult>)> done) {
  Submit<Moe>(*impl_, session, request, deadline, std::move(cancelled), std::move(done));
}

}  // namespace gemmd
