// Scales below a global one: what they give together must be a number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/checkpoint/checkpoint.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

struct TwoLevels {
  const char* checkpoint;
  const char* global;      // the tensor above
  float bad;               // with which an e4m3 scale of 448 is infinite, and one of 1 is not
  const char* operation;
};

class TwoLevelScalesTest : public testing::TestWithParam<TwoLevels> {
 protected:
  TwoLevelScalesTest() : checkpoint_(GetParam().checkpoint) {
    module_ = ListModules(CaseDirectory(GetParam().checkpoint))->front();
    RawTensor& scales = Tensor(".weight_scale");
    scales.bytes.assign(scales.bytes.size(), '\x38');  // 1
    RawTensor& global = Tensor(GetParam().global);
    for (size_t at = 0; at < global.bytes.size(); at += 4) std::memcpy(&global.bytes[at], &GetParam().bad, 4);
  }
  RawTensor& Tensor(const std::string& key) { return checkpoint_.tensors.at(module_ + key); }
  absl::Status Read() const {
    TemporaryDirectory directory;
    checkpoint_.Write(directory.path());
    return ReadLayer(directory.path(), module_).status();
  }

  EditableCheckpoint checkpoint_;
  std::string module_;
};

TEST_P(TwoLevelScalesTest, RefusesWhatIsInfiniteTogether) {
  EXPECT_TRUE(Read().ok()) << Read();
  Tensor(".weight_scale").bytes[7] = '\x7e';  // 448
  const absl::Status status = Read();
  EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
  const std::string message(status.message());
  for (const std::string& part : {std::string("tensor ") + module_ + ".weight_scale: element 7: ",
                                 std::string(GetParam().operation), module_ + GetParam().global, std::string("got 448")}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

TEST_P(TwoLevelScalesTest, TakesAScaleOfZero) {
  Tensor(".weight_scale").bytes[7] = '\0';
  EXPECT_TRUE(Read().ok()) << Read();
}

// 448 / 1e-37 and 448 * 1e37 are beyond the largest float32, 3.4e38.
INSTANTIATE_TEST_SUITE_P(
    Exporters, TwoLevelScalesTest,
    testing::Values(TwoLevels{"ct_nvfp4_n50_k80", ".weight_global_scale", 1e-37f, "divided by 1e-37 of"},
                    TwoLevels{"autoround_nvfp4", ".weight_global_scale", 1e-37f, "divided by 1e-37 of"},
                    TwoLevels{"modelopt_nvfp4_odd", ".weight_scale_2", 1e37f, "multiplied by 1e+37 of"},
                    TwoLevels{"encoded_modelopt_w4a8_nvfp4_fp8_g32", ".weight_scale_2", 1e37f, "multiplied by 1e+37 of"}),
    [](const auto& info) { return std::string(info.param.checkpoint); });

}  // namespace
}  // namespace gemmd
