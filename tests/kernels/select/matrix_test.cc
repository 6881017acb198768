#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "tests/kernels/select/matrix/matrix_cases.h"
#include "tests/kernels/select/matrix/record.h"
#include "tests/kernels/select/matrix/runner.h"

namespace gemmd::matrix {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

std::string TextOf(const std::string& text, size_t size) {
  const absl::StatusOr<CaseSet> set = CaseSet::Parse(text, size);
  return set.ok() ? set->ToText() : "refused";
}

TEST(CaseSetTest, IsWrittenAsRanges) {
  CaseSet set(12);
  EXPECT_EQ(set.ToText(), "");
  for (const size_t index : {0, 1, 2, 5, 10, 11}) set.Add(index);
  EXPECT_EQ(set.ToText(), "0-2,5,10-11");
  EXPECT_EQ(set.count(), 6);
  EXPECT_EQ(TextOf("0-2,5,10-11", 12), "0-2,5,10-11");
  EXPECT_EQ(TextOf("", 12), "");
}

TEST(CaseSetTest, RefusesWhatIsNoAscendingSetOfCases) {
  for (const char* text : {"12", "0-12", "5-4", "3,3", "3,1", "a", "1-b", "-1", "1--2", "1-2-3"}) {
    EXPECT_EQ(TextOf(text, 12), "refused") << text;
  }
}

// Three small cases: one compiles, one does not, one has a stack.
std::vector<MatrixCase> SmallCases() {
  const auto one = [](const char* body, const char* label) {
    return MatrixCase{
        Family::kGeneric,
        {std::string("__global__ void Kernel(int* p) {") + body + "}\n", "Kernel", "sm_80", label}};
  };
  return {one("*p = 1;", "right"), one("*p = oops;", "wrong"),
          one("int a[64] = {}; for (int i = 0; i < 64; ++i) a[p[i] & 63] = i; p[0] = a[p[1] & 63];",
              "stack")};
}

class MatrixTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto nvrtc = jit::LoadNvrtc();
    if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status();
    nvrtc_ = *nvrtc;
  }
  size_t RunOn(Record& record, const RunOptions& options) {
    return CompileCases(*nvrtc_, cases_, options, record, [](const Progress&, const Record&) {});
  }
  const jit::NvrtcTable* nvrtc_ = nullptr;
  const std::vector<MatrixCase> cases_ = SmallCases();
};

TEST_F(MatrixTest, NotesWhatBecameOfEachKernel) {
  Record record = RecordOf(cases_, "compiler", "commit");
  EXPECT_EQ(RunOn(record, {.workers = 2}), 3);
  EXPECT_TRUE(record.complete());
  EXPECT_EQ(record.compiled.ToText(), "0,2");
  EXPECT_EQ(record.failed.ToText(), "1");
  std::map<std::string, std::string> faults;
  for (const Fault& fault : record.faults) faults[fault.kernel] = fault.what + ": " + fault.text;
  ASSERT_EQ(faults.size(), 2);
  EXPECT_THAT(faults["wrong"], HasSubstr("failed: "));
  EXPECT_THAT(faults["wrong"], HasSubstr("oops"));
  EXPECT_THAT(faults["stack"], HasSubstr("spills: 256 bytes of stack"));
  EXPECT_EQ(record.extremes["sm_80"].largest_frame, 256);
  EXPECT_GT(record.extremes["sm_80"].longest_seconds, 0);
}

TEST_F(MatrixTest, ShardsMakeTheWholeAndAgainstTheClockNothingIsCompiled) {
  Record first = RecordOf(cases_, "compiler", "commit");
  Record second = first;
  Record late = first;
  EXPECT_EQ(RunOn(first, {.shard = 0, .shards = 2}), 2);
  EXPECT_EQ(RunOn(second, {.shard = 1, .shards = 2}), 1);
  EXPECT_EQ(RunOn(late, {.deadline = absl::InfinitePast()}), 0);
  EXPECT_EQ(late.done(), 0);
  EXPECT_FALSE(first.complete());
  ASSERT_TRUE(Merge(second, first).ok());
  EXPECT_TRUE(first.complete());
  EXPECT_EQ(first.faults.size(), 2);
}

TEST_F(MatrixTest, ASeedMakesARandomOrderOfTheShardThatComesAgain) {
  Record record(1000);
  record.compiled.Add(3);
  const auto order = [&](std::optional<uint64_t> seed) {
    return CasesToCompile({.shard = 1, .shards = 2, .seed = seed}, record);
  };
  const std::vector<size_t> plain = order(std::nullopt);
  EXPECT_TRUE(std::is_sorted(plain.begin(), plain.end()));
  EXPECT_EQ(plain.size(), 499);
  EXPECT_NE(order(1), plain);
  EXPECT_NE(order(1), order(2));
  EXPECT_EQ(order(1), order(1));
  EXPECT_THAT(order(1), UnorderedElementsAreArray(plain));
}

TEST_F(MatrixTest, ARunGoesOnWhereTheRecordStopped) {
  Record record = RecordOf(cases_, "compiler", "commit");
  RunOn(record, {.shard = 0, .shards = 2});
  EXPECT_EQ(RunOn(record, {}), 1);
  EXPECT_EQ(RunOn(record, {}), 0);
}

TEST_F(MatrixTest, ARecordIsReadAsItWasWritten) {
  Record record = RecordOf(cases_, "compiler", "commit");
  RunOn(record, {.shard = 0, .shards = 2});
  record.runs.push_back({"2026-01-01T00:00:00Z", "cpu", 2, 1, "1/2", 1.5, 2});
  const std::string text = Render(record, cases_);
  const absl::StatusOr<Record> read = Parse(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Render(*read, cases_), text);
  EXPECT_THAT(text, HasSubstr("\"complete\": false"));
  EXPECT_THAT(Describe(*read, cases_), HasSubstr("2 compiled, 0 failed, 1 missing"));
}

TEST(RecordTest, RefusesOtherSourcesCompilersAndMatrices) {
  const std::vector<MatrixCase> cases = SmallCases();
  const Record record = RecordOf(cases, "compiler", "commit");
  const auto refusal = [&](auto change) {
    Record other = record;
    change(other);
    Record into = record;
    const absl::Status status = Merge(other, into);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([](Record& r) { r.sources_digest = "x"; }), HasSubstr("device sources"));
  EXPECT_THAT(refusal([](Record& r) { r.matrix_digest = "x"; }), HasSubstr("matrices"));
  EXPECT_THAT(refusal([](Record& r) { r.compiler = "x"; }), HasSubstr("compilers"));
}

TEST(RecordTest, RefusesTextThatIsNoRecord) {
  for (const char* text : {"", "{}", "[1]", R"({"matrix": {"cases": "many"}})"}) {
    EXPECT_EQ(Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(MatrixCasesTest, TheSampleHasEveryFamilyButTheSpecialisedAndEveryArchitecture) {
  std::set<std::string> architectures;
  std::set<std::string> programs;
  for (const MatrixCase& one : Sample()) {
    architectures.insert(one.source.architecture);
    programs.insert(one.source.program + one.source.name_expression);
  }
  EXPECT_EQ(architectures.size(), 9);
  EXPECT_GE(programs.size(), 20);
}

}  // namespace
}  // namespace gemmd::matrix
