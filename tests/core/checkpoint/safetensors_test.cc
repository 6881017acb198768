#include "core/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

absl::StatusOr<TensorsByName> Parse(const std::string& file) {
  return ParseSafetensorsHeader(file, file.size());
}

TEST(SafetensorsTest, ReadsShapesOfEveryRankAndWidth) {
  const auto tensors = Parse(SafetensorsBytes(
      R"({"__metadata__": {"format": "pt"},
          "scalar": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
          "bytes": {"dtype": "F8_E8M0", "shape": [3], "data_offsets": [4, 7]},
          "empty": {"dtype": "I64", "shape": [0, 9], "data_offsets": [7, 7]},
          "half": {"dtype": "F4", "shape": [2, 1], "data_offsets": [7, 8]}})",
      "01234567"));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->size(), 4u);
  EXPECT_EQ(tensors->at("scalar").bytes, 4u);
  EXPECT_THAT(tensors->at("empty").shape, testing::ElementsAre(0, 9));
}

// A quadratic parser takes minutes here, a linear one a fraction of a second.
TEST(SafetensorsTest, ReadsAHeaderOfFiftyThousandTensorsInLinearTime) {
  std::string header = "{";
  for (int i = 0; i < 50000; ++i) {
    absl::StrAppend(&header, i == 0 ? "" : ",", "\"experts.", i,
                    ".weight\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [", i, ", ",
                    i + 1, "]}");
  }
  const std::string file = SafetensorsBytes(header + "}", std::string(50000, 'x'));
  const absl::Time start = absl::Now();
  const auto tensors = Parse(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->size(), 50000u);
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
}

struct BadFile {
  const char* name;
  std::string content;
  const char* message;
};

std::string OneTensor(const std::string& fields, size_t data = 8) {
  return SafetensorsBytes(R"({"t": {)" + fields + "}}", std::string(data, 'x'));
}

std::vector<BadFile> BadFiles() {
  const std::string fine = R"("dtype": "F32", "shape": [2], "data_offsets": [0, 8])";
  return {
      {"Empty", "", "0 bytes"},
      {"SevenBytes", "1234567", "7 bytes"},
      {"HeaderOf2To60", SafetensorsBytes(uint64_t{1} << 60, "{}", ""), "1152921504606846976"},
      {"HeaderOfAllOnes", SafetensorsBytes(~uint64_t{0}, "{}", ""), "limit"},
      {"HeaderBeyondTheFile", SafetensorsBytes(99, "{}", ""), "header of 99"},
      {"GitLfsPointer", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12\n",
       "a Git LFS pointer, not the file that it stands for: run \"git lfs pull\""},
      {"WebPage", "<!DOCTYPE html>\n<html></html>\n", "an HTML or XML page"},
      {"PythonNumber", SafetensorsBytes(R"({"__metadata__": {"a": NaN}})", ""), "not valid JSON at line 1"},
      {"NoHeader", SafetensorsBytes(0, "", ""), "JSON"},
      {"NotJson", SafetensorsBytes("{\"t\"", ""), "JSON"},
      {"NotAnObject", SafetensorsBytes("[1]", ""), "object"},
      {"NotUtf8", SafetensorsBytes("{\"\xff\": 1}", ""), "JSON"},
      {"TwoDocuments", SafetensorsBytes("{}{}", ""), "JSON"},
      {"DuplicateName",
       SafetensorsBytes("{\"t\": {" + fine + "}, \"t\": {" + fine + "}}", "12345678"),
       "duplicate key \"t\""},
      {"DuplicateField", OneTensor(fine + R"(, "dtype": "I32")"), "duplicate"},
      {"EntryIsANumber", SafetensorsBytes(R"({"t": 3})", ""), "dtype"},
      {"NoDtype", OneTensor(R"("shape": [2], "data_offsets": [0, 8])"), "dtype"},
      {"UnknownDtype", OneTensor(R"("dtype": "F7", "shape": [2], "data_offsets": [0, 8])"), "F7"},
      {"NoShape", OneTensor(R"("dtype": "F32", "data_offsets": [0, 8])"), "shape"},
      {"NegativeExtent", OneTensor(R"("dtype": "F32", "shape": [-2], "data_offsets": [0, 8])"),
       "shape"},
      {"FractionalExtent", OneTensor(R"("dtype": "F32", "shape": [2.0], "data_offsets": [0, 8])"),
       "shape"},
      {"NoOffsets", OneTensor(R"("dtype": "F32", "shape": [2])"), "data_offsets"},
      {"OneOffset", OneTensor(R"("dtype": "F32", "shape": [2], "data_offsets": [0])"),
       "data_offsets"},
      {"BackwardOffsets", OneTensor(R"("dtype": "F32", "shape": [2], "data_offsets": [8, 0])"),
       "range"},
      {"HugeOffset",
       OneTensor(R"("dtype": "F32", "shape": [2], "data_offsets": [0, 18446744073709551615])"),
       "2^62"},
      {"BeyondTheFile", OneTensor(R"("dtype": "F32", "shape": [4], "data_offsets": [0, 16])"),
       "end at 16"},
      {"SizeDisagrees", OneTensor(R"("dtype": "F32", "shape": [3], "data_offsets": [0, 8])"),
       "takes 12"},
      {"ShapeOverflows",
       OneTensor(R"("dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 8])"),
       "overflows"},
      {"PartOfAByte", OneTensor(R"("dtype": "F4", "shape": [3], "data_offsets": [0, 1])", 1),
       "whole bytes"},
      {"Gap", OneTensor(R"("dtype": "F32", "shape": [1], "data_offsets": [4, 8])"), "gap"},
      {"DataAfterTheLastTensor", OneTensor(fine, 9), "of a file of"},
      {"Overlap",
       SafetensorsBytes(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                            "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}})",
                        "123456789012"),
       "overlaps"},
  };
}

class BadFileTest : public testing::TestWithParam<BadFile> {};

TEST_P(BadFileTest, IsRefused) {
  const auto tensors = Parse(GetParam().content);
  ASSERT_FALSE(tensors.ok());
  EXPECT_EQ(ReasonOf(tensors.status()), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(tensors.status().message()), HasSubstr(GetParam().message));
  // And the same from disk, with the name of the file.
  TemporaryDirectory directory;
  WriteFile(directory.path() / "some.safetensors", GetParam().content);
  const auto file =
      SafetensorsFile::Open(directory.path() / "some.safetensors", "some.safetensors");
  EXPECT_EQ(ReasonOf(file.status()), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("some.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Files, BadFileTest, testing::ValuesIn(BadFiles()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(SafetensorsFileTest, NoticesAFileThatShrinks) {
  TemporaryDirectory directory;
  const auto path = directory.path() / "t.safetensors";
  WriteFile(path, OneTensor(R"("dtype": "F32", "shape": [2], "data_offsets": [0, 8])"));
  const auto file = SafetensorsFile::Open(path, "t.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->Read(*(*file)->Find("t")).ok());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_EQ(ReasonOf((*file)->Read(*(*file)->Find("t")).status()), "BAD_CHECKPOINT");
}

TEST(SafetensorsFileTest, DoesNotFollowALinkInItsLastStep) {
  TemporaryDirectory directory;
  WriteFile(directory.path() / "real", SafetensorsBytes("{}", ""));
  std::filesystem::create_symlink("real", directory.path() / "link");
  EXPECT_TRUE(SafetensorsFile::Open(directory.path() / "real", "real").ok());
  EXPECT_FALSE(SafetensorsFile::Open(directory.path() / "link", "link").ok());
}

}  // namespace
}  // namespace gemmd
