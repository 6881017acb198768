// Damaged and contradictory checkpoints: tests/data/mutations.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"
#include "tests/support/mutations.h"

namespace gemmd {
namespace {

using nlohmann::json;

std::vector<json> Mutations() {
  return LoadJson(std::filesystem::path(GEMMD_TEST_DATA) / "mutations.json")["cases"];
}

// The only module of a case that a mutation without a tensor is about.
std::string ModuleOf(const json& mutation) {
  const auto modules = ListModules(CaseDirectory(mutation["base"]));
  EXPECT_TRUE(modules.ok()) << modules.status();
  return MutatedModule(mutation, modules->size() == 1 ? modules->front() : "");
}

std::vector<float> DequantizeMutated(const StandardTensor& tensor) {
  const auto [experts, n, k] = tensor.shape;
  std::vector<float> weights(experts * n * k);
  for (int64_t row = 0; row < experts * n; ++row) {
    DequantizeRowFloat32(tensor, row / n, row % n, absl::MakeSpan(weights).subspan(row * k, k));
  }
  return weights;
}

void ExpectRejected(const absl::StatusOr<CheckpointLayer>& layer, const std::string& module) {
  ASSERT_FALSE(layer.ok());
  const std::string reason = ReasonOf(layer.status());
  if (reason == "UNSUPPORTED_FORMAT") {
    EXPECT_EQ(layer.status().code(), absl::StatusCode::kUnimplemented);
    return;
  }
  EXPECT_EQ(reason, "BAD_CHECKPOINT") << layer.status();
  EXPECT_EQ(layer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(layer.status().message()),
      testing::AnyOf(testing::HasSubstr("model.safetensors"), testing::HasSubstr("/config.json"),
                     testing::HasSubstr("/hf_quant_config.json")));
  EXPECT_THAT(std::string(layer.status().message()), testing::HasSubstr(module));
}

class MutationTest : public testing::TestWithParam<json> {};

TEST_P(MutationTest, GetsTheWantedOutcome) {
  const json& mutation = GetParam();
  SCOPED_TRACE(mutation.dump());
  const std::string base = mutation["base"];
  EditableCheckpoint checkpoint(base);
  Mutate(checkpoint, mutation);
  TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  const std::string module = ModuleOf(mutation);
  const auto layer = ReadLayer(directory.path(), module);
  if (OutcomeOf(mutation) == MutationOutcome::kRejected) return ExpectRejected(layer, module);
  const auto unchanged = ReadLayer(CaseDirectory(base), module);
  ASSERT_TRUE(unchanged.ok()) << unchanged.status();
  ASSERT_TRUE(layer.ok()) << layer.status();
  if (OutcomeOf(mutation) == MutationOutcome::kSameWeights) {
    EXPECT_EQ(DequantizeMutated(layer->tensor), DequantizeMutated(unchanged->tensor));
    return;
  }
  ASSERT_EQ(OutcomeOf(mutation), MutationOutcome::kOtherGrouping);
  EXPECT_TRUE(layer->tensor.spec.has_group_index);
  EXPECT_NE(DequantizeMutated(layer->tensor), DequantizeMutated(unchanged->tensor));
}

INSTANTIATE_TEST_SUITE_P(Mutations, MutationTest, testing::ValuesIn(Mutations()),
                         [](const auto& info) {
                           return absl::StrCat(info.index, "_",
                                               info.param["base"].template get<std::string>());
                         });

TEST(MutationDataTest, CoversTheReadersWeHave) { EXPECT_EQ(Mutations().size(), 81u); }

}  // namespace
}  // namespace gemmd
