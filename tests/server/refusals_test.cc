// What the services refuse, with which code and reason; the daemon lives on.
#include <gmock/gmock.h>

#include "gemmd/v1/attach.grpc.pb.h"
#include "gemmd/v1/program.grpc.pb.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

using RefusalsTest = DaemonTest;
using grpc::StatusCode;

TEST_F(RefusalsTest, CallsWithoutATokenAreUnauthenticated) {
  v1::ListRegionsResponse list;
  const grpc::Status missing = regions_->ListRegions(Context("").get(), {}, &list);
  EXPECT_EQ(missing.error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ReasonOf(missing), "NO_SESSION");
  const grpc::Status unknown = regions_->ListRegions(Context("0123456789abcdef").get(), {}, &list);
  EXPECT_EQ(unknown.error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ReasonOf(unknown), "UNKNOWN_SESSION");
  EXPECT_THAT(unknown.error_message(), ::testing::Not(::testing::HasSubstr("0123456789abcdef")));
  v1::GemmResponse gemm;
  EXPECT_EQ(ReasonOf(gemms_->Gemm(Context("").get(), {}, &gemm)), "NO_SESSION");
  v1::LayerInfo layer;
  EXPECT_EQ(ReasonOf(TryRegisterLayer("", {}, &layer)), "NO_SESSION");
  const auto context = Context("");
  const auto stream = gemms_->Submit(context.get());
  EXPECT_EQ(ReasonOf(stream->Finish()), "NO_SESSION");
}

TEST_F(RefusalsTest, HandlesOfAnyWrongLengthAreRefusedAndTheDaemonLives) {
  const std::string token = OpenBySocket();
  for (const size_t length : {0, 63, 65}) {
    v1::RegisterRegionRequest request;
    v1::RegisterRegionResponse response;
    request.set_device("cpu");
    request.mutable_cuda_ipc()->set_handle(std::string(length, 'x'));
    request.mutable_cuda_ipc()->set_size(16);
    request.mutable_cuda_ipc()->set_allocation_size(16);
    const grpc::Status status = regions_->RegisterRegion(Context(token).get(), request, &response);
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << length;
    EXPECT_EQ(ReasonOf(status), "BAD_HANDLE_SIZE") << length;
  }
  RegisterDaemonRegion(token, 16);
}

TEST_F(RefusalsTest, LabelsHaveALimit) {
  const std::string token = OpenBySocket();
  v1::RegisterRegionRequest region;
  v1::RegisterRegionResponse registered;
  region.set_device("cpu");
  region.mutable_daemon_owned()->set_size(16);
  region.set_label(std::string(256, 'l'));
  EXPECT_TRUE(regions_->RegisterRegion(Context(token).get(), region, &registered).ok());
  region.set_label(std::string(257, 'l'));
  EXPECT_EQ(ReasonOf(regions_->RegisterRegion(Context(token).get(), region, &registered)),
            "OUT_OF_RANGE");
  v1::LayerInfo layer;
  v1::RegisterLayerRequest request = LayerRequestIn(RegisterDaemonRegion(token, 64));
  request.set_name(std::string(257, 'n'));
  EXPECT_EQ(ReasonOf(TryRegisterLayer(token, request, &layer)), "OUT_OF_RANGE");
  request.set_name("");
  request.mutable_checkpoint()->set_path("/a");
  request.mutable_checkpoint()->set_module(std::string(1025, 'm'));
  const grpc::Status status = TryRegisterLayer(token, request, &layer);
  EXPECT_EQ(ReasonOf(status), "OUT_OF_RANGE");
  EXPECT_LT(status.error_message().size(), 200u);
  request.mutable_checkpoint()->set_module("m");
  request.mutable_checkpoint()->set_path("/" + std::string(4096, 'p'));
  EXPECT_EQ(ReasonOf(TryRegisterLayer(token, request, &layer)), "OUT_OF_RANGE");
}

TEST_F(RefusalsTest, LayersBeyondTheSessionsLimitAreRefused) {
  StartDaemon({{"max_layers_per_session", "1"}});
  const std::string token = OpenBySocket();
  RegisterLayer(token);
  const v1::RegionRef region = RegisterDaemonRegion(token, 64);  // zeros: another content
  v1::RegisterLayerRequest request = LayerRequestIn(region);
  request.set_name("second");
  v1::LayerInfo layer;
  const grpc::Status status = TryRegisterLayer(token, request, &layer);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(status), "QUOTA");
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("1 layers"));
}

TEST_F(RefusalsTest, ReferencesWithoutARegionNameTheField) {
  const std::string token = OpenBySocket();
  v1::UnregisterRegionResponse unregistered;
  grpc::Status status = regions_->UnregisterRegion(Context(token).get(), {}, &unregistered);
  EXPECT_EQ(ReasonOf(status), "MISSING_FIELD");
  v1::RegisterLayerRequest request = LayerRequestIn(RegisterDaemonRegion(token, 64));
  request.mutable_tensors()->mutable_codes()->clear_region();
  v1::LayerInfo layer;
  status = TryRegisterLayer(token, request, &layer);
  EXPECT_EQ(ReasonOf(status), "MISSING_FIELD");
  EXPECT_EQ(status.error_message(), "codes.region is not set");
  v1::RegisterRegionRequest ipc;
  v1::RegisterRegionResponse registered;
  ipc.mutable_cuda_ipc()->set_handle(std::string(64, 'x'));
  ipc.mutable_cuda_ipc()->set_size(16);
  ipc.set_device("cuda:none");
  status = regions_->RegisterRegion(Context(token).get(), ipc, &registered);
  EXPECT_EQ(ReasonOf(status), "WRONG_DEVICE");
  ipc.set_device("cpu");
  status = regions_->RegisterRegion(Context(token).get(), ipc, &registered);
  EXPECT_EQ(ReasonOf(status), "MISSING_FIELD");
  EXPECT_EQ(status.error_message(), "cuda_ipc.allocation_size is not set");
}

TEST_F(RefusalsTest, AMessageOverTheLimitIsRefusedAndTheDaemonLives) {
  const std::string token = OpenBySocket();
  const v1::RegionRef region = RegisterDaemonRegion(token, 8 << 20);
  v1::WriteRegionRequest request;
  v1::WriteRegionResponse response;
  *request.mutable_region() = region;
  request.set_data(std::string((4 << 20) + 1, 'x'));
  const grpc::Status status = regions_->WriteRegion(Context(token).get(), request, &response);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  Write(token, region, 0, std::string(kMaxPayloadBytes, 'y'));
  EXPECT_EQ(Read(token, region, 0, kMaxPayloadBytes), std::string(kMaxPayloadBytes, 'y'));
  v1::ReadRegionRequest read;
  v1::ReadRegionResponse data;
  *read.mutable_region() = region;
  read.set_size(kMaxPayloadBytes + 1);
  EXPECT_EQ(ReasonOf(regions_->ReadRegion(Context(token).get(), read, &data)), "OUT_OF_RANGE");
}

struct BadGemm {
  const char* name;
  void (*spoil)(v1::GemmRequest&);
  StatusCode code;
  const char* reason;
};

TEST_F(RefusalsTest, BadGemmRequestsGetTheirReason) {
  const std::string token = OpenBySocket();
  const uint64_t layer = RegisterLayer(token).layer_id();
  const v1::GemmRequest good = MakeGemm(token, layer, 2);
  const BadGemm cases[] = {
      {"no x", [](auto& r) { r.clear_x(); }, StatusCode::INVALID_ARGUMENT, "MISSING_FIELD"},
      {"no region", [](auto& r) { r.mutable_y()->clear_region(); }, StatusCode::INVALID_ARGUMENT,
       "MISSING_FIELD"},
      {"unknown dtype", [](auto& r) { r.mutable_x()->set_dtype(static_cast<v1::DataType>(77)); },
       StatusCode::INVALID_ARGUMENT, "UNKNOWN_ENUM"},
      {"no dtype", [](auto& r) { r.mutable_x()->clear_dtype(); }, StatusCode::INVALID_ARGUMENT,
       "MISSING_FIELD"},
      {"three dimensions", [](auto& r) { r.mutable_x()->add_shape(1); },
       StatusCode::INVALID_ARGUMENT, "SHAPE_MISMATCH"},
      {"negative rows", [](auto& r) { r.mutable_x()->set_shape(0, -1); },
       StatusCode::INVALID_ARGUMENT, "SHAPE_MISMATCH"},
      {"wrong K", [](auto& r) { r.mutable_x()->set_shape(1, kK - 1); },
       StatusCode::INVALID_ARGUMENT, "SHAPE_MISMATCH"},
      {"past the region", [](auto& r) { r.mutable_y()->set_byte_offset(1 << 20); },
       StatusCode::INVALID_ARGUMENT, "REGION_OUT_OF_BOUNDS"},
      {"offset that wraps", [](auto& r) { r.mutable_y()->set_byte_offset(~uint64_t{0} - 3); },
       StatusCode::INVALID_ARGUMENT, "REGION_OUT_OF_BOUNDS"},
      {"unknown layer", [](auto& r) { r.set_layer_id(12345); }, StatusCode::NOT_FOUND,
       "LAYER_NOT_FOUND"},
      {"unknown region", [](auto& r) { r.mutable_x()->mutable_region()->set_id(999); },
       StatusCode::NOT_FOUND, "REGION_NOT_FOUND"},
      {"Hadamard block", [](auto& r) { r.mutable_options()->set_hadamard_block(48); },
       StatusCode::INVALID_ARGUMENT, "OUT_OF_RANGE"},
  };
  for (const BadGemm& bad : cases) {
    v1::GemmRequest request = good;
    bad.spoil(request);
    v1::GemmResponse response;
    const grpc::Status status = gemms_->Gemm(Context(token).get(), request, &response);
    EXPECT_EQ(status.error_code(), bad.code) << bad.name << ": " << status.error_message();
    EXPECT_EQ(ReasonOf(status), bad.reason) << bad.name << ": " << status.error_message();
    EXPECT_FALSE(status.error_message().empty()) << bad.name;
    if (request.options().hadamard_block() != 0) {
      EXPECT_THAT(status.error_message(), ::testing::HasSubstr("for K = 8: 2, 4, 8"));
    }
  }
  v1::GemmResponse response;
  EXPECT_TRUE(gemms_->Gemm(Context(token).get(), good, &response).ok());
  v1::GemmRequest permits = good;
  permits.mutable_options()->set_fp16_accumulation(true);
  v1::GemmResponse same;  // this device has no sums of float16
  EXPECT_TRUE(gemms_->Gemm(Context(token).get(), permits, &same).ok());
  EXPECT_EQ(same.report().kernel(), response.report().kernel());
}

TEST_F(RefusalsTest, BadLayersAreRefused) {
  const std::string token = OpenBySocket();
  const v1::RegionRef region = RegisterDaemonRegion(token, 1024);
  v1::LayerInfo layer;
  EXPECT_EQ(ReasonOf(TryRegisterLayer(token, {}, &layer)), "MISSING_FIELD");
  v1::RegisterLayerRequest request = LayerRequestIn(region);
  request.mutable_tensors()->mutable_spec()->mutable_weight()->set_kind(
      static_cast<v1::NumberKind>(9));
  EXPECT_EQ(ReasonOf(TryRegisterLayer(token, request, &layer)), "UNKNOWN_ENUM");
  request = LayerRequestIn(region);
  request.set_device("cuda:GPU-nowhere");
  EXPECT_EQ(TryRegisterLayer(token, request, &layer).error_code(), StatusCode::FAILED_PRECONDITION);
  request = LayerRequestIn(region);
  request.mutable_tensors()->mutable_codes()->set_byte_size(7);
  EXPECT_EQ(TryRegisterLayer(token, request, &layer).error_code(), StatusCode::INVALID_ARGUMENT);
  request.Clear();
  request.mutable_checkpoint()->set_path("/etc");
  request.mutable_checkpoint()->set_module("x");
  const grpc::Status outside = TryRegisterLayer(token, request, &layer);
  EXPECT_EQ(ReasonOf(outside), "PATH_NOT_ALLOWED") << outside.error_message();
}

TEST_F(RefusalsTest, AnotherSessionsRegionCannotBeUsed) {
  const std::string one = OpenBySocket("one"), two = OpenBySocket("two");
  const uint64_t layer = RegisterLayer(two).layer_id();
  const v1::GemmRequest foreign = MakeGemm(one, layer, 2);
  v1::GemmResponse response;
  const grpc::Status status = gemms_->Gemm(Context(two).get(), foreign, &response);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(ReasonOf(status), ::testing::AnyOf("REGION_NOT_FOUND", "NOT_OWNER"));
}

TEST_F(RefusalsTest, ALongSessionNameIsRefused) {
  v1::OpenSessionRequest open;
  v1::OpenSessionResponse opened;
  open.set_name(std::string(257, 'n'));
  EXPECT_EQ(ReasonOf(sessions_->OpenSession(Context("").get(), open, &opened)), "OUT_OF_RANGE");
}

TEST_F(RefusalsTest, ProgramsAndAttachedModeSayThatTheyAreNotBuilt) {
  v1::RunProgramResponse program;
  v1::AttachLayerResponse attach;
  const auto programs = v1::ProgramService::NewStub(channel_);
  const auto attaches = v1::AttachService::NewStub(channel_);
  const grpc::Status status = programs->RunProgram(Context("").get(), {}, &program);
  EXPECT_EQ(status.error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(ReasonOf(status), "NOT_IMPLEMENTED");
  EXPECT_EQ(ReasonOf(attaches->AttachLayer(Context("").get(), {}, &attach)), "NOT_IMPLEMENTED");
}

TEST_F(RefusalsTest, OnlyOperatorsOfTheSessionSocketChangeThings) {
  v1::SetLogLevelRequest request;
  v1::SetLogLevelResponse response;
  v1::DrainResponse drained;
  request.set_level("error");
  EXPECT_EQ(ReasonOf(admin_->SetLogLevel(Context("").get(), request, &response)), "NO_SESSION");
  v1::OpenSessionResponse by_rpc;
  ASSERT_TRUE(sessions_->OpenSession(Context("").get(), {}, &by_rpc).ok());
  EXPECT_EQ(ReasonOf(admin_->Drain(Context(by_rpc.token()).get(), {}, &drained)), "ROLE_REQUIRED");
  const std::string token = OpenBySocket();
  EXPECT_TRUE(admin_->SetLogLevel(Context(token).get(), request, &response).ok());
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kError);
  request.set_level("loud");
  EXPECT_EQ(ReasonOf(admin_->SetLogLevel(Context(token).get(), request, &response)),
            "OUT_OF_RANGE");
  EXPECT_TRUE(admin_->Drain(Context(token).get(), {}, &drained).ok());
  EXPECT_EQ(drains_, 1);
}

}  // namespace
}  // namespace gemmd
