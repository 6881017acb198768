#include "kernels/jit/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "kernels/base/status.h"
#include "kernels/jit/embedded_sources.h"
#include "tests/kernels/jit/test_source.h"

namespace gemmd::jit {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class CompilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto nvrtc = LoadNvrtc();
    if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status();
    nvrtc_ = *nvrtc;
  }
  absl::StatusOr<CompiledKernel> CompileProgram(const std::string& program) {
    return Compile({program, "test::Kernel", "sm_90a"}, *nvrtc_);
  }

  const NvrtcTable* nvrtc_ = nullptr;
};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

bool IsElf(const std::vector<std::byte>& cubin) {
  return cubin.size() > 4 && cubin[0] == std::byte{0x7f} && cubin[1] == std::byte{'E'};
}

TEST_F(CompilerTest, CompilesForEverySupportedArchitectureWithoutAGpu) {
  for (const char* architecture : {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100a",
                                   "sm_103a", "sm_120a", "sm_121a"}) {
    const auto kernel = Compile(ScaleKernel(2, architecture), *nvrtc_);
    ASSERT_TRUE(kernel.ok()) << architecture << ": " << kernel.status();
    EXPECT_TRUE(IsElf(kernel->cubin));
    EXPECT_THAT(kernel->lowered_name, HasSubstr("Scale"));
    EXPECT_EQ(kernel->key.size(), 64);
  }
}

TEST_F(CompilerTest, SameSourceGivesTheSameBytes) {
  const auto first = Compile(ScaleKernel(3), *nvrtc_);
  const auto second = Compile(ScaleKernel(3), *nvrtc_);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->cubin, second->cubin);
  EXPECT_EQ(first->key, second->key);
}

TEST_F(CompilerTest, TellsRegistersAndSpillsWithoutAGpu) {
  const auto kernel = Compile(ScaleKernel(2), *nvrtc_);
  ASSERT_TRUE(kernel.ok());
  EXPECT_THAT(kernel->usage, HasSubstr("registers"));
  EXPECT_THAT(kernel->usage, HasSubstr("0 bytes spill stores"));
  EXPECT_EQ(kernel->log, "");
}

TEST_F(CompilerTest, WarningsAreKeptApart) {
  const auto kernel =
      CompileProgram("namespace test { __global__ void Kernel() { int unused = 1; } }");
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_THAT(kernel->log, HasSubstr("unused"));
  EXPECT_EQ(kernel->log.find("ptxas info"), std::string::npos);
}

TEST_F(CompilerTest, ErrorCarriesTheLog) {
  const auto kernel = CompileProgram("namespace test { __global__ void Kernel() { oops(); } }");
  EXPECT_EQ(kernel.status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReasonOf(kernel.status()), "COMPILE_FAILED");
  EXPECT_THAT(Message(kernel.status()), HasSubstr("identifier \"oops\" is undefined"));
  EXPECT_THAT(Message(kernel.status()), HasSubstr("sm_90a"));
}

TEST_F(CompilerTest, UnknownNameExpressionFails) {
  const auto kernel = Compile({"__global__ void A() {}", "B", "sm_90a"}, *nvrtc_);
  EXPECT_EQ(ReasonOf(kernel.status()), "COMPILE_FAILED");
}

TEST_F(CompilerTest, ArchitectureIsCheckedBeforeTheCompiler) {
  for (const char* name : {"", "sm_", "sm_9", "90a", "sm_90b", "sm_90a --fmad=false", "sm_9000"}) {
    EXPECT_EQ(ReasonOf(Compile(ScaleKernel(2, name), *nvrtc_).status()), "BAD_ARCHITECTURE")
        << name;
  }
}

TEST_F(CompilerTest, ArchitectureUnknownToTheCompilerFails) {
  EXPECT_EQ(ReasonOf(Compile(ScaleKernel(2, "sm_50"), *nvrtc_).status()), "COMPILE_FAILED");
}

TEST_F(CompilerTest, ContractHeadersAndShimsNeedNothingOnDisk) {
  std::string program;
  for (const EmbeddedSource& source : EmbeddedSources()) {
    const std::string name = source.name;
    const bool is_shim = name.find('/') == std::string::npos;
    if (is_shim) program += "#include <" + name + ">\n";
    if (name.find("kernels/contract/") == 0) program += "#include \"" + name + "\"\n";
  }
  program +=
      "static_assert(sizeof(std::int64_t) == 8 && sizeof(uint16_t) == 2, \"\");\n"
      "static_assert(std::is_same_v<std::conditional_t<true, int, char>, int>, \"\");\n"
      "static_assert(std::is_same_v<std::make_index_sequence<3>, std::index_sequence<0, 1, 2>>);\n"
      "static_assert(std::numeric_limits<int>::max() == INT32_MAX, \"\");\n"
      "static_assert(gemmd::kFloat4E2M1.bits == 4 && gemmd::kFloat8E4M3.bias() == 7, \"\");\n"
      "namespace test { __global__ void Kernel(float* p) { *p = gemmd::kFloat16.bits; } }\n";
  const auto kernel = CompileProgram(program);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
}

TEST_F(CompilerTest, FilesOfTheWorkingDirectoryAreNotIncluded) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("gemmd_jit_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "on_disk.h") << "#define FOUND 1\n";
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  const auto kernel =
      CompileProgram("#include \"on_disk.h\"\nnamespace test { __global__ void Kernel() {} }");
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(ReasonOf(kernel.status()), "COMPILE_FAILED");
  EXPECT_THAT(Message(kernel.status()), HasSubstr("on_disk.h"));
}

TEST_F(CompilerTest, KnowsItsArchitectures) {
  EXPECT_THAT(nvrtc_->architectures, ::testing::IsSupersetOf({80, 90, 100}));
  EXPECT_THAT(nvrtc_->architectures, ::testing::Not(::testing::Contains(99)));
}

TEST_F(CompilerTest, KeyDependsOnEveryInput) {
  const KernelSource source = ScaleKernel(2);
  NvrtcTable other = *nvrtc_;
  other.version = "99.0";
  std::set<std::string> keys = {KernelKey(source, *nvrtc_)};
  KernelSource changed = source;
  changed.program += " ";
  keys.insert(KernelKey(changed, *nvrtc_));
  changed = source;
  changed.name_expression = "test::Scale<3>";
  keys.insert(KernelKey(changed, *nvrtc_));
  changed = source;
  changed.architecture = "sm_90";
  keys.insert(KernelKey(changed, *nvrtc_));
  keys.insert(KernelKey(source, other));
  other = *nvrtc_;
  other.digest = "another patch release";
  keys.insert(KernelKey(source, other));
  EXPECT_EQ(keys.size(), 6);
}

TEST_F(CompilerTest, KeyIgnoresTheEnvironmentAndTheCompilersPath) {
  NvrtcTable other = *nvrtc_;
  other.path = "/somewhere/else/libnvrtc.so";
  const std::string key = KernelKey(ScaleKernel(2), *nvrtc_);
  setenv("GEMMD_UNRELATED", "1", 1);
  EXPECT_EQ(KernelKey(ScaleKernel(2), other), key);
  unsetenv("GEMMD_UNRELATED");
}

TEST_F(CompilerTest, FieldsOfTheKeyDoNotRunIntoEachOther) {
  EXPECT_NE(KernelKey({"ab", "c", "sm_90a"}, *nvrtc_), KernelKey({"a", "bc", "sm_90a"}, *nvrtc_));
}

TEST(EmbeddedSourcesTest, AreNamedAsIncludedAndSorted) {
  std::vector<std::string> names;
  for (const EmbeddedSource& source : EmbeddedSources()) names.push_back(source.name);
  EXPECT_THAT(names, Contains("kernels/device/gemm.cuh"));
  EXPECT_THAT(names, Contains("kernels/contract/quant_spec.h"));
  EXPECT_THAT(names, Contains("cstdint"));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

TEST(EmbeddedSourcesTest, HoldTheFilesByteForByte) {
  // tests/data/../.. is the source tree.
  const auto root = std::filesystem::path(GEMMD_TEST_DATA).parent_path().parent_path();
  for (const EmbeddedSource& source : EmbeddedSources()) {
    const std::string name = source.name;
    const bool is_shim = name.find('/') == std::string::npos;
    std::ifstream file(root / (is_shim ? "kernels/jit/shims/" + name : name), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
    EXPECT_TRUE(bytes == std::string(source.text, source.size)) << name;
  }
}

TEST(NvrtcTest, MissingLibraryListsWhatWasTried) {
  const auto table = LoadNvrtcFrom({"libno-nvrtc.so.1", "libc.so.6"});
  EXPECT_EQ(table.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(table.status()), "NVRTC_MISSING");
  EXPECT_THAT(Message(table.status()), HasSubstr("libno-nvrtc.so.1"));
  EXPECT_THAT(Message(table.status()), HasSubstr("libc.so.6 has no nvrtcVersion"));
  EXPECT_THAT(Message(table.status()), HasSubstr("GEMMD_NVRTC"));
}

}  // namespace
}  // namespace gemmd::jit
