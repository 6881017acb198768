// Prewarming and the cache through a daemon on the CPU device: no GPU, no driver.
#include <gmock/gmock.h>

#include <filesystem>
#include <thread>

#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "kernels/jit/nvrtc.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class KernelAdminTest : public DaemonTest {
 protected:
  void SetUp() override {
    if (const auto nvrtc = jit::LoadNvrtc(); !nvrtc.ok()) GTEST_SKIP() << nvrtc.status();
    DaemonTest::SetUp();
  }
  static v1::PrewarmRequest SmallRequest() {
    v1::PrewarmRequest request;
    request.set_architecture("sm_80");
    v1::PrewarmLayer* layer = request.add_shapes();
    layer->mutable_spec()->mutable_weight()->set_kind(v1::NUMBER_KIND_INTEGER);
    layer->mutable_spec()->mutable_weight()->set_bits(8);
    layer->set_experts(4);
    layer->set_n(64);
    layer->set_k(64);
    layer->set_has_input_scale(true);
    layer->set_declares_activations(true);
    return request;
  }
  grpc::Status Prewarm(const std::string& token, const v1::PrewarmRequest& request,
                       std::vector<v1::PrewarmProgress>* messages) {
    const auto context = Context(token, absl::Seconds(120));
    const auto reader = admin_->Prewarm(context.get(), request);
    v1::PrewarmProgress message;
    while (reader->Read(&message)) messages->push_back(message);
    return reader->Finish();
  }
  v1::ListCacheResponse List() {
    v1::ListCacheResponse response;
    const grpc::Status status = admin_->ListCache(Context("").get(), {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
};

TEST_F(KernelAdminTest, PrewarmStreamsItsLayersThenEveryKernel) {
  const std::string token = OpenBySocket();
  std::vector<v1::PrewarmProgress> messages;
  grpc::Status status = Prewarm(token, SmallRequest(), &messages);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_GT(messages.size(), 1u);
  EXPECT_EQ(messages[0].layers_size(), 1);
  EXPECT_TRUE(messages[0].layers(0).has_input_scale());
  EXPECT_TRUE(messages[0].layers(0).declares_activations());
  EXPECT_EQ(messages[0].layers(0).spec().weight().bits(), 8u);
  EXPECT_EQ(messages[0].architectures(0), "sm_80");
  for (size_t i = 1; i < messages.size(); ++i) {
    EXPECT_EQ(messages[i].done(), i);
    EXPECT_EQ(messages[i].total(), messages.size() - 1);
    EXPECT_EQ(messages[i].outcome(), v1::PREWARM_OUTCOME_COMPILED) << messages[i].message();
    EXPECT_GT(messages[i].seconds(), 0);
  }
  EXPECT_EQ(List().matching(), messages.size() - 1);

  std::vector<v1::PrewarmProgress> again;
  status = Prewarm(token, SmallRequest(), &again);
  ASSERT_TRUE(status.ok());
  for (size_t i = 1; i < again.size(); ++i) {
    EXPECT_EQ(again[i].outcome(), v1::PREWARM_OUTCOME_CACHED);
  }
}

TEST_F(KernelAdminTest, PrewarmThatDoesNotReachTheDirectoryEndsWithAnError) {
  const std::string token = OpenBySocket();
  std::filesystem::remove_all(directory_ / "cache");
  std::vector<v1::PrewarmProgress> messages;
  const grpc::Status status = Prewarm(token, SmallRequest(), &messages);
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(status), "CACHE_WRITE");
  ASSERT_GT(messages.size(), 1u);
  EXPECT_EQ(messages.back().done(), messages.back().total()) << "all were tried";
  for (size_t i = 1; i < messages.size(); ++i) {
    EXPECT_EQ(messages[i].outcome(), v1::PREWARM_OUTCOME_NOT_STORED);
    EXPECT_THAT(messages[i].message(), HasSubstr("No such file"));
  }
}

TEST_F(KernelAdminTest, PrewarmEndsWithTheDaemonAndSaysWhy) {
  const std::string token = OpenBySocket();
  const auto context = Context(token, absl::Seconds(120));
  const auto reader = admin_->Prewarm(context.get(), SmallRequest());
  v1::PrewarmProgress message;
  ASSERT_TRUE(reader->Read(&message));
  std::thread stopper([this] { daemon_->Stop(absl::Now() + absl::Seconds(10)); });
  while (reader->Read(&message)) {
    EXPECT_EQ(message.outcome(), v1::PREWARM_OUTCOME_COMPILED) << message.message();
  }
  const grpc::Status status = reader->Finish();
  stopper.join();
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(status), "DRAINING") << status.error_message();
}

TEST_F(KernelAdminTest, PrewarmOfRunningLayersTakesThem) {
  const std::string token = OpenBySocket();
  RegisterLayer(token);
  v1::PrewarmRequest request;
  request.set_architecture("sm_75");  // no kernel today: quick
  request.set_running_layers(true);
  std::vector<v1::PrewarmProgress> messages;
  ASSERT_TRUE(Prewarm(token, request, &messages).ok());
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].layers(0).n(), kN);
  EXPECT_EQ(messages[1].outcome(), v1::PREWARM_OUTCOME_NO_KERNEL);
  EXPECT_THAT(messages[1].message(), HasSubstr("sm_75"));
}

TEST_F(KernelAdminTest, PrewarmNamesWhatIsMissingOrWrong) {
  const std::string token = OpenBySocket();
  std::vector<v1::PrewarmProgress> messages;
  EXPECT_EQ(ReasonOf(Prewarm(token, {}, &messages)), "MISSING_FIELD");
  v1::PrewarmRequest request = SmallRequest();
  request.clear_architecture();
  EXPECT_EQ(ReasonOf(Prewarm(token, request, &messages)), "NO_ARCHITECTURE");
  request.set_architecture("sm_9");
  EXPECT_EQ(ReasonOf(Prewarm(token, request, &messages)), "BAD_ARCHITECTURE");
  request.set_architecture("sm_90");
  const grpc::Status for_nobody = Prewarm(token, request, &messages);
  EXPECT_EQ(ReasonOf(for_nobody), "BAD_ARCHITECTURE");
  EXPECT_THAT(for_nobody.error_message(), HasSubstr("did you mean sm_90a?"));
  v1::PrewarmRequest no_layer;
  no_layer.set_running_layers(true);
  no_layer.set_architecture("sm_91");
  EXPECT_EQ(ReasonOf(Prewarm(token, no_layer, &messages)), "BAD_ARCHITECTURE");
  request = SmallRequest();
  request.add_layers()->set_path("/etc");
  EXPECT_EQ(ReasonOf(Prewarm(token, request, &messages)), "PATH_NOT_ALLOWED");
  request = SmallRequest();
  request.mutable_shapes(0)->set_n(0);
  EXPECT_EQ(ReasonOf(Prewarm(token, request, &messages)), "OUT_OF_RANGE");
  request = SmallRequest();
  *request.add_shapes() = request.shapes(0);
  request.mutable_shapes(1)->mutable_spec()->mutable_weight()->set_bits(77);
  const grpc::Status of_spec = Prewarm(token, request, &messages);
  EXPECT_EQ(ReasonOf(of_spec), "OUT_OF_RANGE");
  EXPECT_THAT(of_spec.error_message(), StartsWith("shapes[1]: ")) << "which of many";
  request = SmallRequest();
  request.add_rows()->set_first(-1);
  EXPECT_EQ(ReasonOf(Prewarm(token, request, &messages)), "OUT_OF_RANGE");
  request.mutable_rows(0)->set_first(9);
  request.mutable_rows(0)->set_last(8);
  EXPECT_EQ(ReasonOf(Prewarm(token, request, &messages)), "OUT_OF_RANGE");
}

TEST_F(KernelAdminTest, ChangingCallsNeedAnOperatorListingDoesNot) {
  std::vector<v1::PrewarmProgress> messages;
  EXPECT_EQ(ReasonOf(Prewarm("", SmallRequest(), &messages)), "NO_SESSION");
  v1::VerifyCacheResponse verified;
  EXPECT_EQ(ReasonOf(admin_->VerifyCache(Context("").get(), {}, &verified)), "NO_SESSION");
  v1::PurgeCacheResponse purged;
  EXPECT_EQ(ReasonOf(admin_->PurgeCache(Context("").get(), {}, &purged)), "NO_SESSION");
  v1::ImportCacheResponse imported;
  const auto context = Context("");
  const auto writer = admin_->ImportCache(context.get(), &imported);
  writer->WritesDone();
  EXPECT_EQ(ReasonOf(writer->Finish()), "NO_SESSION");
  EXPECT_EQ(List().matching(), 0u);
}

TEST_F(KernelAdminTest, AnImportOfSomethingElseEndsAtItsFirstBytes) {
  constexpr int kChunks = 256;
  const std::string token = OpenBySocket();
  const auto context = Context(token);
  v1::ImportCacheResponse imported;
  const auto writer = admin_->ImportCache(context.get(), &imported);
  v1::CacheChunk chunk;
  chunk.set_data(std::string(1 << 20, '\0'));
  int written = 0;
  while (written < kChunks && writer->Write(chunk)) ++written;
  EXPECT_LT(written, kChunks) << "the daemon went on reading";
  writer->WritesDone();
  EXPECT_EQ(ReasonOf(writer->Finish()), "BUNDLE_DAMAGED");
}

TEST_F(KernelAdminTest, ExportedBundleComesBackAfterAPurge) {
  const std::string token = OpenBySocket();
  std::vector<v1::PrewarmProgress> messages;
  ASSERT_TRUE(Prewarm(token, SmallRequest(), &messages).ok());
  const uint64_t kernels = List().matching();
  std::string bundle;
  {
    const auto context = Context(token);
    const auto reader = admin_->ExportCache(context.get(), {});
    v1::CacheChunk chunk;
    while (reader->Read(&chunk)) bundle += chunk.data();
    ASSERT_TRUE(reader->Finish().ok());
  }
  v1::PurgeCacheRequest purge;
  v1::PurgeCacheResponse purged;
  EXPECT_EQ(ReasonOf(admin_->PurgeCache(Context(token).get(), purge, &purged)), "MISSING_FIELD");
  purge.set_everything(true);
  ASSERT_TRUE(admin_->PurgeCache(Context(token).get(), purge, &purged).ok());
  EXPECT_EQ(purged.entries(), kernels);
  EXPECT_EQ(List().matching(), 0u);

  const auto import = [&](const std::string& bytes, v1::ImportCacheResponse* response) {
    const auto context = Context(token);
    const auto writer = admin_->ImportCache(context.get(), response);
    for (size_t at = 0; at < bytes.size(); at += 10000) {
      v1::CacheChunk chunk;
      chunk.set_data(bytes.substr(at, 10000));
      writer->Write(chunk);
    }
    writer->WritesDone();
    return writer->Finish();
  };
  v1::ImportCacheResponse imported;
  EXPECT_EQ(ReasonOf(import(bundle.substr(0, bundle.size() - 1), &imported)), "BUNDLE_DAMAGED");
  EXPECT_EQ(List().matching(), 0u);
  ASSERT_TRUE(import(bundle, &imported).ok());
  EXPECT_EQ(imported.imported(), kernels);
  EXPECT_EQ(List().matching(), kernels);
  v1::VerifyCacheResponse verified;
  ASSERT_TRUE(admin_->VerifyCache(Context(token).get(), {}, &verified).ok());
  EXPECT_EQ(verified.checked(), kernels);
  EXPECT_EQ(verified.dropped_size(), 0);
}

}  // namespace
}  // namespace gemmd
