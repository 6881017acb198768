#include "kernels/tune/tuning_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/status.h"
#include "kernels/tune/built_in.h"
#include "nlohmann/json.hpp"
#include "tests/kernels/tune/tuning_entries.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::vector<TuningEntry> Entries() {
  return {MakeEntry(8192, "aa", {MakePoint(1, 5000.125), MakePoint(64, 12000)}),
          MakeEntry(6144, "bb", {})};
}

std::string ReasonFor(const Json& json) {
  const auto parsed = ParseTuning(json.dump());
  EXPECT_FALSE(parsed.ok()) << json;
  EXPECT_EQ(ReasonOf(parsed.status()), "TUNING_DAMAGED");
  return std::string(parsed.status().message());
}

TEST(TuningJsonTest, ComesBackAsItWas) {
  const auto parsed = ParseTuning(RenderTuning(Entries()));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, Entries());
  EXPECT_TRUE(ParseTuning(RenderTuning({}))->empty());
}

TEST(TuningJsonTest, WholeNumbersAreTimesToo) {
  Json json = Json::parse(RenderTuning(Entries()));
  json["entries"][0]["points"][0]["ns"] = 5000;
  EXPECT_EQ(ParseTuning(json.dump())->front().points[0].ns, 5000);
}

// Every field, once gone and once of another type.
TEST(TuningJsonTest, EveryFieldIsNeededAndHasItsType) {
  const Json whole = Json::parse(RenderTuning(Entries()));
  int fields = 0;
  const Json flat = whole.flatten();
  for (const auto& [path, value] : flat.items()) {
    ++fields;
    const Json::json_pointer pointer(path);
    Json damaged = whole;
    damaged[pointer] = value.is_string() ? Json(7) : Json("seven");
    if (value.is_array()) damaged[pointer] = 7;
    EXPECT_NE(ReasonFor(damaged), "") << path;
    damaged = whole;
    damaged[pointer.parent_pointer()].erase(pointer.back());
    EXPECT_NE(ReasonFor(damaged), "") << path;
  }
  EXPECT_GT(fields, 30);
}

TEST(TuningJsonTest, BoundsAreKept) {
  const Json whole = Json::parse(RenderTuning(Entries()));
  const auto with = [&](const char* path, const Json& value) {
    Json changed = whole;
    changed[Json::json_pointer(path)] = value;
    return changed;
  };
  EXPECT_THAT(ReasonFor(with("/schema", 3)), HasSubstr("schema is 3, expected 2"));
  EXPECT_THAT(ReasonFor(with("/entries/0/points/0/m", 0)), HasSubstr("entries[0].points[0].m is 0, expected a whole number from 1"));
  EXPECT_THAT(ReasonFor(with("/entries/0/points/0/m", -3)), HasSubstr("points[0].m is -3"));
  EXPECT_THAT(ReasonFor(with("/entries/0/points/0/m", 64)), HasSubstr("points[1].m is 64, expected more than 64"));
  EXPECT_THAT(ReasonFor(with("/entries/0/points/0/ns", -1.5)), HasSubstr("points[0].ns is -1.5, expected a number from 0"));
  EXPECT_THAT(ReasonFor(with("/entries/0/points/0/ns", 1e300)), HasSubstr("points[0].ns is 1e+300"));
  EXPECT_THAT(ReasonFor(with("/entries/0/points/0/samples", 0)), HasSubstr("points[0].samples is 0"));
  EXPECT_THAT(ReasonFor(with("/entries/0/points/0/samples", uint64_t{1} << 40)),
              HasSubstr("points[0].samples is 1099511627776"));
  EXPECT_THAT(ReasonFor(with("/entries/0/layer/n", 0)), HasSubstr("entries[0].layer.n is 0"));
  EXPECT_THAT(ReasonFor(with("/entries/1/layer/spec", 7)), HasSubstr("entries[1].layer.spec is 7, expected text"));
  EXPECT_THAT(ReasonFor(with("/entries/1/layer", "no such layer, and a text that is too long to be shown")),
              HasSubstr("entries[1].layer is \"no such layer, and a text that is too l..., expected an object"));
  Json without = whole;
  without["entries"][1]["conditions"].erase("date");
  EXPECT_THAT(ReasonFor(without), HasSubstr("entries[1].conditions.date is missing, expected text"));
}

TEST(TuningJsonTest, WhatIsNoTableIsDamaged) {
  for (const char* text : {"", "{", "[]", "null", "7", "{}", "{\"schema\": 2}",
                           "{\"schema\": 2, \"entries\": {}}", "{\"schema\": 2, \"entries\": [7]}"}) {
    EXPECT_EQ(ReasonOf(ParseTuning(text).status()), "TUNING_DAMAGED") << text;
  }
  const std::string whole = RenderTuning(Entries());
  for (size_t size = 0; size + 2 < whole.size(); size += 7) {
    EXPECT_FALSE(ParseTuning(whole.substr(0, size)).ok()) << size;
  }
}

// A table that ships must parse; whether its kernels are those of this tree is told by the daemon.
TEST(TuningJsonTest, TheTablesThatShipAreWhole) {
  ASSERT_FALSE(BuiltInTunings().empty());
  for (const BuiltInTuning& table : BuiltInTunings()) {
    const auto parsed = ParseTuning(table.text);
    ASSERT_TRUE(parsed.ok()) << table.name << ": " << parsed.status();
    for (const TuningEntry& entry : *parsed) {
      EXPECT_EQ(entry.conditions.kernels.size(), 64u) << table.name;
      EXPECT_FALSE(entry.points.empty()) << table.name;
    }
  }
}

}  // namespace
}  // namespace gemmd
