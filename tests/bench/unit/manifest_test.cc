// A manifest must mean to the daemon what the format means to the benchmark.
#include "tests/bench/host/manifest.h"

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "server/convert_kernels.h"
#include "tests/bench/host/bench_format.h"

namespace gemmd::bench {
namespace {

v1::PrewarmRequest Parsed(const std::vector<Problem>& problems) {
  const auto json = RenderManifest(problems);
  EXPECT_TRUE(json.ok()) << json.status();
  v1::PrewarmRequest request;
  const auto parsed = google::protobuf::util::JsonStringToMessage(*json, &request);
  EXPECT_TRUE(parsed.ok()) << parsed.message() << *json;
  return request;
}

TEST(ManifestTest, EveryFormatArrivesAsItIs) {
  for (const std::string& name : FormatNames()) {
    const auto job = FromProto(Parsed({{name, 8192, 4096, {1, 16}}}));
    ASSERT_TRUE(job.ok()) << name << ": " << job.status();
    ASSERT_EQ(job->layers.size(), 1u);
    EXPECT_TRUE(job->layers[0].spec == FindFormat(name)->spec) << name;
    EXPECT_TRUE(job->layers[0].shape == (LayerShape{1, 8192, 4096}));
  }
}

TEST(ManifestTest, ALayerComesOnce) {
  EXPECT_EQ(Parsed({{"w4a16_mxfp4", 8192, 4096, {1}},
                    {"w4a16_mxfp4", 8192, 4096, {16}},
                    {"w4a16_mxfp4", 4096, 8192, {1}}})
                .shapes_size(),
            2);
}

TEST(ManifestTest, UnknownFormatsAreNamed) {
  EXPECT_TRUE(absl::IsNotFound(RenderManifest({{"w9", 1, 1, {1}}}).status()));
}

}  // namespace
}  // namespace gemmd::bench
