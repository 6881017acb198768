#include "kernels/jit/cubin.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/kernels/jit/cubin_header.h"
#include "tests/kernels/jit/test_source.h"

namespace gemmd::jit {
namespace {

TEST(CubinTest, EachAbiVersionHasTheNumberAtItsPlace) {
  EXPECT_EQ(CubinArchitecture(CubinHeader(7, 0x5a0d5a)), 90);    // NVRTC 12.8: sm_90a
  EXPECT_EQ(CubinArchitecture(CubinHeader(7, 0x500550)), 80);    // NVRTC 12.8: sm_80
  EXPECT_EQ(CubinArchitecture(CubinHeader(8, 0x600780a)), 120);  // NVRTC 12.8: sm_120a
  EXPECT_EQ(CubinArchitecture(CubinHeader(8, 0x6005a04)), 90);   // NVRTC 13.0: sm_90a
}

TEST(CubinTest, WhatIsNotKnownIsNotJudged) {
  EXPECT_EQ(CubinArchitecture(CubinHeader(9, 0x5a5a5a5a)), std::nullopt)
      << "an ABI version to come";
  const std::string header = CubinHeader(8, 0x6005a04);
  for (size_t size = 0; size < header.size(); ++size) {
    EXPECT_EQ(CubinArchitecture(header.substr(0, size)), std::nullopt) << size;
    EXPECT_FALSE(IsCubin(header.substr(0, size))) << size;
  }
  EXPECT_TRUE(IsCubin(header));
  EXPECT_TRUE(IsCubin(CubinHeader(9, 0)));
  std::string other = header;
  other[offsetof(Elf64_Ehdr, e_machine)] = EM_X86_64;
  EXPECT_EQ(CubinArchitecture(other), std::nullopt);
  EXPECT_FALSE(IsCubin(other));
  other = header;
  other[EI_CLASS] = ELFCLASS32;
  EXPECT_EQ(CubinArchitecture(other), std::nullopt);
  EXPECT_FALSE(IsCubin(other));
  EXPECT_EQ(CubinArchitecture(std::string(header.size(), 'x')), std::nullopt);
}

TEST(CubinTest, AgreesWithTheCompilerOfThisMachine) {
  const auto nvrtc = LoadNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status();
  for (const int number : (*nvrtc)->architectures) {
    const auto kernel = Compile(ScaleKernel(2, "sm_" + std::to_string(number)), **nvrtc);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_EQ(CubinArchitecture(
                  {reinterpret_cast<const char*>(kernel->cubin.data()), kernel->cubin.size()}),
              number);
  }
}

}  // namespace
}  // namespace gemmd::jit
