// Ranks of tensor and expert parallelism against a real daemon: what the slices of a layer compute is
// the slice of what the whole layer computes.
#include <cmath>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/layer_slice.h"
#include "client/session.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"
#include "tests/e2e/environment.h"

namespace gemmd::e2e {
namespace {

using client::RangeOf;
using client::RankOf;
using testing::HasSubstr;

constexpr char kDownProj[] = "model.layers.0.mlp.down_proj";
constexpr char kQkv[] = "model.layers.0.self_attn.qkv_proj";
constexpr char kExperts[] = "model.layers.0.mlp.experts.";
constexpr int64_t kTokens = 5;

class SliceTest : public DaemonTest {
 protected:
  void SetUp() override {
    daemon_device_ = "cpu";  // double precision: sums of small integers times weights are exact
    StartDaemon();
    auto session = client::Session::Open({.address = socket(), .name = "slices"});
    ASSERT_TRUE(session.ok()) << session.status();
    session_.emplace(*std::move(session));
  }

  absl::StatusOr<client::Layer> Register(const std::string& name, const std::string& module,
                                         const v1::LayerSlice& slice = {}) {
    v1::CheckpointSource source;
    source.set_path(Checkpoints() + "/" + name);
    source.set_module(module);
    *source.mutable_slice() = slice;
    return session_->RegisterCheckpoint(source);
  }
  // That must succeed.
  client::Layer Layer(const std::string& name, const std::string& module,
                      const v1::LayerSlice& slice = {}) {
    return Register(name, module, slice).value();
  }

  // y [kTokens, N] in float32 of x [kTokens, K] in float32.
  std::vector<float> Run(const client::Layer& layer, const std::vector<float>& x) {
    const int64_t n = layer.info().n();
    client::Region memory = *session_->AllocateHost(4 * (x.size() + kTokens * n));
    std::memcpy(memory.data(), x.data(), 4 * x.size());
    client::Gemm gemm{.layer = &layer};
    gemm.x = Matrix(memory, 0, layer.info().k());
    gemm.y = Matrix(memory, 4 * x.size(), n);
    const auto response = session_->Run(gemm);
    EXPECT_TRUE(response.ok()) << response.status();
    return Read(memory, 4 * x.size(), kTokens * n);
  }

  // y of tokens with two experts each, of which this rank holds those from `first` on.
  std::vector<float> RunMoe(const client::Layer& gate_up, const client::Layer& down,
                            const std::vector<float>& x, int64_t first, int64_t total) {
    const int64_t n = down.info().n();
    const uint64_t ids_at = 4 * x.size();
    const uint64_t weights_at = ids_at + 4 * kTokens * 2;
    const uint64_t y_at = weights_at + 4 * kTokens * 2;
    client::Region memory = *session_->AllocateHost(y_at + 4 * kTokens * n);
    std::vector<int32_t> ids;
    std::vector<float> weights;
    for (int32_t token = 0; token < kTokens; ++token) {
      for (int32_t slot = 0; slot < 2; ++slot) {
        ids.push_back((token + slot) % static_cast<int32_t>(total));
        weights.push_back(slot == 0 ? 0.75f : 0.25f);
      }
    }
    std::byte* bytes = memory.data();
    std::memcpy(bytes, x.data(), 4 * x.size());
    std::memcpy(bytes + ids_at, ids.data(), 4 * ids.size());
    std::memcpy(bytes + weights_at, weights.data(), 4 * weights.size());
    client::Moe moe{.gate_up = &gate_up, .down = &down};
    moe.x = Matrix(memory, 0, gate_up.info().k());
    moe.y = Matrix(memory, y_at, n);
    moe.topk_ids = Matrix(memory, ids_at, 2, v1::DATA_TYPE_INT32);
    moe.topk_weights = Matrix(memory, weights_at, 2);
    moe.first_expert = first;
    moe.total_experts = total;
    const auto response = session_->Run(moe);
    EXPECT_TRUE(response.ok()) << response.status();
    return Read(memory, y_at, kTokens * n);
  }

  static client::Tensor Matrix(const client::Region& memory, uint64_t offset, int64_t columns,
                               v1::DataType dtype = v1::DATA_TYPE_FLOAT32) {
    return {.region = &memory,
            .byte_offset = offset,
            .dtype = dtype,
            .rows = kTokens,
            .columns = columns};
  }
  static std::vector<float> Read(const client::Region& memory, uint64_t offset, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    std::memcpy(values.data(), memory.data() + offset, 4 * values.size());
    return values;
  }

  std::optional<client::Session> session_;
};

// [kTokens, columns] of integers from -3 to 3.
std::vector<float> Tokens(int64_t columns) {
  std::vector<float> x;
  for (int64_t i = 0; i < kTokens * columns; ++i) {
    x.push_back(static_cast<float>((i * 37 + i / columns * 11) % 7 - 3));
  }
  return x;
}

// Columns [begin, end) of a matrix of kTokens rows.
std::vector<float> Columns(const std::vector<float>& matrix, int64_t begin, int64_t end) {
  const auto columns = static_cast<int64_t>(matrix.size()) / kTokens;
  std::vector<float> part;
  for (int64_t row = 0; row < kTokens; ++row) {
    const auto from = matrix.begin() + row * columns;
    part.insert(part.end(), from + begin, from + end);
  }
  return part;
}

// `parts` were rounded to float32 each, and so was `whole`: half a unit in the last place of each.
void ExpectSum(const std::vector<std::vector<float>>& parts, const std::vector<float>& whole) {
  for (size_t i = 0; i < whole.size(); ++i) {
    double sum = 0;
    double magnitude = std::fabs(whole[i]);
    for (const std::vector<float>& part : parts) {
      ASSERT_EQ(part.size(), whole.size());
      sum += part[i];
      magnitude += std::fabs(part[i]);
    }
    ASSERT_NEAR(sum, whole[i], magnitude * 0x1p-24) << "element " << i;
  }
}

v1::LayerSlice Rows(const v1::AxisSlice& axis) {
  v1::LayerSlice slice;
  *slice.mutable_rows() = axis;
  return slice;
}
v1::LayerSlice ColumnsOf(const v1::AxisSlice& axis) {
  v1::LayerSlice slice;
  *slice.mutable_columns() = axis;
  return slice;
}

TEST_F(SliceTest, RowsOfARankGiveItsColumnsOfTheResult) {
  for (const char* name : {"gptq_v1_autogptq_b4_descact_g64", "ct_fp8_block_nondiv",
                           "ct_pack_w4_g32_asym_n100", "gptq_v1_autogptq_b3_g32_asym"}) {
    SCOPED_TRACE(name);
    const client::Layer whole = Layer(name, kDownProj);
    const std::vector<float> x = Tokens(whole.info().k());
    const std::vector<float> y = Run(whole, x);
    const int64_t half = whole.info().n() / 2;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const client::Layer part = Layer(name, kDownProj, Rows(RankOf(rank, 2)));
      ASSERT_EQ(part.info().n(), half);
      EXPECT_EQ(part.info().name(), absl::StrCat(kDownProj, " rows ", rank, "/2"));
      EXPECT_EQ(Run(part, x), Columns(y, rank * half, (rank + 1) * half));
    }
  }
}

TEST_F(SliceTest, FusedQueryKeyAndValueAreCutEachForItself) {
  const std::string name = "awq_gemm_g64_qkv";
  const client::Layer whole = Layer(name, kQkv);
  const int64_t q = Layer(name, "model.layers.0.self_attn.q_proj").info().n();
  const int64_t k = Layer(name, "model.layers.0.self_attn.k_proj").info().n();
  const int64_t v = whole.info().n() - q - k;
  const std::vector<float> x = Tokens(whole.info().k());
  const std::vector<float> y = Run(whole, x);
  const client::Layer part = Layer(name, kQkv, Rows(RankOf(1, 2)));
  const std::vector<float> got = Run(part, x);
  ASSERT_EQ(part.info().n(), whole.info().n() / 2);
  EXPECT_EQ(Columns(got, 0, q / 2), Columns(y, q / 2, q));
  EXPECT_EQ(Columns(got, q / 2, (q + k) / 2), Columns(y, q + k / 2, q + k));
  EXPECT_EQ(Columns(got, (q + k) / 2, (q + k + v) / 2), Columns(y, q + k + v / 2, q + k + v));
}

TEST_F(SliceTest, PartsAlongKAddUp) {
  struct Case {
    const char* name;
    const char* module;
    uint32_t ranks;
  };
  for (const auto& [name, module, ranks] :
       {Case{"gptq_v1_autogptq_b4_descact_g64", kDownProj, 5},
        {"gptq_v1_autogptq_b4_g128_sym", kDownProj, 2},
        {"ct_pack_w4_g32_asym_n100", kDownProj, 3},
        {"fp8_block128_deepseek", "model.layers.0.self_attn.o_proj", 2}}) {
    SCOPED_TRACE(name);
    const client::Layer whole = Layer(name, module);
    const std::vector<float> x = Tokens(whole.info().k());
    const int64_t k = whole.info().k() / ranks;
    std::vector<std::vector<float>> parts;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const client::Layer part = Layer(name, module, ColumnsOf(RankOf(rank, ranks)));
      parts.push_back(Run(part, Columns(x, rank * k, (rank + 1) * k)));
    }
    ExpectSum(parts, Run(whole, x));
  }
}

TEST_F(SliceTest, ExpertsOfTheRanksAddUp) {
  const std::string name = "modelopt_fp8_qwen3moe";
  const std::string gate_up = absl::StrCat(kExperts, "gate_up_proj");
  const std::string down = absl::StrCat(kExperts, "down_proj");
  const client::Layer all_gate_up = Layer(name, gate_up);
  const client::Layer all_down = Layer(name, down);
  ASSERT_EQ(all_down.info().experts(), 3);
  const std::vector<float> x = Tokens(all_gate_up.info().k());
  std::vector<std::vector<float>> parts;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    v1::LayerSlice slice;
    *slice.mutable_experts() = RankOf(rank, 3);
    const client::Layer own_gate_up = Layer(name, gate_up, slice);
    const client::Layer own_down = Layer(name, down, slice);
    ASSERT_EQ(own_down.info().experts(), 1);
    parts.push_back(RunMoe(own_gate_up, own_down, x, rank, 3));
  }
  ExpectSum(parts, RunMoe(all_gate_up, all_down, x, 0, 3));
}

// Tensor parallelism of a mixture of experts: rows of gate and of up, the same columns of down.
TEST_F(SliceTest, PartsOfEveryExpertAddUp) {
  const std::string name = "modelopt_fp8_qwen3moe";
  const std::string gate_up = absl::StrCat(kExperts, "gate_up_proj");
  const std::string down = absl::StrCat(kExperts, "down_proj");
  const client::Layer all_gate_up = Layer(name, gate_up);
  const client::Layer all_down = Layer(name, down);
  const std::vector<float> x = Tokens(all_gate_up.info().k());
  std::vector<std::vector<float>> parts;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const client::Layer own_gate_up = Layer(name, gate_up, Rows(RankOf(rank, 2)));
    const client::Layer own_down = Layer(name, down, ColumnsOf(RankOf(rank, 2)));
    parts.push_back(RunMoe(own_gate_up, own_down, x, 0, 3));
  }
  ExpectSum(parts, RunMoe(all_gate_up, all_down, x, 0, 3));
}

TEST_F(SliceTest, TheSamePartIsOneLayerAndAnotherPartIsAnother) {
  const std::string name = "ct_fp8_channel";
  const client::Layer first = Layer(name, kDownProj, Rows(RankOf(0, 2)));
  const client::Layer same = Layer(name, kDownProj, Rows(RangeOf(0, first.info().n())));
  const client::Layer second = Layer(name, kDownProj, Rows(RankOf(1, 2)));
  EXPECT_EQ(first.info().layer_id(), same.info().layer_id());
  EXPECT_NE(first.info().layer_id(), second.info().layer_id());
  EXPECT_NE(first.info().digest(), Layer(name, kDownProj).info().digest());
}

TEST_F(SliceTest, RefusalsAreCodedAndNameWhatIsLegal) {
  struct Refusal {
    v1::LayerSlice slice;
    const char* reason;
    const char* message;
  };
  v1::LayerSlice experts;
  *experts.mutable_experts() = RankOf(0, 2);
  v1::LayerSlice parts = Rows(RankOf(0, 2));
  parts.add_row_parts()->set_rows(64);
  v1::LayerSlice unused = Rows(RangeOf(0, 8));
  unused.add_row_parts()->set_rows(96);
  const Refusal refusals[] = {
      {ColumnsOf(RankOf(0, 4)), "SLICE_CUTS_GROUP", "legal numbers of ranks are 1, 2"},
      {ColumnsOf(RangeOf(64, 0)), "SLICE_CUTS_GROUP", "multiples of 128"},
      {Rows(RankOf(0, 5)), "SHAPE_MISMATCH", "1, 2, 3, 4, 6, 8"},
      {Rows(RangeOf(0, 97)), "SHAPE_MISMATCH", "within 0 to 96"},
      {experts, "SHAPE_MISMATCH", "legal numbers of ranks are 1"},
      {parts, "SHAPE_MISMATCH", "64 rows together"},
      {unused, "MISSING_FIELD", "slice.rows.rank"},
      {Rows(RankOf(2, 2)), "OUT_OF_RANGE", "below size 2"},
      {Rows(RankOf(0, 0)), "OUT_OF_RANGE", "1 or more"},
      {Rows(RangeOf(-1, 4)), "OUT_OF_RANGE", "0 or more"},
      {Rows(RangeOf(4, 4)), "OUT_OF_RANGE", "more than begin 4"}};
  for (const Refusal& refusal : refusals) {
    const auto layer = Register("gptq_v1_autogptq_b4_g128_sym", kDownProj, refusal.slice);
    EXPECT_EQ(layer.status().code(), absl::StatusCode::kInvalidArgument) << layer.status();
    EXPECT_EQ(ReasonOf(layer.status()), refusal.reason) << layer.status();
    EXPECT_THAT(std::string(layer.status().message()), HasSubstr(refusal.message));
  }
}

TEST_F(SliceTest, GemmctlRegistersParts) {
  const auto gemmctl = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {Program("gemmctl"), "--socket", socket(), "register",
                                 Checkpoints() + "/gptq_v1_autogptq_b4_g128_sym", kDownProj});
    auto tool = Start(words);
    const int code = tool->Wait(absl::Minutes(2));
    return std::pair(code, tool->Rest());
  };
  const auto [code, text] = gemmctl({"--rows", "1/3", "--columns", "128:"});
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("1 x 32 x 128"));
  const auto fused = gemmctl({"--rows", "1/4", "--row-parts", "64,16x2,16x4"});
  EXPECT_EQ(fused.first, 0) << fused.second;
  EXPECT_THAT(fused.second, HasSubstr("1 x 40 x 256"));
  EXPECT_EQ(gemmctl({"--columns", "0/4"}).first, 1);
  for (const char* wrong : {"1", "a/b", "1/2/3", "1:2:3", "x"}) {
    EXPECT_EQ(gemmctl({"--rows", wrong}).first, 2) << wrong;
    EXPECT_EQ(gemmctl({"--rows", "0/2", "--row-parts", absl::StrCat(wrong, "x")}).first, 2)
        << wrong;
  }
}

}  // namespace
}  // namespace gemmd::e2e
