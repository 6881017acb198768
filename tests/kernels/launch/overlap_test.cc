// Which kernels may begin before the one in front has ended: those whose source waits for it, no other.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/library.h"
#include "kernels/jit/embedded_sources.h"
#include "kernels/layer_programs.h"
#include "kernels/launch/gemm_launch.h"
#include "kernels/launch/quantize_launch.h"
#include "tests/support/fake_driver.h"

namespace gemmd {
namespace {

// Of the header that the program includes.
bool SourceSays(const jit::KernelSource& source, absl::string_view text) {
  for (const jit::EmbeddedSource& file : jit::EmbeddedSources()) {
    if (absl::StartsWith(source.program, absl::StrCat("#include \"", file.name, "\""))) {
      return absl::StrContains(file.text, text);
    }
  }
  ADD_FAILURE() << "no source for " << source.name_expression;
  return false;
}

bool Waits(const jit::KernelSource& source) {
  const bool waits = SourceSays(source, "ptx::GridDependencyWait()");
  EXPECT_EQ(SourceSays(source, "ptx::GridDependencyLaunch()"), waits);
  return waits;
}

// Layers of each kind of SM90 kernel: chunks and slabs, with and without quantizers.
std::vector<QuantSpec> Specs() {
  QuantSpec wide;
  wide.weight = IntegerFormat(4);
  wide.scale = kFloat16;
  wide.scale_block_k = 128;
  QuantSpec blocks;
  blocks.weight = kFloat8E4M3;
  blocks.scale = kFloat32;
  blocks.scale_block_n = 128;
  blocks.scale_block_k = 128;
  blocks.activation = kFloat8E4M3;
  blocks.activation_scale = ActivationScaleKind::kDynamicGroup;
  blocks.activation_group = 128;
  return {wide, blocks};
}

TEST(OverlapTest, WhatMultipliesXIsLaunchedSoWhereGpusKnowSuchLaunches) {
  for (const auto& [architecture, overlaps] : std::vector<std::pair<std::string, bool>>{
           {"sm_80", false}, {"sm_89", false}, {"sm_90a", true}, {"sm_100a", true}, {"sm_120a", true}}) {
    const auto programs =
        ProgramsOf(Specs()[0], {1, 4096, 4096}, architecture, LayerTraits{.has_input_scale = true});
    ASSERT_TRUE(programs.ok()) << programs.status();
    ASSERT_EQ(programs->scale.size(), 6u);
    for (const QuantizeProgram& program : programs->scale) {
      EXPECT_TRUE(Waits(program.source));
      EXPECT_EQ(program.launch.overlaps_previous, overlaps) << architecture;
    }
  }
}

TEST(OverlapTest, OnlyKernelsThatWaitAreLaunchedSo) {
  int overlapping = 0;
  for (const std::string architecture : {"sm_80", "sm_90a"}) {
    for (const QuantSpec& spec : Specs()) {
      const auto programs = ProgramsOf(spec, {1, 4096, 4096}, architecture);
      ASSERT_TRUE(programs.ok()) << programs.status();
      for (const GemmProgram* generic : {&*programs->dense, &programs->indexed}) {
        EXPECT_FALSE(generic->launch.overlaps_previous);
        EXPECT_FALSE(Waits(generic->source));
      }
      for (const auto* packed : {&programs->packed, &programs->invariant}) {
        for (const PackedProgram& program : *packed) {
          EXPECT_EQ(program.program.launch.overlaps_previous, Waits(program.program.source));
          overlapping += program.program.launch.overlaps_previous;
        }
      }
      for (const QuantizeProgram& program : programs->quantize) {
        EXPECT_EQ(program.launch.overlaps_previous, Waits(program.source));
        overlapping += program.launch.overlaps_previous;
      }
    }
  }
  EXPECT_GT(overlapping, 10);
  for (const jit::KernelSource& source : MoeSources("sm_90a")) EXPECT_FALSE(Waits(source));
}

class OverlapLaunchTest : public ::testing::Test {
 protected:
  OverlapLaunchTest()
      : context_(*cuda::PrimaryContext::Retain(fake_.table(), 0)),
        scope_(context_),
        library_(*cuda::LoadedLibrary::Load(fake_.table(), kCubin)),
        kernel_(*library_.GetKernel("kernel")) {
    fake_.OnLaunch([this](const cuda::FakeLaunch& launch) {
      launches_.push_back(launch.overlaps_previous);
      return CUDA_SUCCESS;
    });
  }

  GemmKernel Gemm(bool overlaps) const {
    GemmKernel kernel;
    kernel.kernel = kernel_;
    kernel.block_m = 64;
    kernel.block_n = 64;
    kernel.threads = 128;
    kernel.overlaps_previous = overlaps;
    return kernel;
  }

  static GemmArgs Args(int64_t m) {
    GemmArgs args{};
    args.weights.n = 128;
    args.weights.k = 128;
    args.weights.experts = 4;
    args.m = m;
    return args;
  }

  static constexpr std::byte kCubin[] = {std::byte{1}};
  cuda::FakeDriver fake_;
  cuda::PrimaryContext context_;
  cuda::ScopedContext scope_;
  cuda::LoadedLibrary library_;
  CUkernel kernel_;
  std::vector<bool> launches_;
};

TEST_F(OverlapLaunchTest, IsThePlannedKernels) {
  EXPECT_TRUE(LaunchDense(fake_.table(), Gemm(true), Args(5), nullptr).ok());
  EXPECT_TRUE(LaunchDense(fake_.table(), Gemm(false), Args(5), nullptr).ok());
  EXPECT_TRUE(LaunchIndexed(fake_.table(), Gemm(false), Args(5), 5, nullptr).ok());
  EXPECT_EQ(launches_, (std::vector<bool>{true, false, false}));
}

TEST_F(OverlapLaunchTest, HoldsForEveryLaunchOfARequest) {
  GemmKernel kernel = Gemm(true);
  kernel.grid_rule = GridRule::kWeightTilesFirst;
  kernel.block_m = 8;
  EXPECT_TRUE(LaunchDense(fake_.table(), kernel, Args(8 * 65535 + 1), nullptr).ok());
  EXPECT_EQ(launches_, (std::vector<bool>{true, true}));
  QuantizeKernel quantizer;
  quantizer.kernel = kernel_;
  quantizer.k = 128;
  quantizer.slice_columns = 128;
  quantizer.threads = 32;
  quantizer.overlaps_previous = true;
  launches_.clear();
  const GemmKernel generic = Gemm(false);
  const QuantizedDense both{&quantizer, &generic, Args(20), {}, 0x10000, 10};
  EXPECT_TRUE(LaunchQuantizedDense(fake_.table(), both, nullptr).ok());
  EXPECT_EQ(launches_, (std::vector<bool>{true, false, true, false}))
      << "a kernel that does not wait comes after the end of what is in front";
}

}  // namespace
}  // namespace gemmd
