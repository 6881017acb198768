// What gemmctl inspect notes of tensors that other programs read otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/gemmctl/inspection.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd::gemmctl {
namespace {

// Of a golden case without the files that are no part of it.
nlohmann::json NotesOfCase(const std::string& name) {
  const TemporaryDirectory directory;
  EditableCheckpoint(name).Write(directory.path());
  const Inspection inspection = Inspect(directory.path());
  EXPECT_EQ(inspection.code, kDone);
  return inspection.report["notes"];
}

TEST(InspectReadingsTest, NamesZeroPointsThatWrap) {
  const nlohmann::json notes = NotesOfCase("gptq_v1_gptqmodel_b4_g64_asym_borrow");
  ASSERT_EQ(notes.size(), 1u) << notes.dump();
  EXPECT_THAT(notes[0].get<std::string>(), testing::HasSubstr(std::string(kDownProj) + ".qzeros: "));
  EXPECT_EQ(NotesOfCase(kGptqCase).size(), 0u);
}

TEST(InspectReadingsTest, TellsTheRuleThatTheOptionChose) {
  const TemporaryDirectory directory;
  EditableCheckpoint("gptq_v1_gptqmodel_b4_g64_asym_borrow").Write(directory.path());
  const auto note_with = [&directory](const char* rule) {
    const ToolRun run = Tool({"inspect", directory.path().string(), "-o", "json", "--gptq-zero-points", rule});
    EXPECT_EQ(run.code, kDone) << run.err;
    return nlohmann::json::parse(run.out)["notes"][0].get<std::string>();
  };
  EXPECT_THAT(note_with("field-masked"), testing::HasSubstr("wrap to 0, each alone (field-masked)"));
  EXPECT_THAT(note_with("word"), testing::HasSubstr("wrap to 0, with a carry into the next of their word (word)"));
}

}  // namespace
}  // namespace gemmd::gemmctl
