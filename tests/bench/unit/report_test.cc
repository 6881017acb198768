#include "tests/bench/host/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace gemmd::bench {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Row MeasuredRow() {
  Row row;
  row.implementation = "gemmd";
  row.format = "w4a16_int4_g128";
  row.n = 1000;
  row.k = 500;
  row.m = 2;
  row.kernel = "gemm_x";
  row.config = {{"kBlockM", "64"}};
  row.device_kernels = {"gemmd::device::Gemm"};
  row.kernel_us = Summarize({10, 10, 10.0004});
  row.weight_bytes = 90000;
  row.activation_bytes = 10000;
  return row;
}

Conditions OfTheTest() {
  Conditions conditions;
  conditions.device = "GPU of the test";
  conditions.driver = "1.2";
  conditions.commit = "abc";
  conditions.flush_bytes = 512 << 20;
  return conditions;
}

TEST(ReportTest, RendersValidJsonWithOneLinePerRow) {
  const std::string text = RenderReport(OfTheTest(), {MeasuredRow(), MeasuredRow()}, {"a: why"});
  const Json json = Json::parse(text);
  EXPECT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["missing"], Json({"a: why"}));
  EXPECT_EQ(json["conditions"]["device"], "GPU of the test");
  EXPECT_THAT(json["conditions"]["l2"].get<std::string>(), HasSubstr("536870912 bytes"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 8);
}

TEST(ReportTest, EveryRowNamesDeviceDriverAndCommit) {
  const Json row = ToJson(MeasuredRow(), OfTheTest());
  EXPECT_EQ(row["device"], "GPU of the test");
  EXPECT_EQ(row["driver"], "1.2");
  EXPECT_EQ(row["commit"], "abc");
}

TEST(ReportTest, DerivesRatesFromTheMedian) {
  const Json row = ToJson(MeasuredRow(), OfTheTest());
  EXPECT_DOUBLE_EQ(row["gb_per_s"], 10.0);  // 100,000 bytes in 10 us
  EXPECT_DOUBLE_EQ(row["tflops"], 0.2);     // 2e6 operations in 10 us
  EXPECT_EQ(row["kernel_us"]["median"], 10.0);
  EXPECT_EQ(row["kernel_us"]["samples"], 3);
}

TEST(ReportTest, WhatWasNotMeasuredIsNullAndNotZero) {
  const Json row = ToJson(MeasuredRow(), OfTheTest());
  EXPECT_TRUE(row["graph_us"].is_null());
  EXPECT_TRUE(row["check"].is_null());
}

TEST(ReportTest, ANanErrorStaysReadable) {
  Row row = MeasuredRow();
  row.check.elements = 4;
  row.check.error = std::numeric_limits<double>::quiet_NaN();
  const Json json = Json::parse(RenderReport(OfTheTest(), {row}, {}));
  EXPECT_EQ(json["rows"][0]["check"]["relative_error"], "not a number");
  EXPECT_EQ(json["rows"][0]["check"]["passed"], false);
}

TEST(ReportTest, TheTerminalLineSaysWhenAResultIsWrong) {
  Row row = MeasuredRow();
  row.check.elements = 4;
  EXPECT_THAT(Describe(row), HasSubstr("WRONG"));
  row.check.passed = true;
  EXPECT_THAT(Describe(row), HasSubstr("right"));
}

}  // namespace
}  // namespace gemmd::bench
