#include <gmock/gmock.h>

#include <cstring>
#include <set>

#include "absl/time/clock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/convert.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

using ServicesTest = DaemonTest;
using grpc::StatusCode;

TEST_F(ServicesTest, HelloNeedsNoSessionAndNamesDevicesAndSocket) {
  v1::HelloResponse response;
  ASSERT_TRUE(sessions_->Hello(Context("").get(), {}, &response).ok());
  EXPECT_EQ(response.server_version(), "0.1.0");
  EXPECT_NE(response.boot_id(), 0u);
  ASSERT_EQ(response.devices_size(), 1);
  EXPECT_EQ(response.devices(0).id(), "cpu");
  EXPECT_TRUE(response.devices(0).ready());
  EXPECT_EQ(response.session_socket(), directory_ / "s.sock");
  EXPECT_EQ(response.max_message_bytes(), 4u << 20);
}

TEST_F(ServicesTest, RunsAGemmExactly) {
  const std::string token = OpenBySocket();
  const v1::LayerInfo layer = RegisterLayer(token);
  EXPECT_EQ(layer.state(), "READY");
  EXPECT_EQ(layer.source_format(), "tensors");
  const v1::GemmRequest request = MakeGemm(token, layer.layer_id(), 5);
  v1::GemmResponse response;
  const grpc::Status status = gemms_->Gemm(Context(token).get(), request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.report().device(), "cpu");
  EXPECT_FALSE(response.report().kernel().empty());
  EXPECT_GT(response.report().execute_us(), 0);
  ExpectResult(token, request);
}

TEST_F(ServicesTest, XIsTransformedByHadamardBlocksWhereTheRequestAsksForIt) {
  const std::string token = OpenBySocket();
  const uint64_t layer = RegisterLayer(token).layer_id();
  v1::GemmRequest request = MakeGemm(token, layer, 1);
  const auto run = [&] {
    v1::GemmResponse response;
    const grpc::Status status = gemms_->Gemm(Context(token).get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.report().hadamard_block(), request.options().hadamard_block());
    return Read(token, request.y().region(), request.y().byte_offset(), kN * sizeof(float));
  };
  // A 1 in column 2 becomes the third column of the matrix of 4, halved.
  const auto write = [&](const std::vector<float>& x) {
    Write(token, request.x().region(), 0, std::string(reinterpret_cast<const char*>(x.data()), kK * sizeof(float)));
  };
  write({0, 0, 1, 0, 0, 0, 0, 0});
  request.mutable_options()->set_hadamard_block(4);
  const std::string got = run();
  write({0.5f, 0.5f, -0.5f, -0.5f, 0, 0, 0, 0});
  EXPECT_NE(run(), got);
  request.clear_options();
  EXPECT_EQ(run(), got);
}

TEST_F(ServicesTest, ZeroRowsAreLegal) {
  const std::string token = OpenBySocket();
  const uint64_t layer = RegisterLayer(token).layer_id();
  v1::GemmRequest request = MakeGemm(token, layer, 1);
  request.mutable_x()->set_shape(0, 0);
  request.mutable_y()->set_shape(0, 0);
  v1::GemmResponse response;
  const grpc::Status status = gemms_->Gemm(Context(token).get(), request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ServicesTest, TwoSessionsShareOneCopyOfALayer) {
  const std::string one = OpenBySocket("one"), two = OpenBySocket("two");
  const v1::LayerInfo first = RegisterLayer(one), second = RegisterLayer(two);
  EXPECT_EQ(first.digest(), second.digest());
  EXPECT_EQ(second.references(), 2u);
  v1::GetStatusResponse status;
  ASSERT_TRUE(admin_->GetStatus(Context("").get(), {}, &status).ok());
  EXPECT_EQ(status.layers(), 1u);
  EXPECT_EQ(status.layer_references(), 2u);
  EXPECT_EQ(status.sessions(), 2u);
}

TEST_F(ServicesTest, LayerCallsAnswer) {
  const std::string token = OpenBySocket();
  const uint64_t id = RegisterLayer(token, "down_proj").layer_id();
  v1::GetLayerRequest get;
  v1::GetLayerResponse got;
  get.set_layer_id(id);
  ASSERT_TRUE(layers_->GetLayer(Context(token).get(), get, &got).ok());
  EXPECT_EQ(got.layer().name(), "down_proj");
  EXPECT_EQ(got.layer().spec().weight().bits(), 8u);
  v1::ListLayersResponse list;
  ASSERT_TRUE(layers_->ListLayers(Context(token).get(), {}, &list).ok());
  EXPECT_EQ(list.layers_size(), 1);
  v1::ExplainLayerRequest explain;
  v1::ExplainLayerResponse choices;
  explain.set_layer_id(id);
  ASSERT_TRUE(layers_->ExplainLayer(Context(token).get(), explain, &choices).ok());
  EXPECT_EQ(choices.choices_size(), 4);
  v1::ReleaseLayerRequest release;
  v1::ReleaseLayerResponse released;
  release.set_layer_id(id);
  EXPECT_TRUE(layers_->ReleaseLayer(Context(token).get(), release, &released).ok());
  EXPECT_TRUE(layers_->ReleaseLayer(Context(token).get(), release, &released).ok());
  const grpc::Status gone = layers_->GetLayer(Context(token).get(), get, &got);
  EXPECT_EQ(gone.error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(ReasonOf(gone), "LAYER_NOT_FOUND");
}

TEST_F(ServicesTest, RegionCallsAnswer) {
  const std::string token = OpenBySocket();
  const v1::RegionRef region = RegisterDaemonRegion(token, 100);
  Write(token, region, 10, "hello");
  EXPECT_EQ(Read(token, region, 10, 5), "hello");
  v1::ListRegionsResponse list;
  ASSERT_TRUE(regions_->ListRegions(Context(token).get(), {}, &list).ok());
  ASSERT_EQ(list.regions_size(), 1);
  EXPECT_EQ(list.regions(0).kind(), "daemon");
  v1::UnregisterRegionRequest unregister;
  v1::UnregisterRegionResponse response;
  *unregister.mutable_region() = region;
  EXPECT_TRUE(regions_->UnregisterRegion(Context(token).get(), unregister, &response).ok());
  EXPECT_TRUE(regions_->UnregisterRegion(Context(token).get(), unregister, &response).ok());
}

TEST_F(ServicesTest, AListOfRegionsFitsInOneMessageAndSaysWhenItIsCut) {
  StartDaemon({{"max_regions_per_session", "5000"}});
  const std::string token = OpenBySocket();
  v1::RegisterRegionRequest request;
  v1::RegisterRegionResponse registered;
  request.set_device("cpu");
  request.mutable_daemon_owned()->set_size(1);
  request.set_label(std::string(256, 'l'));
  v1::ListRegionsResponse list;
  for (int i = 0; i < 4096; ++i) {
    ASSERT_TRUE(regions_->RegisterRegion(Context(token).get(), request, &registered).ok());
  }
  ASSERT_TRUE(regions_->ListRegions(Context(token).get(), {}, &list).ok());
  EXPECT_EQ(list.regions_size(), 4096);
  EXPECT_FALSE(list.truncated());
  EXPECT_LT(list.ByteSizeLong(), size_t{4} << 20);
  ASSERT_TRUE(regions_->RegisterRegion(Context(token).get(), request, &registered).ok());
  ASSERT_TRUE(regions_->ListRegions(Context(token).get(), {}, &list).ok());
  EXPECT_EQ(list.regions_size(), 4096);
  EXPECT_TRUE(list.truncated());
}

TEST_F(ServicesTest, AListOfLayersFitsInOneMessageAndSaysWhenItIsCut) {
  constexpr int kListed = 2048;
  const std::string token = OpenBySocket();
  // Every window of these bytes is another layer: no two start with the same number.
  const uint64_t scales = 4 * (kListed + kN * kK / 4 + 1);
  std::string bytes(scales + kN * sizeof(float), '\0');
  for (uint32_t i = 0; i < scales / 4; ++i) std::memcpy(&bytes[4 * i], &i, sizeof i);
  const v1::RegionRef region = RegisterDaemonRegion(token, bytes.size());
  Write(token, region, 0, bytes);
  v1::RegisterLayerRequest request = LayerRequestIn(region);
  request.mutable_tensors()->mutable_scales()->set_byte_offset(scales);
  std::set<uint64_t> ids;
  const auto register_window = [&](int i) {
    request.set_name(std::string(250, 'l') + std::to_string(i));
    request.mutable_tensors()->mutable_codes()->set_byte_offset(4 * i);
    v1::LayerInfo layer;
    const grpc::Status status = TryRegisterLayer(token, request, &layer);
    ids.insert(layer.layer_id());
    return status;
  };
  for (int i = 0; i < kListed; ++i) {
    ASSERT_TRUE(register_window(i).ok()) << i;
  }
  v1::ListLayersResponse list;
  ASSERT_TRUE(layers_->ListLayers(Context(token).get(), {}, &list).ok());
  EXPECT_EQ(list.layers_size(), kListed);
  EXPECT_FALSE(list.truncated());
  EXPECT_LT(list.ByteSizeLong(), size_t{4} << 20);
  ASSERT_TRUE(register_window(kListed).ok());
  ASSERT_TRUE(layers_->ListLayers(Context(token).get(), {}, &list).ok());
  EXPECT_EQ(list.layers_size(), kListed);
  EXPECT_TRUE(list.truncated());
  v1::ListAllLayersResponse all;
  ASSERT_TRUE(admin_->ListAllLayers(Context("").get(), {}, &all).ok());
  EXPECT_EQ(all.layers_size(), kListed);
  EXPECT_TRUE(all.truncated());
  ASSERT_EQ(ids.size(), kListed + 1u);
  for (const v1::LayerInfo& layer : list.layers()) EXPECT_EQ(ids.erase(layer.layer_id()), 1u);
  v1::GetLayerRequest unlisted;
  v1::GetLayerResponse response;
  unlisted.set_layer_id(*ids.begin());
  EXPECT_TRUE(layers_->GetLayer(Context(token).get(), unlisted, &response).ok())
      << "a layer that the list leaves out is there all the same";
}

// 2^26 weights: seconds of a core, in eight pieces; the first message comes before them.
TEST_F(ServicesTest, WhoCancelsWhileALayerIsQuantizedStopsItSoon) {
  StartDaemon();
  const std::string token = OpenBySocket();
  constexpr int64_t kExtent = 8192;
  const v1::RegionRef region = RegisterDaemonRegion(token, kExtent * kExtent * 2);
  v1::RegisterLayerRequest request;
  v1::TensorSource& source = *request.mutable_tensors();
  source.set_n(kExtent);
  source.set_k(kExtent);
  *source.mutable_spec()->mutable_weight() = ToProto(kBFloat16);
  *source.mutable_codes()->mutable_region() = region;
  source.mutable_codes()->set_byte_size(kExtent * kExtent * 2);
  QuantSpec spec{.weight = kFloat4E2M1, .scale = kFloat8E4M3, .scale_block_k = 16};
  spec.secondary_scale = SecondaryScaleKind::kTensor;
  *source.mutable_quantize()->mutable_spec() = ToProto(spec);
  const auto read_until_quantizing = [](grpc::ClientReader<v1::RegisterLayerProgress>& stream) {
    v1::RegisterLayerProgress progress;
    while (stream.Read(&progress) && progress.stage() != v1::RegisterLayerProgress::STAGE_QUANTIZING) {
    }
    EXPECT_EQ(progress.stage(), v1::RegisterLayerProgress::STAGE_QUANTIZING);
    EXPECT_EQ(progress.bytes_total(), uint64_t{kExtent} * kExtent * 2);
    return absl::Now();
  };
  const auto context = Context(token);
  const auto stream = layers_->RegisterLayer(context.get(), request);
  const absl::Time cancelled = read_until_quantizing(*stream);
  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::CANCELLED);
  v1::ListAllLayersResponse all;
  do {
    ASSERT_TRUE(admin_->ListAllLayers(Context("").get(), {}, &all).ok());
  } while (all.layers_size() > 0 && absl::Now() < cancelled + absl::Seconds(20));
  const absl::Duration to_stop = absl::Now() - cancelled;
  EXPECT_EQ(all.layers_size(), 0) << "nobody waits for it: it is given up, and no layer";
  const auto whole_context = Context(token);
  const auto whole = layers_->RegisterLayer(whole_context.get(), request);
  const absl::Time begun = read_until_quantizing(*whole);
  v1::RegisterLayerProgress progress;
  while (whole->Read(&progress)) {
  }
  ASSERT_TRUE(whole->Finish().ok());
  EXPECT_LT(to_stop, (absl::Now() - begun) / 2) << "of the whole work";
}

TEST_F(ServicesTest, ASessionByRpcLivesAsLongAsItsStream) {
  v1::OpenSessionRequest open;
  v1::OpenSessionResponse opened;
  open.set_name("by rpc");
  ASSERT_TRUE(sessions_->OpenSession(Context("").get(), open, &opened).ok());
  EXPECT_EQ(opened.token().size(), 16u);
  const auto context = Context(opened.token());
  const auto stream = sessions_->KeepSession(context.get());
  v1::SessionEvent event;
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.kind(), v1::SessionEvent::KIND_OPEN);
  RegisterDaemonRegion(opened.token(), 16);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  v1::ListRegionsResponse list;
  grpc::Status status;
  for (int i = 0; i < 100 && ReasonOf(status) != "UNKNOWN_SESSION"; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
    status = regions_->ListRegions(Context(opened.token()).get(), {}, &list);
  }
  EXPECT_EQ(ReasonOf(status), "UNKNOWN_SESSION");
}

TEST_F(ServicesTest, StreamsHearOfKernelsForBatchInvariantRequests) {
  v1::OpenSessionRequest open;
  v1::OpenSessionResponse opened;
  ASSERT_TRUE(sessions_->OpenSession(Context("").get(), open, &opened).ok());
  const auto context = Context(opened.token());
  const auto stream = sessions_->KeepSession(context.get());
  v1::SessionEvent event;
  ASSERT_TRUE(stream->Read(&event));
  KernelNotice notice;
  notice.device = "cuda:GPU-1";
  daemon_->OnKernel(notice);  // of a kernel that no batch-invariant request can name: not told
  notice.armed = {{0x1234, "gemm_sm90_x", kBFloat16}};
  daemon_->OnKernel(notice);
  ASSERT_TRUE(daemon_->Tick().ok());
  ASSERT_TRUE(daemon_->Tick().ok());  // told once
  stream->WritesDone();
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.kind(), v1::SessionEvent::KIND_NUMERICS);
  EXPECT_EQ(event.device(), "cuda:GPU-1");
  ASSERT_EQ(event.numerics_size(), 1);
  EXPECT_EQ(event.numerics(0).id(), 0x1234u);
  EXPECT_EQ(event.numerics(0).kernel(), "gemm_sm90_x");
  EXPECT_EQ(event.numerics(0).x().bits(), 16u);
  EXPECT_FALSE(stream->Read(&event));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(ServicesTest, NumericsBelongToBatchInvariantRequestsOfALayerThatHasThem) {
  const std::string token = OpenBySocket();
  const v1::LayerInfo layer = RegisterLayer(token);
  EXPECT_EQ(layer.numerics_size(), 0) << "the CPU device has one way";
  v1::GemmRequest request = MakeGemm(token, layer.layer_id(), 2);
  request.mutable_options()->set_numerics(5);
  v1::GemmResponse response;
  EXPECT_EQ(ReasonOf(gemms_->Gemm(Context(token).get(), request, &response)), "MISSING_FIELD");
  request.mutable_options()->set_batch_invariant(true);
  const grpc::Status refused = gemms_->Gemm(Context(token).get(), request, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ReasonOf(refused), "NUMERICS_NOT_READY");
  request.mutable_options()->set_numerics(0);
  EXPECT_TRUE(gemms_->Gemm(Context(token).get(), request, &response).ok());
}

TEST_F(ServicesTest, ClosingASessionEndsIt) {
  const std::string token = OpenBySocket();
  v1::CloseSessionResponse response;
  EXPECT_TRUE(sessions_->CloseSession(Context(token).get(), {}, &response).ok());
  EXPECT_EQ(ReasonOf(sessions_->CloseSession(Context(token).get(), {}, &response)),
            "UNKNOWN_SESSION");
}

TEST_F(ServicesTest, AnyoneMayLook) {
  v1::GetStatusResponse status;
  v1::ListSessionsResponse sessions;
  v1::ListAllLayersResponse layers;
  v1::GetConfigResponse config;
  v1::GetMetricsResponse metrics;
  RegisterLayer(OpenBySocket("worker 7"));
  ASSERT_TRUE(admin_->GetStatus(Context("").get(), {}, &status).ok());
  EXPECT_EQ(status.pid(), static_cast<uint32_t>(getpid()));
  EXPECT_EQ(status.metrics_address(), daemon_->metrics_address());
  ASSERT_TRUE(admin_->ListSessions(Context("").get(), {}, &sessions).ok());
  ASSERT_EQ(sessions.sessions_size(), 1);
  EXPECT_EQ(sessions.sessions(0).name(), "worker 7");
  EXPECT_EQ(sessions.sessions(0).pid(), static_cast<uint32_t>(getpid()));
  EXPECT_EQ(sessions.sessions(0).uid(), geteuid());
  ASSERT_TRUE(admin_->ListAllLayers(Context("").get(), {}, &layers).ok());
  EXPECT_EQ(layers.layers_size(), 1);
  ASSERT_TRUE(admin_->GetConfig(Context("").get(), {}, &config).ok());
  EXPECT_EQ(config.values(0).name(), "socket");
  EXPECT_EQ(config.values(0).origin(), "flag");
  ASSERT_TRUE(admin_->GetMetrics(Context("").get(), {}, &metrics).ok());
  EXPECT_THAT(metrics.text(), ::testing::HasSubstr("gemmd_layers{device=\"cpu\"} 1"));
}

TEST_F(ServicesTest, HealthIsPerServiceAndPerDevice) {
  const auto health = grpc::health::v1::Health::NewStub(channel_);
  for (const char* service : {"", "gemmd.v1.GemmService", "device/cpu"}) {
    grpc::health::v1::HealthCheckRequest request;
    grpc::health::v1::HealthCheckResponse response;
    request.set_service(service);
    ASSERT_TRUE(health->Check(Context("").get(), request, &response).ok()) << service;
    EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING) << service;
  }
  grpc::health::v1::HealthCheckRequest request;
  grpc::health::v1::HealthCheckResponse response;
  request.set_service("device/cuda:GPU-nowhere");
  EXPECT_EQ(health->Check(Context("").get(), request, &response).error_code(),
            StatusCode::NOT_FOUND);
}

TEST_F(ServicesTest, ADeadlineThatPassedIsNotRun) {
  const std::string token = OpenBySocket();
  const v1::GemmRequest request = MakeGemm(token, RegisterLayer(token).layer_id(), 1);
  v1::GemmResponse response;
  const grpc::Status status =
      gemms_->Gemm(Context(token, -absl::Seconds(1)).get(), request, &response);
  EXPECT_EQ(status.error_code(), StatusCode::DEADLINE_EXCEEDED);
}

}  // namespace
}  // namespace gemmd
