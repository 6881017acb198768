// Compiles kernels with NVRTC, which needs no GPU. The normal run takes a sample that meets every format,
// scale type, option and architecture at least once; GEMMD_TEST_FULL=1 compiles the whole matrix.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "kernels/base/status.h"
#include "kernels/jit/compiler.h"
#include "kernels/select/gemm_config.h"
#include "kernels/select/heuristics.h"
#include "kernels/select/legality.h"
#include "tests/kernels/select/cubin_resources.h"

namespace gemmd {
namespace {

struct Case {
  GemmConfig config;
  std::string architecture;
};

// Every one that Supports() calls legal.
const std::vector<std::string> kArchitectures = {
    "sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a"};

std::vector<NumberFormat> WeightFormats() {
  std::vector<NumberFormat> formats;
  for (int bits = 1; bits <= 8; ++bits) formats.push_back(IntegerFormat(bits));
  for (const NumberFormat& format :
       {kFloat4E2M1, FloatFormat(0, 3), FloatFormat(3, 2), FloatFormat(2, 3), FloatFormat(0, 7),
        kFloat8E4M3, kFloat8E5M2, FloatFormat(3, 4), FloatFormat(7, 0), kFloat16, kBFloat16,
        kFloat32}) {
    formats.push_back(format);
  }
  return formats;
}

const std::vector<NumberFormat> kScales = {kNoFormat, kFloat8E8M0, kFloat8E4M3, kFloat8E5M2,
                                           kFloat16,  kBFloat16,   kFloat32};

QuantSpec SpecOf(const NumberFormat& weight, const NumberFormat& scale, int option) {
  QuantSpec spec;
  spec.weight = weight;
  spec.scale = scale;
  if (weight.kind == NumberKind::kInteger) spec.zero_point = static_cast<ZeroPointKind>(option % 3);
  spec.secondary_scale = static_cast<SecondaryScaleKind>(option / 3 % 3);
  spec.has_group_index = option / 9 % 2 != 0;
  return spec;
}

RowMapping MappingOf(size_t index) {
  return index % 2 == 0 ? RowMapping::kDense : RowMapping::kIndexed;
}

std::vector<Case> Sample() {
  std::vector<Case> cases;
  const std::vector<NumberFormat> weights = WeightFormats();
  for (size_t i = 0; i < weights.size(); ++i) {
    const QuantSpec spec =
        SpecOf(weights[i], kScales[i % kScales.size()], static_cast<int>(i * 7 % 18));
    cases.push_back({ChooseConfig(spec, MappingOf(i)), kArchitectures[i % kArchitectures.size()]});
  }
  return cases;
}

std::vector<Case> WholeMatrix() {
  std::vector<Case> cases;
  for (const NumberFormat& weight : WeightFormats()) {
    for (const NumberFormat& scale : kScales) {
      for (int option = 0; option < 18; ++option) {
        const QuantSpec spec = SpecOf(weight, scale, option);
        if (option % 3 != static_cast<int>(spec.zero_point)) continue;
        for (size_t i = 0; i < 2 * kArchitectures.size(); ++i) {
          cases.push_back({ChooseConfig(spec, MappingOf(i)), kArchitectures[i / 2]});
        }
      }
    }
  }
  return cases;
}

// For architectures before Blackwell. NVRTC 13.0 gives one of the kernels 32 bytes of stack on sm_103a
// (int7 codes, float32 scales); they are printed, and right all the same.
bool PromisesNoSpills(const std::string& architecture) {
  return architecture.size() == 5 || architecture == "sm_90a";
}

void ExpectCompiles(const jit::NvrtcTable& nvrtc, const std::string& name,
                    const jit::KernelSource& source) {
  const absl::StatusOr<jit::CompiledKernel> kernel = jit::Compile(source, nvrtc);
  ASSERT_TRUE(kernel.ok()) << name << ": " << kernel.status().ToString();
  EXPECT_EQ(kernel->log, "") << name;
  const testing::CubinResources used = testing::ResourcesOf(kernel->cubin);
  std::printf("%-8s %-48s %4d registers, %d bytes of stack, %zu bytes\n",
              source.architecture.c_str(), name.c_str(), used.registers, used.frame_bytes,
              kernel->cubin.size());
  EXPECT_GT(used.registers, 0) << name;
  if (PromisesNoSpills(source.architecture)) {
    EXPECT_EQ(used.frame_bytes, 0) << name << " spills";
  }
}

class CompileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<const jit::NvrtcTable*> nvrtc = jit::LoadNvrtc();
    if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
    nvrtc_ = *nvrtc;
  }
  const jit::NvrtcTable* nvrtc_ = nullptr;
};

TEST_F(CompileTest, EveryConfigCompilesWithoutSpills) {
  const std::vector<Case> cases =
      std::getenv("GEMMD_TEST_FULL") != nullptr ? WholeMatrix() : Sample();
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < cases.size(); i = next++) {
      const auto& [config, architecture] = cases[i];
      ASSERT_TRUE(Supports(config, architecture).ok());
      ExpectCompiles(*nvrtc_, KernelName(config),
                     {RenderProgram(config), KernelNameExpression(config), architecture});
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CompileTest, KernelsAroundTheGemmsCompileWithoutSpills) {
  const std::pair<const char*, const char*> kernels[] = {
      {"moe_route", "MoeRouteTopK"}, {"moe_sort", "MoeCount"},        {"moe_sort", "MoePrefix"},
      {"moe_sort", "MoeScatter"},    {"moe_activate", "MoeActivate"}, {"moe_combine", "MoeCombine"},
  };
  for (const auto& [header, name] : kernels) {
    const std::string program = std::string("#include \"kernels/device/") + header + ".cuh\"\n";
    ExpectCompiles(*nvrtc_, name, {program, std::string("gemmd::device::") + name, "sm_80"});
  }
}

}  // namespace
}  // namespace gemmd
