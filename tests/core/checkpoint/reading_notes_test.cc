// Zero points of GPTQ version 1 that wrap, which programs read in different ways.
#include "core/checkpoint/reading_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "absl/strings/str_cat.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<std::string> NotesOf(const std::filesystem::path& directory, const std::vector<PlannedModule>& modules,
                                 const ReadingOptions& options = {}) {
  const auto checkpoint = Checkpoint::Open(directory);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  return ReadingNotes(**checkpoint, modules, options);
}

std::vector<std::string> NotesOf(const std::filesystem::path& directory, const std::vector<std::string>& modules,
                                 const ReadingOptions& options = {}) {
  std::vector<PlannedModule> planned;
  for (const std::string& module : modules) planned.push_back({.module = module, .slice = {}});
  return NotesOf(directory, planned, options);
}

// Fields of `bits` in words that hold whole ones or, of 3 bits, a stream.
int CountFieldsOfOnes(const RawTensor& qzeros, int bits) {
  int count = 0;
  for (size_t first = 0; first + bits <= 8 * qzeros.bytes.size(); first += bits) {
    bool ones = true;
    for (size_t bit = first; bit < first + bits; ++bit) ones = ones && (qzeros.bytes[bit / 8] >> (bit % 8) & 1) != 0;
    count += ones ? 1 : 0;
  }
  return count;
}

TEST(ReadingNotesTest, TellHowManyZeroPointsWrap) {
  for (const auto& [name, bits] :
       {std::pair("gptq_v1_gptqmodel_b2_g32_asym_borrow", 2), std::pair("gptq_v1_gptqmodel_b3_g32_asym_wrap", 3),
        std::pair("gptq_v1_gptqmodel_b4_g64_asym_borrow", 4), std::pair("autoround_autogptq_b4_g32_asym_borrow", 4)}) {
    SCOPED_TRACE(name);
    const EditableCheckpoint checkpoint(name);
    const std::string module = ListModules(CaseDirectory(name))->front();
    const RawTensor& qzeros = checkpoint.tensors.at(module + ".qzeros");
    const int count = CountFieldsOfOnes(qzeros, bits);
    ASSERT_GT(count, 0);
    const std::vector<std::string> notes = NotesOf(CaseDirectory(name), std::vector{module});
    ASSERT_THAT(notes, SizeIs(1));
    EXPECT_THAT(notes[0], HasSubstr(absl::StrCat(module, ".qzeros: ", count, " of ", 8 * qzeros.bytes.size() / bits)));
    EXPECT_THAT(notes[0], HasSubstr(absl::StrCat("stored as ", (1 << bits) - 1)));
  }
}

TEST(ReadingNotesTest, SayNothingWhereNothingWraps) {
  for (const char* name : {"gptq_v2_gptqmodel_b4_g32_asym", "gptq_v1_autogptq_b4_g128_sym", "gptq_p_planar_b3_g32",
                           "autoround_native_b4_g32_asym", "autoround_mxfp4", "awq_gemm_g128", "ct_fp8_channel"}) {
    EXPECT_THAT(NotesOf(CaseDirectory(name), *ListModules(CaseDirectory(name))), IsEmpty()) << name;
  }
  EXPECT_THAT(NotesOf(CaseDirectory("gptq_v1_gptqmodel_b4_g64_asym_borrow"), std::vector<std::string>{"no.such.module"}),
              IsEmpty());
}

// A module of two parts, and of more modules than are named.
TEST(ReadingNotesTest, AreOfPartsAndNotWithoutEnd) {
  const char* const name = "gptq_v1_gptqmodel_b4_g64_asym_borrow";
  EditableCheckpoint checkpoint(name);
  const std::string golden = ListModules(CaseDirectory(name))->front();
  RawTensors tensors;
  std::vector<std::string> modules;
  for (int layer = 0; layer < 5; ++layer) {
    const std::string mlp = absl::StrCat("model.layers.", layer, ".mlp.");
    modules.push_back(mlp + "gate_up_proj");
    for (const char* part : {"gate_proj", "up_proj"}) {
      for (const char* key : {".qweight", ".qzeros", ".scales", ".g_idx"}) {
        tensors[absl::StrCat(mlp, part, key)] = checkpoint.tensors.at(golden + key);
      }
    }
  }
  checkpoint.tensors = std::move(tensors);
  const TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  const std::vector<std::string> notes = NotesOf(directory.path(), modules);
  ASSERT_THAT(notes, SizeIs(9));
  EXPECT_THAT(notes[0], HasSubstr("model.layers.0.mlp.gate_proj.qzeros"));
  EXPECT_THAT(notes[1], HasSubstr("model.layers.0.mlp.up_proj.qzeros"));
  EXPECT_THAT(notes[8], HasSubstr("2 more modules"));
}

TEST(ReadingNotesTest, TellTheRuleAndTheOther) {
  const auto note = [](const char* name, GptqZeroPoints rule) {
    return NotesOf(CaseDirectory(name), *ListModules(CaseDirectory(name)), {.gptq_zero_points = rule}).at(0);
  };
  const char* const kFourBits = "gptq_v1_gptqmodel_b4_g64_asym_borrow";
  EXPECT_THAT(note(kFourBits, GptqZeroPoints::kWord),
              EndsWith("are stored as 15, and plus one they wrap to 0, with a carry into the next of their word (word); "
                       "some programs read them as 16, or without the carry (field-masked)"));
  EXPECT_THAT(note(kFourBits, GptqZeroPoints::kFieldMasked),
              EndsWith("are stored as 15, and plus one they wrap to 0, each alone (field-masked); some programs read them "
                       "as 16, or with a carry into the next of their word (word)"));
  for (const GptqZeroPoints rule : {GptqZeroPoints::kWord, GptqZeroPoints::kFieldMasked}) {
    EXPECT_THAT(note("gptq_v1_gptqmodel_b3_g32_asym_wrap", rule),
                EndsWith("are stored as 7, and plus one they wrap to 0; some programs read them as 8"));
  }
}

// Symmetric files whose config names the other version, with 2, 3, 4 and 8 bits. Files of the version they name have none.
TEST(ReadingNotesTest, TellOfVersionsThatAreNamedWrongly) {
  const char* const name = "gptq_mislabelled_v2_zeros_as_v1";
  const std::string module = ListModules(CaseDirectory(name))->front();
  EXPECT_THAT(NotesOf(CaseDirectory(name), std::vector{module}),
              testing::ElementsAre(absl::StrCat("tensor ", module,
                                                ".qzeros: the config names version 1 of GPTQ, and zero points of 8 are "
                                                "stored as 8, as version 2 has them; some programs read them as 9")));
  for (const auto& [other, format, told] :
       {std::tuple("gptq_v1_autogptq_b4_g128_sym", "gptq_v2", "names version 2 of GPTQ, and zero points of 8 are stored "
                                                              "as 7, as version 1 has them; some programs read them as 7"),
        std::tuple("gptq_v1_autogptq_b3_g64_sym", "gptq_v2", "points of 4 are stored as 3, as version 1"),
        std::tuple("gptq_v1_autogptq_b8_gm1_sym", "gptq_v2", "points of 128 are stored as 127, as version 1"),
        std::tuple("gptq_v2_gptqmodel_b2_gm1_sym", "gptq", "points of 2 are stored as 2, as version 2 has them; "
                                                           "some programs read them as 3")}) {
    SCOPED_TRACE(other);
    EXPECT_THAT(NotesOf(CaseDirectory(other), *ListModules(CaseDirectory(other))), IsEmpty());
    EditableCheckpoint checkpoint(other);
    checkpoint.config["quantization_config"]["checkpoint_format"] = format;
    const TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    EXPECT_THAT(NotesOf(directory.path(), *ListModules(directory.path())), testing::ElementsAre(HasSubstr(told)));
  }
}

// What is wrong with it is told when it is read.
TEST(ReadingNotesTest, SayNothingOfATensorOfAnotherType) {
  EditableCheckpoint checkpoint("gptq_mislabelled_v2_zeros_as_v1");
  const std::string module = ListModules(CaseDirectory("gptq_mislabelled_v2_zeros_as_v1"))->front();
  checkpoint.tensors.at(module + ".qzeros") = {"U8", {1, 1}, "\x08"};
  const TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  EXPECT_THAT(NotesOf(directory.path(), std::vector{module}), IsEmpty());
}

TEST(ReadingNotesTest, TellOfVersionsThatAutoRoundNamesWrongly) {
  EditableCheckpoint checkpoint("autoround_autogptq_b4_g64_sym");
  checkpoint.config["quantization_config"]["packing_format"] = "auto_round:gptqmodel";
  const TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  EXPECT_THAT(NotesOf(directory.path(), *ListModules(directory.path())),
              testing::ElementsAre(HasSubstr("names version 2 of GPTQ, and zero points of 8 are stored as 7")));
}

TEST(ReadingNotesTest, AreOfTheExpertsOfTheSlice) {
  const char* const name = "gptq_v1_gptqmodel_b4_g64_asym_borrow";
  EditableCheckpoint checkpoint(name);
  const std::string golden = ListModules(CaseDirectory(name))->front();
  RawTensors tensors;
  for (int expert = 0; expert < 4; ++expert) {
    for (const char* key : {".qweight", ".qzeros", ".scales", ".g_idx"}) {
      tensors[absl::StrCat("experts.", expert, ".down_proj", key)] = checkpoint.tensors.at(golden + key);
    }
  }
  checkpoint.tensors = std::move(tensors);
  const TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  PlannedModule stack{.module = "experts.down_proj", .slice = {}};
  EXPECT_THAT(NotesOf(directory.path(), std::vector{stack}), SizeIs(4));
  stack.slice.experts = {.rank = 1, .size = 2, .range = {}};
  EXPECT_THAT(NotesOf(directory.path(), std::vector{stack}),
              testing::ElementsAre(HasSubstr("experts.2.down_proj.qzeros"), HasSubstr("experts.3.down_proj.qzeros")));
}

}  // namespace
}  // namespace gemmd
