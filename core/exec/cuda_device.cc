#include "core/exec/cuda_device.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/exec/cuda_calls.h"
#include "core/exec/cuda_explain.h"
#include "core/exec/cuda_layer.h"
#include "core/exec/cuda_memory.h"
#include "core/exec/tune_call.h"
#include "core/quant/input_scale.h"
#include "kernels/base/status.h"
#include "kernels/contract/element_format.h"
#include "kernels/cuda/device_info.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kernels/gemm.h"

namespace gemmd {
namespace {

constexpr absl::Duration kCompileLimit = absl::Minutes(5);  // of one layer's kernels

// A driver stream and the workspace of its requests, which only grows.
class CudaStream : public Stream {
 public:
  CudaStream(std::shared_ptr<CudaGpu> gpu, cuda::Stream stream)
      : gpu_(std::move(gpu)), stream_(std::move(stream)) {}
  ~CudaStream() override {
    const cuda::ScopedContext scope(gpu_->context);
    workspace_.reset();
    stream_.reset();
  }

  CUstream get() const { return stream_->get(); }
  const CudaGpu& gpu() const { return *gpu_; }
  absl::Status Synchronize() const { return stream_->Synchronize(); }

  // At least `bytes` bytes. Nothing is in flight on the stream between requests.
  absl::StatusOr<uintptr_t> Workspace(uint64_t bytes) {
    if (!workspace_.has_value() || workspace_->size() < bytes) {
      workspace_.reset();
      GEMMD_ASSIGN_OR_RETURN(workspace_, cuda::DeviceBuffer::Create(gpu_->driver, bytes));
    }
    return workspace_->address();
  }

 private:
  const std::shared_ptr<CudaGpu> gpu_;
  std::optional<cuda::Stream> stream_;
  std::optional<cuda::DeviceBuffer> workspace_;
};

DeviceDescription Describe(const cuda::DeviceInfo& info) {
  DeviceDescription description;
  description.id = absl::StrCat("cuda:", info.uuid);
  description.kind = DeviceKind::kCuda;
  description.name = info.name;
  description.architecture = info.architecture;
  description.multiprocessors = info.sm_count;
  description.memory_bytes = info.memory_bytes;
  return description;
}

// Factors in the weights' scales cost nothing at run time. Returns whether some that differ went there.
bool FoldWherePossible(StandardTensor& tensor) {
  if (!tensor.has_input_scale) return false;
  absl::StatusOr<StandardTensor> folded = FoldInputScale(tensor);
  if (!folded.ok()) return false;
  const bool differ = !HasOneInputScale(tensor);
  tensor = *std::move(folded);
  return differ;
}

class CudaDevice : public Device {
 public:
  CudaDevice(const cuda::DeviceInfo& info, std::shared_ptr<CudaGpu> gpu,
             const CudaDeviceOptions& options)
      : description_(Describe(info)),
        gpu_(std::move(gpu)),
        moe_workspace_bytes_(options.moe_workspace_bytes),
        serve_first_(options.serve_first),
        has_tuning_(options.tuning != nullptr) {}

  const DeviceDescription& description() const override { return description_; }

  absl::Status health() const override { return gpu_->health(); }
  uint64_t weights_bytes() const override { return gpu_->weights_bytes; }
  DeviceKernelCounts kernel_counts() const override {
    const KernelCounts counts = gpu_->kernels.counts();
    return {counts.specialised, counts.specialised_failed, counts.self_tests, counts.quarantined};
  }

  absl::StatusOr<std::shared_ptr<DeviceLayer>> LoadLayer(StandardTensor tensor) override {
    const bool folded = FoldWherePossible(tensor);
    return WithContext([&]() -> absl::StatusOr<std::shared_ptr<DeviceLayer>> {
      if (tensor.scale_columns > std::numeric_limits<int32_t>::max()) {
        return Error(absl::StatusCode::kUnimplemented, "NO_KERNEL",
                     absl::StrCat("scale_columns ", tensor.scale_columns, " is beyond 2^31 - 1"));
      }
      const absl::Time deadline = absl::Now() + kCompileLimit;
      const WeightPacking packing =
          gpu_->kernels.PackingOf(tensor.spec, tensor.shape,
                                  {tensor.codes, tensor.scales, tensor.zero_points, tensor.secondary_scales});
      GEMMD_ASSIGN_OR_RETURN(CudaLayerKernels kernels, KernelsOf(tensor, packing, deadline));
      kernels.folded_input_scale = folded;
      GEMMD_ASSIGN_OR_RETURN(std::shared_ptr<CudaLayer> layer,
                             CudaLayer::Load(gpu_, tensor, packing.scales, std::move(kernels)));
      layer->kernels().Specialise();
      if (!serve_first_) layer->kernels().WaitUntilSettled(deadline);
      return layer;
    });
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    return WithContext([&]() -> absl::StatusOr<std::unique_ptr<Stream>> {
      GEMMD_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::Create(gpu_->driver));
      return std::make_unique<CudaStream>(gpu_, std::move(stream));
    });
  }

  absl::StatusOr<std::unique_ptr<Memory>> OpenCudaIpc(absl::Span<const std::byte> handle,
                                                      uint64_t allocation_size) override {
    return WithContext([&] { return OpenIpcMemory(gpu_, handle, allocation_size); });
  }
  absl::StatusOr<std::unique_ptr<Memory>> OpenFd(int fd, uint64_t size) override {
    return WithContext([&] { return ImportVmmMemory(gpu_, fd, size); });
  }
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(uint64_t size) override {
    return WithContext([&] { return AllocateDeviceMemory(gpu_, size); });
  }

  absl::Status CopyIn(uintptr_t address, absl::Span<const std::byte> from) override {
    return WithContext([&]() -> absl::Status {
      if (from.empty()) return absl::OkStatus();
      GEMMD_CUDA(gpu_->driver, cuMemcpyHtoD, address, from.data(), from.size());
      // A copy from pageable memory may return before it is complete; streams do not wait for it.
      GEMMD_CUDA(gpu_->driver, cuStreamSynchronize, nullptr);
      return absl::OkStatus();
    });
  }
  absl::Status CopyOut(uintptr_t address, absl::Span<std::byte> to) override {
    return WithContext([&]() -> absl::Status {
      if (to.empty()) return absl::OkStatus();
      GEMMD_CUDA(gpu_->driver, cuMemcpyDtoH, to.data(), address, to.size());
      return absl::OkStatus();
    });
  }

  absl::StatusOr<CallReport> RunGemm(Stream& stream, const GemmCall& call) override {
    GEMMD_RETURN_IF_ERROR(ValidateCall(call));
    return WithContext([&] { return LaunchGemm(stream, call); });
  }
  absl::StatusOr<MoeReport> RunMoe(Stream& stream, const MoeCall& call) override {
    GEMMD_RETURN_IF_ERROR(ValidateCall(call));
    return WithContext([&] { return LaunchMoeCall(stream, call); });
  }

  absl::StatusOr<KernelExplanation> Explain(const DeviceLayer& layer, int64_t m) override {
    GEMMD_ASSIGN_OR_RETURN(const CudaLayer* const cuda_layer, LayerOf(layer));
    return ExplainGemm(*cuda_layer, m);
  }

  absl::Status Tune(const TuneCall& call) override {
    if (!has_tuning_) return Device::Tune(call);
    return WithContext([&] {
      return gpu_->kernels.Tune(call.layers, call.settings, call.control, call.progress);
    });
  }

 private:
  // Runs `work` with the context current, and remembers an error that only a new process cures.
  template <typename Work>
  auto WithContext(Work work) -> decltype(work()) {
    GEMMD_RETURN_IF_ERROR(health());
    const cuda::ScopedContext scope(gpu_->context);
    gpu_->Remember(scope.status());
    GEMMD_RETURN_IF_ERROR(scope.status());
    auto result = work();
    if constexpr (std::is_same_v<decltype(result), absl::Status>) {
      gpu_->Remember(result);
    } else {
      gpu_->Remember(result.status());
    }
    return result;
  }

  absl::StatusOr<CudaLayerKernels> KernelsOf(const StandardTensor& tensor,
                                             const WeightPacking& packing, absl::Time deadline) {
    GpuKernels& gpu = gpu_->kernels;
    CudaLayerKernels kernels;
    GEMMD_ASSIGN_OR_RETURN(kernels.planned,
                           gpu.PlanLayer(tensor.spec, tensor.shape, packing.why_not, deadline,
                                         TraitsOf(tensor)));
    GEMMD_ASSIGN_OR_RETURN(kernels.moe, gpu.LoadMoeKernels(deadline));
    if (packing.why_not.empty()) {
      GEMMD_ASSIGN_OR_RETURN(kernels.pack, gpu.LoadPackKernel(deadline));
    }
    return kernels;
  }

  absl::Status WrongDevice(absl::string_view what) const {
    return Error(absl::StatusCode::kFailedPrecondition, "WRONG_DEVICE",
                 absl::StrCat(what, " is not on ", description_.id));
  }

  absl::StatusOr<const CudaLayer*> LayerOf(const DeviceLayer& layer) const {
    const auto* cuda_layer = dynamic_cast<const CudaLayer*>(&layer);
    if (cuda_layer == nullptr || &cuda_layer->gpu() != gpu_.get()) return WrongDevice("the layer");
    return cuda_layer;
  }

  absl::StatusOr<CudaStream*> StreamOf(Stream& stream) const {
    auto* cuda_stream = dynamic_cast<CudaStream*>(&stream);
    if (cuda_stream == nullptr || &cuda_stream->gpu() != gpu_.get())
      return WrongDevice("the stream");
    return cuda_stream;
  }

  absl::StatusOr<CallReport> LaunchGemm(Stream& stream, const GemmCall& call) {
    GEMMD_ASSIGN_OR_RETURN(CudaStream* const queue, StreamOf(stream));
    GEMMD_ASSIGN_OR_RETURN(const CudaLayer* const layer, LayerOf(*call.layer));
    GEMMD_ASSIGN_OR_RETURN(const GemmArgs args, MakeGemmArgs(*layer, call));
    const QuantizeKernel* quantizer = layer->QuantizerFor(args.x_type);
    if (call.hadamard_block > 0) {
      GEMMD_ASSIGN_OR_RETURN(quantizer, layer->TransformerFor(args.x_type, call.hadamard_block));
    }
    if (quantizer != nullptr) return LaunchQuantized(*queue, *layer, *quantizer, args, call);
    const DenseRequest request = DenseRequestOf(args, DenseOptionsOf(call));
    layer->kernels().Note(request);
    const std::shared_ptr<const LayerPlan> plan = layer->plan();  // until the kernel has run
    GEMMD_ASSIGN_OR_RETURN(const GemmKernel* const kernel, plan->Serve(request));
    if (call.x.rows > 0) {
      GEMMD_RETURN_IF_ERROR(LaunchDense(gpu_->driver, *kernel, args, queue->get()));
      GEMMD_RETURN_IF_ERROR(queue->Synchronize());
    }
    CallReport report = ReportOf(*kernel, layer->spec(), call.x.type, layer->why_not_quantized());
    report.armed_numerics = ArmedNumerics(*plan, request, *kernel);
    return report;
  }

  // x of `args` is quantized, multiplied or transformed first; the GEMM does not know.
  absl::StatusOr<CallReport> LaunchQuantized(CudaStream& queue, const CudaLayer& layer,
                                             const QuantizeKernel& quantizer, const GemmArgs& args,
                                             const GemmCall& call) {
    QuantizedDense launch{&quantizer, nullptr, args, layer.tensors_of_x(), 0,
                          QuantizeRowsAtATime(quantizer, args.m, moe_workspace_bytes_)};
    GEMMD_ASSIGN_OR_RETURN(
        launch.workspace,
        queue.Workspace(LayoutQuantizeWorkspace(quantizer, launch.rows_at_a_time).bytes));
    const GemmArgs seen =
        QuantizeInFront(quantizer, args, launch.tensors, launch.workspace).gemm;
    const DenseRequest request = DenseRequestOf(seen, DenseOptionsOf(call));
    layer.kernels().Note(request);
    const std::shared_ptr<const LayerPlan> plan = layer.plan();  // until the kernel has run
    GEMMD_ASSIGN_OR_RETURN(launch.gemm, plan->Serve(request));
    if (args.m > 0) {
      // Also after an error: what was launched before it must not outlive the request.
      const absl::Status launched = LaunchQuantizedDense(gpu_->driver, launch, queue.get());
      GEMMD_RETURN_IF_ERROR(queue.Synchronize());
      GEMMD_RETURN_IF_ERROR(launched);
    }
    const bool quantizes = quantizer.mode != QuantizeMode::kNone;
    CallReport report =
        ReportOf(*launch.gemm, layer.spec(), quantizes ? layer.spec().activation : call.x.type,
                 layer.why_not_quantized());
    report.armed_numerics = ArmedNumerics(*plan, request, *launch.gemm);
    report.hadamard_block = call.hadamard_block;
    return report;
  }

  absl::StatusOr<MoeReport> LaunchMoeCall(Stream& stream, const MoeCall& call) {
    GEMMD_ASSIGN_OR_RETURN(CudaStream* const queue, StreamOf(stream));
    GEMMD_ASSIGN_OR_RETURN(const CudaLayer* const gate_up, LayerOf(*call.gate_up));
    GEMMD_ASSIGN_OR_RETURN(const CudaLayer* const down, LayerOf(*call.down));
    if (call.x.rows > 0) {
      // Also after an error: what was launched before it must not outlive the request.
      const absl::Status launched = LaunchChunks(*queue, *gate_up, *down, call);
      GEMMD_RETURN_IF_ERROR(queue->Synchronize());
      GEMMD_RETURN_IF_ERROR(launched);
    }
    const auto report = [&](const CudaLayer& layer) {
      return ReportOf(layer.indexed().KernelFor(call.x.rows), layer.spec(), call.x.type,
                      "mixtures of experts do not quantize activations");
    };
    return MoeReport{report(*gate_up), report(*down)};
  }

  // Chunks of tokens one after the other in the same workspace.
  absl::Status LaunchChunks(CudaStream& queue, const CudaLayer& gate_up, const CudaLayer& down,
                            const MoeCall& call) {
    GEMMD_ASSIGN_OR_RETURN(MoeShape shape, MakeMoeShape(gate_up, down, call));
    const int64_t step = MoeTokensAtATime(shape, moe_workspace_bytes_);
    shape.tokens = step;
    GEMMD_ASSIGN_OR_RETURN(const uintptr_t workspace,
                           queue.Workspace(LayoutMoeWorkspace(shape).bytes));
    for (int64_t first = 0; first < call.x.rows; first += step) {
      const int64_t tokens = std::min(step, call.x.rows - first);
      GEMMD_ASSIGN_OR_RETURN(const MoeLaunch launch,
                             MakeMoeLaunch(gate_up, down, call, first, tokens, workspace));
      GEMMD_RETURN_IF_ERROR(LaunchMoe(gpu_->driver, launch, queue.get()));
    }
    return absl::OkStatus();
  }

  const DeviceDescription description_;
  const std::shared_ptr<CudaGpu> gpu_;
  const uint64_t moe_workspace_bytes_;
  const bool serve_first_;
  const bool has_tuning_;
};

KernelObserver ObserverOf(const CudaDeviceOptions& options, const std::string& device) {
  if (options.on_kernel == nullptr) return nullptr;
  return [notify = options.on_kernel, device](const KernelEvent& event) {
    KernelNotice notice;
    switch (event.kind) {
      case KernelEvent::Kind::kReady:
        notice.kind = KernelNotice::Kind::kReady;
        break;
      case KernelEvent::Kind::kFailed:
        notice.kind = KernelNotice::Kind::kFailed;
        break;
      case KernelEvent::Kind::kQuarantined:
        notice.kind = KernelNotice::Kind::kQuarantined;
        break;
    }
    notice.device = device;
    for (const uint64_t id : event.armed) {
      notice.armed.push_back({id, event.kernel, FormatOf(event.x_type)});
    }
    notice.kernel = event.kernel;
    notice.status = event.status;
    notify(notice);
  };
}

absl::StatusOr<std::unique_ptr<Device>> CreateDevice(const cuda::DriverTable& driver,
                                                     const cuda::DeviceInfo& info,
                                                     const std::shared_ptr<jit::KernelCache>& cache,
                                                     const CudaDeviceOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(cuda::PrimaryContext context,
                         cuda::PrimaryContext::Retain(driver, info.ordinal));
  GpuKernelsOptions kernels;
  kernels.architecture = info.architecture;
  kernels.cache = cache;
  kernels.serves_meanwhile = options.serve_first;
  if (!options.self_test) kernels.make_tester = nullptr;
  kernels.tuning = options.tuning;
  kernels.device = {info.name, info.sm_count, info.clock_mhz};
  kernels.l2_bytes = info.l2_bytes;
  kernels.observer = ObserverOf(options, Describe(info).id);
  auto gpu =
      std::make_shared<CudaGpu>(driver, info.ordinal, std::move(context), std::move(kernels));
  if (options.compile_common) gpu->kernels.CompileCommonKernels();
  return std::make_unique<CudaDevice>(info, std::move(gpu), options);
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Device>>> CreateCudaDevices(
    const CudaDeviceOptions& options) {
  std::vector<std::unique_ptr<Device>> devices;
  const absl::StatusOr<const cuda::DriverTable*> driver = cuda::LoadDriver();
  if (!driver.ok()) return devices;  // no driver: a machine without GPUs
  GEMMD_ASSIGN_OR_RETURN(std::vector<cuda::DeviceInfo> gpus, cuda::ListGpus(**driver));
  std::stable_sort(gpus.begin(), gpus.end(),
                   [](const cuda::DeviceInfo& a, const cuda::DeviceInfo& b) {
                     return a.memory_bytes > b.memory_bytes;
                   });
  std::shared_ptr<jit::KernelCache> cache = options.cache;
  if (cache == nullptr) {
    GEMMD_ASSIGN_OR_RETURN(cache, OpenKernelCache(options.cache_directory));
  }
  for (const cuda::DeviceInfo& info : gpus) {
    if (!info.Usable().ok()) continue;
    absl::StatusOr<std::unique_ptr<Device>> device = CreateDevice(**driver, info, cache, options);
    if (!device.ok()) return Annotate(device.status(), info.uuid);
    devices.push_back(*std::move(device));
  }
  return devices;
}

}  // namespace gemmd
