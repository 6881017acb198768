// What ReadLayer gives a rank: the rows, columns and experts of the module that was read whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

constexpr char kDownProj[] = "model.layers.0.mlp.down_proj";
constexpr char kQkvProj[] = "model.layers.0.self_attn.qkv_proj";
constexpr char kExpertsPrefix[] = "model.layers.0.mlp.experts.";

constexpr AxisSlice Rank(int64_t rank, int64_t size) {
  return {.rank = rank, .size = size, .range = {}};
}
constexpr AxisSlice Part(int64_t begin, int64_t end) {
  return {.rank = 0, .size = 0, .range = {begin, end}};
}

absl::StatusOr<CheckpointLayer> Read(const std::string& name, const std::string& module,
                                     const SliceRequest& slice = {}) {
  return ReadLayer(CaseDirectory(name), module, nullptr, {}, slice);
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

std::vector<double> RowOf(const StandardTensor& tensor, int64_t expert, int64_t row) {
  std::vector<double> values(static_cast<size_t>(tensor.shape.k));
  DequantizeRow(tensor, expert, row, absl::MakeSpan(values));
  return values;
}

// The slice must hold `experts` x `rows` of `whole`, in their order, and its columns from `first` on.
void ExpectRows(const StandardTensor& slice, const StandardTensor& whole,
                const std::vector<int64_t>& experts, const std::vector<int64_t>& rows,
                int64_t first) {
  ASSERT_EQ(slice.shape.experts, static_cast<int64_t>(experts.size()));
  ASSERT_EQ(slice.shape.n, static_cast<int64_t>(rows.size()));
  for (size_t e = 0; e < experts.size(); ++e) {
    for (size_t n = 0; n < rows.size(); ++n) {
      const std::vector<double> full = RowOf(whole, experts[e], rows[n]);
      const auto begin = full.begin() + first;
      ASSERT_EQ(RowOf(slice, static_cast<int64_t>(e), static_cast<int64_t>(n)),
                std::vector<double>(begin, begin + slice.shape.k))
          << "expert " << experts[e] << ", row " << rows[n];
    }
  }
}

std::vector<int64_t> Numbers(int64_t begin, int64_t end) {
  std::vector<int64_t> numbers;
  for (int64_t i = begin; i < end; ++i) numbers.push_back(i);
  return numbers;
}

// How many ranks divide the columns into whole groups; 1 = none do.
int64_t ColumnRanks(const StandardTensor& whole) {
  for (const int64_t ranks : {2, 3, 5}) {
    if (whole.shape.k % ranks == 0 && whole.shape.k / ranks % ColumnUnit(whole) == 0) return ranks;
  }
  return 1;
}

// A module of every golden case that reads: halves of its rows, and ranks of its columns where groups allow.
TEST(RankSliceTest, HalvesOfEveryFormatAreHalvesOfTheWhole) {
  const auto facts = LoadJson(CaseDirectory("cases.json"));
  std::set<std::string> cut_columns;
  for (const auto& [name, fact] : facts.items()) {
    if (fact["outcome"] != "exact") continue;
    const auto modules = ListModules(CaseDirectory(name));
    ASSERT_TRUE(modules.ok()) << modules.status();
    const std::string& module = modules->front();
    SCOPED_TRACE(name);
    const auto whole = Read(name, module);
    ASSERT_TRUE(whole.ok()) << whole.status();
    const auto [experts, n, k] = whole->tensor.shape;
    for (int64_t rank = 0; rank < 2; ++rank) {
      const auto rows =
          Read(name, module, {{}, Part(rank * (n / 2), (rank + 1) * (n / 2)), {}, {}});
      ASSERT_TRUE(rows.ok()) << rows.status();
      ExpectRows(rows->tensor, whole->tensor, Numbers(0, experts),
                 Numbers(rank * (n / 2), (rank + 1) * (n / 2)), 0);
    }
    const int64_t ranks = ColumnRanks(whole->tensor);
    EXPECT_EQ(Read(name, module, {{}, {}, Rank(0, 2), {}}).ok(), ranks == 2);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const auto columns = Read(name, module, {{}, {}, Rank(rank, ranks), {}});
      ASSERT_TRUE(columns.ok()) << columns.status();
      ExpectRows(columns->tensor, whole->tensor, Numbers(0, experts), Numbers(0, n),
                 rank * (k / ranks));
      EXPECT_EQ(columns->tensor.spec.bias.present(),
                rank == 0 && whole->tensor.spec.bias.present());
    }
    if (ranks > 1) cut_columns.insert(whole->format);
  }
  EXPECT_THAT(cut_columns, testing::IsSupersetOf({"gptq", "awq", "compressed-tensors", "fp8",
                                                  "mxfp4", "modelopt", "bitnet", "auto-round"}));
}

// Columns of a permuted group index belong to any group: all scale columns stay.
TEST(RankSliceTest, KeepsAllScaleColumnsOfAGroupIndex) {
  for (const char* name : {"gptq_v1_autogptq_b4_descact_g64", "gptq_v2_gptqmodel_b4_descact_g32"}) {
    const auto whole = Read(name, kDownProj);
    const auto part = Read(name, kDownProj, {{}, {}, Part(7, 41), {}});
    ASSERT_TRUE(whole.ok() && part.ok()) << whole.status() << part.status();
    EXPECT_TRUE(part->tensor.spec.has_group_index);
    EXPECT_EQ(part->tensor.scale_columns, whole->tensor.scale_columns);
    ExpectRows(part->tensor, whole->tensor, {0}, Numbers(0, whole->tensor.shape.n), 7);
  }
}

// 136 x 160 in blocks of 128 x 128: rows 68 to 136 begin inside of the first block of rows.
TEST(RankSliceTest, RowsInsideABlockKeepTheScaleOfTheirGlobalRow) {
  const auto whole = Read("ct_fp8_block_nondiv", kDownProj);
  const auto part = Read("ct_fp8_block_nondiv", kDownProj, {{}, Rank(1, 2), {}, {}});
  ASSERT_TRUE(whole.ok() && part.ok()) << whole.status() << part.status();
  ASSERT_EQ(whole->tensor.spec.scale_block_n, 128);
  ExpectRows(part->tensor, whole->tensor, {0}, Numbers(68, 136), 0);
}

TEST(RankSliceTest, RefusesToCutAGroupAndNamesTheNumbersOfRanks) {
  const auto layer = Read("gptq_v1_autogptq_b4_g128_sym", kDownProj, {{}, {}, Rank(0, 4), {}});
  EXPECT_EQ(layer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(layer.status()), "SLICE_CUTS_GROUP");
  EXPECT_THAT(MessageOf(layer.status()), HasSubstr("legal numbers of ranks are 1, 2"));
  const auto range = Read("gptq_v1_autogptq_b4_g128_sym", kDownProj, {{}, {}, Part(0, 64), {}});
  EXPECT_EQ(ReasonOf(range.status()), "SLICE_CUTS_GROUP");
  EXPECT_THAT(MessageOf(range.status()), HasSubstr("multiples of 128"));
}

// 64 rows of q, 32 of k and of v: 64 ranks would divide q alone.
TEST(RankSliceTest, NamesTheNumbersOfRanksThatDivideAllParts) {
  const auto layer = Read("modelopt_fp8_llama", kQkvProj, {{}, Rank(0, 3), {}, {}});
  EXPECT_EQ(ReasonOf(layer.status()), "SHAPE_MISMATCH");
  EXPECT_THAT(MessageOf(layer.status()),
              HasSubstr("3 ranks do not divide the 64 of part 0: legal numbers of ranks for all 3 parts are 1, 2, 4, 8, 16, 32"));
  EXPECT_THAT(MessageOf(Read("modelopt_fp8_llama", kQkvProj, {{}, Rank(0, 64), {}, {}}).status()),
              HasSubstr("64 ranks do not divide the 32 of part 1"));
}

// q, k and v are stored apart: each rank has a part of each of them.
TEST(RankSliceTest, CutsQueryKeyAndValueEachForItself) {
  for (const char* name : {"ct_nvfp4_qkv_different_global", "awq_gemm_g64_qkv",
                           "modelopt_nvfp4_llama", "fp8_per_tensor_static_qkv"}) {
    SCOPED_TRACE(name);
    const auto whole = Read(name, kQkvProj);
    ASSERT_TRUE(whole.ok()) << whole.status();
    std::vector<int64_t> starts;
    int64_t rows = 0;
    for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
      const auto layer = Read(name, absl::StrCat("model.layers.0.self_attn.", part));
      ASSERT_TRUE(layer.ok()) << layer.status();
      starts.push_back(rows);
      rows += layer->tensor.shape.n;
    }
    starts.push_back(rows);
    for (int64_t rank = 0; rank < 2; ++rank) {
      std::vector<int64_t> expected;
      for (size_t i = 0; i + 1 < starts.size(); ++i) {
        const int64_t half = (starts[i + 1] - starts[i]) / 2;
        for (int64_t row = 0; row < half; ++row) expected.push_back(starts[i] + rank * half + row);
      }
      const auto slice = Read(name, kQkvProj, {{}, Rank(rank, 2), {}, {}});
      ASSERT_TRUE(slice.ok()) << slice.status();
      ExpectRows(slice->tensor, whole->tensor, {0}, expected, 0);
    }
    // A range counts the rows of the fused module.
    const auto range = Read(name, kQkvProj, {{}, Part(5, rows - 3), {}, {}});
    ASSERT_TRUE(range.ok()) << range.status();
    ExpectRows(range->tensor, whole->tensor, {0}, Numbers(5, rows - 3), 0);
  }
}

TEST(RankSliceTest, HeldKeysAndValuesRepeatForRanks) {
  const std::string name = "modelopt_nvfp4_llama";
  const auto whole = Read(name, kQkvProj);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto q = Read(name, "model.layers.0.self_attn.q_proj");
  const auto k = Read(name, "model.layers.0.self_attn.k_proj");
  ASSERT_TRUE(q.ok() && k.ok());
  const int64_t q_rows = q->tensor.shape.n;
  const int64_t k_rows = k->tensor.shape.n;
  SliceRequest request{{}, Rank(1, 4), {}, {{q_rows, 1}, {k_rows, 2}, {k_rows, 2}}};
  const auto slice = Read(name, kQkvProj, request);
  ASSERT_TRUE(slice.ok()) << slice.status();
  std::vector<int64_t> expected = Numbers(q_rows / 4, q_rows / 2);
  for (int64_t start : {q_rows, q_rows + k_rows}) {
    for (int64_t row : Numbers(start, start + k_rows / 2)) expected.push_back(row);
  }
  ExpectRows(slice->tensor, whole->tensor, {0}, expected, 0);
  request.row_parts[1].rows += 1;
  const auto wrong = Read(name, kQkvProj, request);
  EXPECT_EQ(ReasonOf(wrong.status()), "SHAPE_MISMATCH") << wrong.status();
  EXPECT_THAT(MessageOf(wrong.status()), HasSubstr("k_proj has"));
}

TEST(RankSliceTest, ReadsOnlyTheExpertsOfTheRank) {
  for (const char* name : {"modelopt_nvfp4_qwen3moe", "modelopt_fp8_qwen3moe"}) {
    const std::string module = absl::StrCat(kExpertsPrefix, "gate_up_proj");
    const auto whole = Read(name, module);
    ASSERT_TRUE(whole.ok()) << whole.status();
    uint64_t all = 0;
    uint64_t some = 0;
    const auto total = [](uint64_t* to) {
      return [to](uint64_t, uint64_t bytes) {
        *to = bytes;
        return true;
      };
    };
    ASSERT_TRUE(ReadLayer(CaseDirectory(name), module, total(&all)).ok());
    const SliceRequest request{Rank(2, 3), Rank(1, 2), {}, {}};
    const auto slice = ReadLayer(CaseDirectory(name), module, total(&some), {}, request);
    ASSERT_TRUE(slice.ok()) << slice.status();
    EXPECT_EQ(some * 3, all);
    const int64_t half = whole->tensor.shape.n / 2;  // rows of gate, then of up
    std::vector<int64_t> rows = Numbers(half / 2, half);
    for (int64_t row : Numbers(half + half / 2, 2 * half)) rows.push_back(row);
    ExpectRows(slice->tensor, whole->tensor, {2}, rows, 0);
    const auto none = Read(name, module, {Part(3, 4), {}, {}, {}});
    EXPECT_EQ(ReasonOf(none.status()), "SHAPE_MISMATCH") << none.status();
  }
}

// Stacks that are stored as one: gate and up alternate (gpt-oss), or every expert is one matrix.
TEST(RankSliceTest, CutsStacksOfExperts) {
  const std::string module = absl::StrCat(kExpertsPrefix, "gate_up_proj");
  const auto whole = Read("gptoss_mxfp4_hf", module);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto [experts, n, k] = whole->tensor.shape;
  const auto slice = Read("gptoss_mxfp4_hf", module, {Part(1, 0), Rank(1, 2), {}, {}});
  ASSERT_TRUE(slice.ok()) << slice.status();
  EXPECT_TRUE(slice->tensor.gate_up_interleaved);
  ExpectRows(slice->tensor, whole->tensor, Numbers(1, experts), Numbers(n / 2, n), 0);
}

// The module's name says that it is fused; the halves of gate_up_proj are known, the parts of qkv_proj not.
TEST(RankSliceTest, KnowsTheHalvesOfGateAndUpStoredAsOneAndAsksForTheRest) {
  EditableCheckpoint checkpoint("ct_pack_w4_g128_sym");
  const auto renamed = [&](const std::string& module) {
    EditableCheckpoint changed = checkpoint;
    changed.tensors.clear();
    for (const auto& [name, tensor] : checkpoint.tensors) {
      changed.tensors[module + name.substr(std::string(kDownProj).size())] = tensor;
    }
    return changed;
  };
  TemporaryDirectory gate_up_directory;
  renamed("model.layers.0.mlp.gate_up_proj").Write(gate_up_directory.path());
  const auto gate_up = [&](const SliceRequest& slice) {
    return ReadLayer(gate_up_directory.path(), "model.layers.0.mlp.gate_up_proj", nullptr, {},
                     slice);
  };
  const auto whole = gate_up({});
  const auto slice = gate_up({{}, Rank(1, 2), {}, {}});
  ASSERT_TRUE(whole.ok() && slice.ok()) << whole.status() << slice.status();
  std::vector<int64_t> rows = Numbers(24, 48);
  for (int64_t row : Numbers(72, 96)) rows.push_back(row);
  ExpectRows(slice->tensor, whole->tensor, {0}, rows, 0);

  TemporaryDirectory qkv_directory;
  renamed(kQkvProj).Write(qkv_directory.path());
  const auto unknown =
      ReadLayer(qkv_directory.path(), kQkvProj, nullptr, {}, {{}, Rank(1, 2), {}, {}});
  EXPECT_EQ(ReasonOf(unknown.status()), "MISSING_FIELD") << unknown.status();
  EXPECT_THAT(MessageOf(unknown.status()), HasSubstr("q_proj, k_proj, v_proj"));
  const SliceRequest told{{}, Rank(1, 2), {}, {{64, 1}, {16, 1}, {16, 1}}};
  const auto known = ReadLayer(qkv_directory.path(), kQkvProj, nullptr, {}, told);
  ASSERT_TRUE(known.ok()) << known.status();
  rows = Numbers(32, 64);
  for (int64_t row : Numbers(72, 80)) rows.push_back(row);
  for (int64_t row : Numbers(88, 96)) rows.push_back(row);
  ExpectRows(known->tensor, whole->tensor, {0}, rows, 0);
}

}  // namespace
}  // namespace gemmd
