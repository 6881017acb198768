// Kernels that begin before the one in front has ended (kernels/device/README.md, "Kernels that overlap"):
// chains of dependent launches give the bits that the same launches give one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/exec/cuda_calls.h"
#include "kernels/base/status.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/stream.h"
#include "kernels/launch/gemm_launch.h"
#include "kernels/launch/quantize_launch.h"
#include "tests/bench/device/graph.h"
#include "tests/gpu/gemm_fixture.h"

namespace gemmd::testing {
namespace {

constexpr int64_t kSize = 1024;  // N and K, so that y of one layer is x of the next
constexpr int kSteps = 200;
constexpr uint64_t kWorkspaceBytes = 1 << 20;

struct Part {
  std::shared_ptr<DeviceLayer> owner;
  const CudaLayer* layer;
  std::shared_ptr<const LayerPlan> plan;
};

// Called behind every launch.
using Border = std::function<absl::Status()>;
absl::Status GoOn() { return absl::OkStatus(); }

class OverlapTest : public GemmTest {
 protected:
  void SetUp() override {
    GemmTest::SetUp();
    if (IsSkipped()) return;
    if (device().description().architecture != "sm_90a") GTEST_SKIP() << "needs SM90";
    std::vector<StandardTensor> tensors;
    for (const QuantSpec& spec : Specs()) tensors.push_back(Balanced(spec));
    for (std::shared_ptr<DeviceLayer>& owner : LoadAll(tensors)) {
      ASSERT_NE(owner, nullptr);
      const auto* layer = dynamic_cast<const CudaLayer*>(owner.get());
      ASSERT_NE(layer, nullptr);
      parts_.push_back({std::move(owner), layer, layer->plan()});
    }
    scope_.emplace(gpu().context);
    auto stream = cuda::Stream::Create(gpu().driver);
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_.emplace(*std::move(stream));
    workspace_ = Allocate(kWorkspaceBytes);
  }

  const CudaGpu& gpu() const { return parts_.front().layer->gpu(); }

  std::unique_ptr<Memory> Allocate(uint64_t bytes) {
    auto memory = device().Allocate(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return memory.ok() ? *std::move(memory) : nullptr;
  }

  static MatrixView View(uintptr_t address, int64_t rows) {
    MatrixView view;
    view.address = address;
    view.type = kBFloat16;
    view.rows = rows;
    view.columns = view.row_stride = kSize;
    return view;
  }
  static uint64_t Bytes(int64_t rows) { return static_cast<uint64_t>(rows * kSize * 2); }

  // y = x * w^T, as CudaDevice launches it. `generic`: by the kernel that does not overlap.
  absl::Status Launch(const Part& part, const MatrixView& x, const MatrixView& y, bool generic,
                      uintptr_t workspace, CUstream stream, const Border& border) {
    GemmCall call;
    call.layer = part.owner;
    call.x = x;
    call.y = y;
    GEMMD_ASSIGN_OR_RETURN(GemmArgs args, MakeGemmArgs(*part.layer, call));
    if (const QuantizeKernel* quantizer = part.layer->QuantizerFor(args.x_type)) {
      const QuantizedGemm both =
          QuantizeInFront(*quantizer, args, part.layer->tensors_of_x(), workspace);
      GEMMD_RETURN_IF_ERROR(LaunchQuantize(gpu().driver, *quantizer, both.quantize, stream));
      GEMMD_RETURN_IF_ERROR(border());
      args = both.gemm;
    }
    const GemmKernel& kernel = part.plan->DenseKernelFor(DenseRequestOf(args, {.batch_invariant = generic}));
    EXPECT_EQ(kernel.overlaps_previous, !generic) << kernel.name;
    kernels_.insert(kernel.name);
    GEMMD_RETURN_IF_ERROR(LaunchDense(gpu().driver, kernel, args, stream));
    return border();
  }

  // kSteps layers in turn; every seventh by the generic kernel. Slot s of `slots` holds x of steps s,
  // s + slots, ...: with two of them a step writes what the one in front reads.
  struct Chain {
    int64_t m;
    int slots;
    HostMatrix x;
    std::unique_ptr<Memory> memory;
  };
  Chain MakeChain(int64_t m, int slots) {
    return {m, slots, RandomMatrix(kBFloat16, m, kSize, random_),
            Allocate(static_cast<uint64_t>(slots) * Bytes(m))};
  }
  static uintptr_t Slot(const Chain& chain, int step) {
    return chain.memory->address() + static_cast<uint64_t>(step % chain.slots) * Bytes(chain.m);
  }

  absl::Status Enqueue(const Chain& chain, const Border& border) {
    for (int i = 0; i < kSteps; ++i) {
      GEMMD_RETURN_IF_ERROR(Launch(parts_[static_cast<size_t>(i) % parts_.size()],
                                   View(Slot(chain, i), chain.m), View(Slot(chain, i + 1), chain.m),
                                   /*generic=*/i % 7 == 6, workspace_->address(), stream_->get(),
                                   border));
    }
    return absl::OkStatus();
  }

  // Everything but x is NaN before.
  void Reset(const Chain& chain) {
    ASSERT_EQ(gpu().driver.cuMemsetD8Async(chain.memory->address(), 0xff, chain.memory->size(),
                                           stream_->get()),
              CUDA_SUCCESS);
    ASSERT_TRUE(stream_->Synchronize().ok());
    ASSERT_TRUE(device().CopyIn(chain.memory->address(), chain.x.bytes).ok());
  }
  Buffer Finish(const Chain& chain, const absl::Status& enqueued) {
    EXPECT_TRUE(enqueued.ok()) << enqueued;
    const absl::Status ran = stream_->Synchronize();
    EXPECT_TRUE(ran.ok()) << ran;
    Buffer bytes(chain.memory->size());
    EXPECT_TRUE(device().CopyOut(chain.memory->address(), absl::MakeSpan(bytes)).ok());
    return bytes;
  }
  Buffer Run(const Chain& chain, const Border& border) {
    Reset(chain);
    return Finish(chain, Enqueue(chain, border));
  }
  Buffer RunOneByOne(const Chain& chain) {
    return Run(chain, [this] { return stream_->Synchronize(); });
  }

  // A chain that ends in zeros or NaN would hide what went wrong on the way.
  void ExpectNumbers(const Chain& chain, const Buffer& bytes) {
    HostMatrix last = PoisonedMatrix(kBFloat16, chain.m, kSize);
    const auto from = bytes.begin() + static_cast<int64_t>(Slot(chain, kSteps) - Slot(chain, 0));
    std::copy(from, from + static_cast<int64_t>(last.bytes.size()), last.bytes.begin());
    double largest = 0;
    for (int64_t row = 0; row < chain.m; ++row) {
      for (int64_t column = 0; column < kSize; ++column) {
        ASSERT_TRUE(std::isfinite(last.at(row, column))) << row << ", " << column;
        largest = std::max(largest, std::abs(last.at(row, column)));
      }
    }
    EXPECT_GT(largest, 1e-20);
  }

  std::vector<Part> parts_;
  std::set<std::string> kernels_;  // that Launch used
  std::optional<cuda::ScopedContext> scope_;
  std::optional<cuda::Stream> stream_;
  std::unique_ptr<Memory> workspace_;  // of every quantized step: each overwrites the last one's codes

 private:
  static std::vector<QuantSpec> Specs() {
    QuantSpec int8 = Spec(IntegerFormat(8), kBFloat16, 1, 0);
    int8.activation = kInt8;
    int8.activation_scale = ActivationScaleKind::kDynamicToken;
    QuantSpec blocks = Spec(kFloat8E4M3, kFloat32, 128, 128);
    blocks.activation = kFloat8E4M3;
    blocks.activation_scale = ActivationScaleKind::kDynamicGroup;
    blocks.activation_group = 128;
    return {Spec(IntegerFormat(4), kBFloat16, 1, 128), int8, Spec(kFloat4E2M1, kFloat8E8M0, 1, 32),
            blocks};
  }

  // Weights that keep the magnitude of x, so that kSteps products stay in bfloat16's range.
  StandardTensor Balanced(const QuantSpec& spec) {
    StandardTensor tensor = RandomTensor(spec, {1, kSize, kSize}, random_);
    SetScales(tensor, 1);
    constexpr int kRows = 16;
    double squares = 0;
    for (int row = 0; row < kRows; ++row) {
      for (const double w : WeightRow(tensor, 0, row)) squares += w * w;
    }
    SetScales(tensor, 1 / std::sqrt(squares / kRows));
    return tensor;
  }
  static void SetScales(StandardTensor& tensor, double value) {
    const int64_t count = static_cast<int64_t>(tensor.scales.size()) * 8 / tensor.spec.scale.bits;
    for (int64_t i = 0; i < count; ++i) SetNumber(tensor.spec.scale, tensor.scales, i, value);
  }
};

TEST_F(OverlapTest, ChainsGiveTheBitsOfLaunchesOneByOne) {
  for (const int64_t m : {1, 40, 300}) {
    kernels_.clear();
    for (const int slots : {kSteps + 1, 2}) {
      const Chain chain = MakeChain(m, slots);
      const Buffer expected = RunOneByOne(chain);
      ExpectNumbers(chain, expected);
      ASSERT_FALSE(HasFailure());
      for (int i = 0; i < 10; ++i) {
        ASSERT_TRUE(Run(chain, GoOn) == expected)
            << "M " << m << ", slots " << slots << ", run " << i;
      }
    }
    EXPECT_GE(kernels_.size(), 6u) << "too few kinds of kernels for M " << m;
  }
}

TEST_F(OverlapTest, SoDoReplaysOfACapturedChain) {
  const auto calls = bench::GraphCalls::Load();
  ASSERT_TRUE(calls.ok()) << calls.status();
  for (const int64_t m : {1, 40, 300}) {
    const Chain chain = MakeChain(m, /*slots=*/2);
    const Buffer expected = RunOneByOne(chain);
    const auto graph = bench::Graph::Capture(gpu().driver, *calls, stream_->get(),
                                             [&] { return Enqueue(chain, GoOn); });
    ASSERT_TRUE(graph.ok()) << graph.status();
    for (int i = 0; i < 100; ++i) {
      Reset(chain);
      ASSERT_TRUE(Finish(chain, graph->Launch(stream_->get())) == expected)
          << "M " << m << ", replay " << i;
    }
  }
}

TEST_F(OverlapTest, TwoStreamsOnOneLayerDoNotMeet) {
  constexpr int64_t kRows = 16;
  constexpr int kOutputs = 4;  // launches that overlap, behind the memset
  struct Lane {
    cuda::Stream stream;
    DeviceMatrix x;
    std::unique_ptr<Memory> y;
    std::unique_ptr<Memory> workspace;
    Buffer expected;
  };
  std::vector<Lane> lanes;
  for (int i = 0; i < 2; ++i) {
    auto stream = cuda::Stream::Create(gpu().driver);
    ASSERT_TRUE(stream.ok()) << stream.status();
    lanes.push_back({*std::move(stream),
                     runner().Upload(RandomMatrix(kBFloat16, kRows, kSize, random_)),
                     Allocate(kOutputs * Bytes(kRows)), Allocate(kWorkspaceBytes), {}});
  }
  const auto enqueue = [&](const Part& part, Lane& lane, const Border& border) -> absl::Status {
    GEMMD_CUDA(gpu().driver, cuMemsetD8Async, lane.y->address(), 0xff, lane.y->size(),
               lane.stream.get());
    for (uint64_t i = 0; i < kOutputs; ++i) {
      GEMMD_RETURN_IF_ERROR(Launch(part, lane.x.view, View(lane.y->address() + i * Bytes(kRows), kRows),
                                   /*generic=*/false, lane.workspace->address(), lane.stream.get(),
                                   border));
    }
    return absl::OkStatus();
  };
  const auto finish = [&](Lane& lane) {
    const absl::Status ran = lane.stream.Synchronize();
    EXPECT_TRUE(ran.ok()) << ran;
    Buffer bytes(lane.y->size());
    EXPECT_TRUE(device().CopyOut(lane.y->address(), absl::MakeSpan(bytes)).ok());
    return bytes;
  };
  for (const Part& part : parts_) {
    for (Lane& lane : lanes) {
      ASSERT_TRUE(enqueue(part, lane, [&] { return lane.stream.Synchronize(); }).ok());
      lane.expected = finish(lane);
    }
    for (int i = 0; i < 1000; ++i) {
      for (Lane& lane : lanes) ASSERT_TRUE(enqueue(part, lane, GoOn).ok());
      for (Lane& lane : lanes) ASSERT_TRUE(finish(lane) == lane.expected) << "repetition " << i;
    }
  }
}

}  // namespace
}  // namespace gemmd::testing
