#include "kernels/cuda/device_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/status.h"
#include "tests/support/fake_driver.h"

namespace gemmd::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DeviceInfoTest, DescribesEveryGpu) {
  const FakeDriver fake({{.name = "Fake H200", .uuid_seed = 0x10},
                         {.name = "Fake L40S", .uuid_seed = 0xf0, .cc_major = 8, .cc_minor = 9}});
  const auto gpus = ListGpus(fake.table());
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  ASSERT_EQ(gpus->size(), 2);
  EXPECT_EQ((*gpus)[0].name, "Fake H200");
  EXPECT_EQ((*gpus)[0].uuid, "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
  EXPECT_EQ((*gpus)[0].architecture, "sm_90a");
  EXPECT_EQ((*gpus)[0].sm_count, 132);
  EXPECT_EQ((*gpus)[0].shared_bytes_per_block, 227 << 10);
  EXPECT_EQ((*gpus)[0].l2_bytes, 50u << 20);
  EXPECT_TRUE((*gpus)[0].has_vmm);
  EXPECT_TRUE((*gpus)[0].Usable().ok());
  EXPECT_EQ((*gpus)[1].ordinal, 1);
  EXPECT_EQ((*gpus)[1].uuid, "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
  EXPECT_EQ((*gpus)[1].architecture, "sm_89");
  EXPECT_EQ(fake.Live(), "");
}

TEST(DeviceInfoTest, MachineWithoutGpusGivesAnEmptyList) {
  FakeDriver fake{std::vector<FakeGpu>()};
  EXPECT_THAT(*ListGpus(fake.table()), IsEmpty());
  fake.Fail("cuDeviceGetCount", CUDA_ERROR_NO_DEVICE);
  EXPECT_THAT(*ListGpus(fake.table()), IsEmpty());
}

TEST(DeviceInfoTest, FailingCountFails) {
  FakeDriver fake;
  fake.Fail("cuDeviceGetCount", CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(ListGpus(fake.table()).status().code(), absl::StatusCode::kInternal);
}

TEST(DeviceInfoTest, OneFailingQueryCostsOneField) {
  FakeDriver fake;
  fake.FailAttribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, CUDA_ERROR_INVALID_VALUE);
  const auto gpus = ListGpus(fake.table());
  ASSERT_TRUE(gpus.ok());
  EXPECT_EQ((*gpus)[0].l2_bytes, 0);
  EXPECT_EQ((*gpus)[0].sm_count, 132);
  EXPECT_THAT((*gpus)[0].unknown, ElementsAre(HasSubstr("l2_bytes: CUDA_ERROR_INVALID_VALUE")));
  EXPECT_TRUE((*gpus)[0].Usable().ok());
}

TEST(DeviceInfoTest, FailingIdentityMakesTheGpuUnusableButListed) {
  FakeDriver fake;
  fake.Fail("cuDeviceGetUuid", CUDA_ERROR_UNKNOWN);
  const auto gpus = ListGpus(fake.table());
  ASSERT_EQ(gpus->size(), 1);
  const absl::Status usable = (*gpus)[0].Usable();
  EXPECT_EQ(usable.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(usable.message()), HasSubstr("uuid: "));
}

TEST(DeviceInfoTest, UnknownMinorCapabilityGivesNoArchitecture) {
  FakeDriver fake;
  fake.FailAttribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CUDA_ERROR_UNKNOWN);
  const auto gpus = ListGpus(fake.table());
  EXPECT_EQ((*gpus)[0].architecture, "");
  EXPECT_FALSE((*gpus)[0].Usable().ok());
}

TEST(DeviceInfoTest, GpusBeforeTuringAreUnusable) {
  const FakeDriver fake({{.cc_major = 7, .cc_minor = 0}});
  const absl::Status usable = (*ListGpus(fake.table()))[0].Usable();
  EXPECT_EQ(usable.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(usable.message()), HasSubstr("7.0"));
}

TEST(DeviceInfoTest, MigInstancesKeepTheirUuidKind) {
  const FakeDriver fake({{.name = "Fake H200 MIG 1g.18gb"}});
  EXPECT_THAT((*ListGpus(fake.table()))[0].uuid, HasSubstr("MIG-01020304-"));
}

TEST(DeviceInfoTest, ArchitecturesFromHopperOnUseTheirSpecificFeatures) {
  EXPECT_EQ(ArchitectureName(7, 5), "sm_75");
  EXPECT_EQ(ArchitectureName(8, 0), "sm_80");
  EXPECT_EQ(ArchitectureName(8, 9), "sm_89");
  EXPECT_EQ(ArchitectureName(9, 0), "sm_90a");
  EXPECT_EQ(ArchitectureName(10, 3), "sm_103a");
  EXPECT_EQ(ArchitectureName(12, 1), "sm_121a");
}

}  // namespace
}  // namespace gemmd::cuda
