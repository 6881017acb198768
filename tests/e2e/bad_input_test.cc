// What a hostile or broken client sends gets its coded answer, while another client runs on
// undisturbed.
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/link.h"
#include "client/rpc_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"
#include "tests/e2e/environment.h"

namespace gemmd::e2e {
namespace {

using client::FromGrpc;
using client::Link;
using Code = absl::StatusCode;

constexpr int64_t kN = 96, kK = 256;
constexpr uint64_t kRegionBytes = 1 << 20;
constexpr char kCase[] = "gptq_v1_autogptq_b4_g128_sym";
constexpr char kModule[] = "model.layers.0.mlp.down_proj";

// A client of raw stubs.
class RawClient {
 public:
  explicit RawClient(const std::string& socket)
      : link_(*Link::Open({.address = socket, .name = "raw"}, absl::Now() + absl::Seconds(10))) {
    for (const v1::DeviceInfo& device : link_->hello().devices()) {
      if ((device.id() != "cpu") == OnCuda() && device_.empty()) device_ = device.id();
    }
    v1::RegisterRegionRequest request;
    request.mutable_daemon_owned()->set_size(kRegionBytes);
    region_ = *Register(request);
    layer_ = *Load(Checkpoints() + "/" + kCase, kModule);
  }

  const v1::RegionRef& region() const { return region_; }
  uint64_t layer() const { return layer_; }
  const std::string& device() const { return device_; }
  Link& link() { return *link_; }

  absl::StatusOr<v1::RegionRef> Register(v1::RegisterRegionRequest request) {
    if (request.device().empty()) request.set_device(device_);
    grpc::ClientContext context;
    link_->Prepare(context, absl::Now() + absl::Seconds(20));
    v1::RegisterRegionResponse response;
    GEMMD_RETURN_IF_ERROR(
        FromGrpc(link_->stubs().regions->RegisterRegion(&context, request, &response)));
    return response.region();
  }

  absl::StatusOr<uint64_t> Load(const std::string& path, const std::string& module,
                                const std::string& name = "layer") {
    v1::RegisterLayerRequest request;
    request.set_name(name);
    request.mutable_checkpoint()->set_path(path);
    request.mutable_checkpoint()->set_module(module);
    return Load(request);
  }
  absl::StatusOr<uint64_t> Load(v1::RegisterLayerRequest request) {
    if (request.device().empty()) request.set_device(device_);
    grpc::ClientContext context;
    link_->Prepare(context, absl::Now() + absl::Seconds(60));
    auto stream = link_->stubs().layers->RegisterLayer(&context, request);
    v1::RegisterLayerProgress progress;
    uint64_t id = 0;
    while (stream->Read(&progress)) id = progress.layer().layer_id();
    GEMMD_RETURN_IF_ERROR(FromGrpc(stream->Finish()));
    return id;
  }

  v1::GemmRequest Good() const {
    v1::GemmRequest request;
    request.set_layer_id(layer_);
    *request.mutable_x() = Matrix(region_, 0, kK);
    *request.mutable_y() = Matrix(region_, 4096, kN);
    return request;
  }
  absl::Status Gemm(const v1::GemmRequest& request) {
    grpc::ClientContext context;
    link_->Prepare(context, absl::Now() + absl::Seconds(20));
    v1::GemmResponse response;
    return FromGrpc(link_->stubs().gemm->Gemm(&context, request, &response));
  }
  // The good request with one thing changed.
  absl::Status Changed(const std::function<void(v1::GemmRequest&)>& change) {
    v1::GemmRequest request = Good();
    change(request);
    return Gemm(request);
  }

  static v1::TensorRef Matrix(const v1::RegionRef& region, uint64_t offset, int64_t columns,
                              int64_t rows = 1) {
    v1::TensorRef tensor;
    *tensor.mutable_region() = region;
    tensor.set_byte_offset(offset);
    tensor.set_dtype(v1::DATA_TYPE_BFLOAT16);
    tensor.add_shape(rows);
    tensor.add_shape(columns);
    return tensor;
  }

 private:
  std::shared_ptr<Link> link_;
  std::string device_;
  v1::RegionRef region_;
  uint64_t layer_ = 0;
};

// Runs beside a client that must stay right, and checks that the daemon is the same process
// afterwards.
class BadInputTest : public DaemonTest {
 protected:
  BadInputTest() {
    StartDaemon();
    steady_ = StartRole("steady");
    EXPECT_TRUE(steady_->ReadUntil("ready", absl::Seconds(60)));
    raw_ = std::make_unique<RawClient>(socket());
  }
  ~BadInputTest() override {
    EXPECT_TRUE(raw_->Gemm(raw_->Good()).ok()) << "the good request still runs";
    steady_->Signal(SIGTERM);
    EXPECT_EQ(steady_->Wait(absl::Seconds(30)), 0) << steady_->Rest();
    EXPECT_TRUE(daemon_->running());
  }

  static void Expect(const std::string& what, const absl::Status& status, Code code,
                     const std::vector<std::string>& reasons) {
    EXPECT_EQ(status.code(), code) << what << ": " << status << " " << ReasonOf(status);
    EXPECT_THAT(reasons, testing::Contains(ReasonOf(status))) << what << ": " << status;
  }
  // A folder in the test's own root with a copy of one checkpoint.
  std::string CopyCheckpoint(const std::string& name) const {
    const std::string folder = directory_ + "/ckpt/" + name;
    std::filesystem::copy(Checkpoints() + "/" + kCase, folder);
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::filesystem::permissions(entry, std::filesystem::perms::owner_write,
                                   std::filesystem::perm_options::add);
    }
    return folder;
  }

  std::unique_ptr<Process> steady_;
  std::unique_ptr<RawClient> raw_;
};

TEST_F(BadInputTest, RefusesIpcHandlesOfAnyWrongKind) {
  const auto with_handle = [&](size_t bytes) {
    v1::RegisterRegionRequest request;
    std::string handle(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) handle[i] = static_cast<char>(37 * i + 11);
    request.mutable_cuda_ipc()->set_handle(handle);
    request.mutable_cuda_ipc()->set_size(4096);
    request.mutable_cuda_ipc()->set_allocation_size(2 << 20);
    return raw_->Register(request).status();
  };
  for (size_t bytes : {0, 63, 65, 4096}) {
    Expect(absl::StrCat("a handle of ", bytes, " bytes"), with_handle(bytes),
           Code::kInvalidArgument, {"BAD_HANDLE_SIZE"});
  }
  const absl::Status random = with_handle(64);
  EXPECT_THAT(ReasonOf(random), testing::AnyOf("IPC_OPEN_FAILED", "NOT_IPC_CAPABLE")) << random;
}

TEST_F(BadInputTest, RefusesRegionsThatCannotBe) {
  v1::RegisterRegionRequest request;
  request.set_device("cuda:GPU-00000000-0000-0000-0000-000000000000");
  request.mutable_daemon_owned()->set_size(4096);
  EXPECT_FALSE(raw_->Register(request).ok());
  request.clear_device();
  request.mutable_daemon_owned()->set_size(0);
  EXPECT_FALSE(raw_->Register(request).ok());
  request.mutable_daemon_owned()->set_size(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(raw_->Register(request).status().code(), Code::kResourceExhausted);
  request.mutable_passed()->set_ticket(12345);
  Expect("a ticket nobody gave", raw_->Register(request).status(), Code::kNotFound,
         {"TICKET_NOT_FOUND"});
  request.clear_source();
  EXPECT_EQ(raw_->Register(request).status().code(), Code::kInvalidArgument);
}

TEST_F(BadInputTest, RefusesTensorsOutsideTheirRegion) {
  const std::vector<std::string> reason = {"REGION_OUT_OF_BOUNDS"};
  for (uint64_t offset : {kRegionBytes - 2, kRegionBytes, kRegionBytes + 2, ~uint64_t{0} - 1,
                          ~uint64_t{0} - 2 * kK + 1}) {
    Expect(absl::StrCat("offset ", offset),
           raw_->Changed([&](auto& r) { r.mutable_x()->set_byte_offset(offset); }),
           Code::kInvalidArgument, {"REGION_OUT_OF_BOUNDS", "SHAPE_MISMATCH"});
  }
  Expect("more rows than fit", raw_->Changed([&](auto& r) {
    r.mutable_x()->set_shape(0, 1 << 20);
    r.mutable_y()->set_shape(0, 1 << 20);
  }),
         Code::kInvalidArgument, reason);
  Expect("rows times stride past 2^64", raw_->Changed([&](auto& r) {
    r.mutable_x()->set_shape(0, 3);
    r.mutable_y()->set_shape(0, 3);
    r.mutable_x()->set_row_stride(std::numeric_limits<int64_t>::max());
  }),
         Code::kInvalidArgument, {"REGION_OUT_OF_BOUNDS", "SHAPE_MISMATCH"});
}

TEST_F(BadInputTest, RefusesWrongShapesStridesAndTypes) {
  const std::vector<std::string> shape = {"SHAPE_MISMATCH"};
  Expect("another K", raw_->Changed([](auto& r) { r.mutable_x()->set_shape(1, kK + 1); }),
         Code::kInvalidArgument, shape);
  Expect("another N", raw_->Changed([](auto& r) { r.mutable_y()->set_shape(1, kN - 1); }),
         Code::kInvalidArgument, shape);
  Expect("another M of y", raw_->Changed([](auto& r) { r.mutable_y()->set_shape(0, 2); }),
         Code::kInvalidArgument, shape);
  EXPECT_EQ(raw_->Changed([](auto& r) { r.mutable_x()->set_shape(0, -1); }).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(raw_->Changed([](auto& r) { r.mutable_x()->clear_shape(); }).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(raw_->Changed([](auto& r) { r.mutable_x()->add_shape(1); }).code(),
            Code::kInvalidArgument);
  for (int64_t stride : {int64_t{1}, kK - 1, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    EXPECT_EQ(raw_->Changed([&](auto& r) {
                    r.mutable_x()->set_shape(0, 2);
                    r.mutable_y()->set_shape(0, 2);
                    r.mutable_x()->set_row_stride(stride);
                  })
                  .code(),
              Code::kInvalidArgument)
        << stride;
  }
  Expect("INT32 activations",
         raw_->Changed([](auto& r) { r.mutable_x()->set_dtype(v1::DATA_TYPE_INT32); }),
         Code::kUnimplemented, {"UNSUPPORTED_DTYPE"});
  Expect("FP8 output",
         raw_->Changed([](auto& r) { r.mutable_y()->set_dtype(v1::DATA_TYPE_FLOAT8_E4M3); }),
         Code::kUnimplemented, {"UNSUPPORTED_DTYPE"});
  EXPECT_EQ(raw_->Changed([](auto& r) { r.mutable_x()->set_dtype(static_cast<v1::DataType>(99)); })
                .code(),
            Code::kInvalidArgument);
  EXPECT_FALSE(raw_->Changed([](auto& r) { r.mutable_y()->set_byte_offset(0); }).ok())
      << "y over x";
  EXPECT_FALSE(raw_->Changed([](auto& r) { r.mutable_x()->set_byte_offset(1); }).ok())
      << "odd offset";
  EXPECT_FALSE(raw_->Changed([](auto& r) { r.clear_x(); }).ok());
  EXPECT_TRUE(raw_->Changed([](auto& r) {
                    r.mutable_x()->set_shape(0, 0);
                    r.mutable_y()->set_shape(0, 0);
                  })
                  .ok())
      << "M = 0 is legal";
}

TEST_F(BadInputTest, RefusesUnknownForeignAndStaleIds) {
  RawClient other(socket());
  Expect("an unknown region",
         raw_->Changed([](auto& r) { r.mutable_x()->mutable_region()->set_id(77); }),
         Code::kNotFound, {"REGION_NOT_FOUND"});
  Expect("a region of another session",
         raw_->Changed([&](auto& r) { *r.mutable_x()->mutable_region() = other.region(); }),
         Code::kPermissionDenied, {"NOT_OWNER"});
  Expect("another generation", raw_->Changed([&](auto& r) {
    r.mutable_x()->mutable_region()->set_generation(raw_->region().generation() + 1);
  }),
         Code::kAborted, {"STALE_EPOCH"});
  Expect("an unknown layer", raw_->Changed([](auto& r) { r.set_layer_id(78); }), Code::kNotFound,
         {"LAYER_NOT_FOUND"});
  grpc::ClientContext context;
  other.link().Prepare(context, absl::Now() + absl::Seconds(10));
  v1::UnregisterRegionRequest request;
  *request.mutable_region() = raw_->region();
  v1::UnregisterRegionResponse response;
  Expect("unregistering what another owns",
         FromGrpc(other.link().stubs().regions->UnregisterRegion(&context, request, &response)),
         Code::kPermissionDenied, {"NOT_OWNER"});
  grpc::ClientContext without_token;
  v1::GemmResponse unused;
  EXPECT_EQ(FromGrpc(raw_->link().stubs().gemm->Gemm(&without_token, raw_->Good(), &unused)).code(),
            Code::kUnauthenticated);
}

TEST_F(BadInputTest, RefusesCheckpointsOutsideTheRoots) {
  const std::vector<std::string> reason = {"PATH_NOT_ALLOWED"};
  Expect("/etc", raw_->Load("/etc", kModule).status(), Code::kPermissionDenied, reason);
  Expect("dots", raw_->Load(Checkpoints() + "/../..", kModule).status(), Code::kPermissionDenied,
         reason);
  std::filesystem::create_directory(directory_ + "/outside");
  std::filesystem::create_directory_symlink(directory_ + "/outside", directory_ + "/ckpt/link");
  Expect("a link out", raw_->Load(directory_ + "/ckpt/link", kModule).status(),
         Code::kPermissionDenied, reason);
  const std::string folder = CopyCheckpoint("linked_file");
  std::filesystem::copy(folder + "/model.safetensors", directory_ + "/outside/model.safetensors");
  std::filesystem::remove(folder + "/model.safetensors");
  std::filesystem::create_symlink(directory_ + "/outside/model.safetensors",
                                  folder + "/model.safetensors");
  EXPECT_FALSE(raw_->Load(folder, kModule).ok()) << "a file that links out of the roots";
  Expect("nothing there", raw_->Load(directory_ + "/ckpt/none", kModule).status(), Code::kNotFound,
         {"CHECKPOINT_NOT_FOUND"});
  EXPECT_FALSE(raw_->Load("relative/path", kModule).ok());
}

TEST_F(BadInputTest, RefusesDamagedCheckpoints) {
  const std::vector<std::string> bad = {"BAD_CHECKPOINT"};
  Expect("no such module", raw_->Load(Checkpoints() + "/" + kCase, "model.nothing").status(),
         Code::kNotFound, {"MODULE_NOT_FOUND"});
  std::string folder = CopyCheckpoint("truncated");
  const std::string file = "/model.safetensors";
  std::filesystem::resize_file(folder + file, std::filesystem::file_size(folder + file) - 100);
  Expect("truncated data", raw_->Load(folder, kModule).status(), Code::kInvalidArgument, bad);
  std::filesystem::resize_file(folder + file, 5);
  Expect("a file of 5 bytes", raw_->Load(folder, kModule).status(), Code::kInvalidArgument, bad);
  folder = CopyCheckpoint("huge_header");
  {
    std::fstream stream(folder + file, std::ios::in | std::ios::out | std::ios::binary);
    const uint64_t length = uint64_t{1} << 60;
    char bytes[sizeof(length)];
    std::memcpy(bytes, &length, sizeof(length));
    stream.write(bytes, sizeof(bytes));
  }
  Expect("a header of 2^60 bytes", raw_->Load(folder, kModule).status(), Code::kInvalidArgument,
         bad);
  folder = CopyCheckpoint("no_config");
  std::filesystem::remove(folder + "/config.json");
  EXPECT_FALSE(raw_->Load(folder, kModule).ok());
}

TEST_F(BadInputTest, RefusesTensorLayersThatDoNotFit) {
  v1::RegisterLayerRequest request;
  request.set_name("tensors");
  v1::TensorSource* source = request.mutable_tensors();
  source->mutable_spec()->mutable_weight()->set_kind(v1::NUMBER_KIND_INTEGER);
  source->mutable_spec()->mutable_weight()->set_bits(4);
  source->set_n(16);
  source->set_k(64);
  *source->mutable_codes()->mutable_region() = raw_->region();
  source->mutable_codes()->set_byte_size(16 * 64 / 2);
  EXPECT_TRUE(raw_->Load(request).ok());
  const auto changed = [&](const std::function<void(v1::TensorSource*)>& change) {
    v1::RegisterLayerRequest copy = request;
    change(copy.mutable_tensors());
    return raw_->Load(copy).status();
  };
  EXPECT_EQ(changed([](auto* s) { s->mutable_codes()->set_byte_size(1); }).code(),
            Code::kInvalidArgument);
  Expect("codes past the region",
         changed([](auto* s) { s->mutable_codes()->set_byte_offset(kRegionBytes); }),
         Code::kInvalidArgument, {"REGION_OUT_OF_BOUNDS"});
  EXPECT_FALSE(changed([](auto* s) { s->set_n(int64_t{1} << 62); }).ok());
  EXPECT_FALSE(changed([](auto* s) { s->set_k(-1); }).ok());
  EXPECT_FALSE(changed([](auto* s) { s->mutable_spec()->mutable_weight()->set_bits(0); }).ok());
  EXPECT_FALSE(
      changed([](auto* s) { s->mutable_spec()->mutable_weight()->set_bits(4000000000u); }).ok());
}

TEST_F(BadInputTest, RefusesAnotherContentUnderTheSameName) {
  ASSERT_TRUE(raw_->Load(Checkpoints() + "/" + kCase, kModule, "mine").ok());
  Expect("the same name with other content",
         raw_->Load(Checkpoints() + "/awq_gemm_g128", "model.layers.0.self_attn.o_proj", "mine")
             .status(),
         Code::kAlreadyExists, {"LAYER_CONFLICT"});
}

TEST_F(BadInputTest, RefusesMessagesOverTheLimit) {
  grpc::ClientContext context;
  raw_->link().Prepare(context, absl::Now() + absl::Seconds(20));
  v1::WriteRegionRequest request;
  *request.mutable_region() = raw_->region();
  request.set_data(std::string(raw_->link().hello().max_message_bytes() + (1 << 20), 'x'));
  v1::WriteRegionResponse response;
  EXPECT_EQ(
      FromGrpc(raw_->link().stubs().regions->WriteRegion(&context, request, &response)).code(),
      Code::kResourceExhausted);
}

TEST_F(BadInputTest, AnswersEachBadRequestOfAStreamAndGoesOn) {
  grpc::ClientContext context;
  raw_->link().Prepare(context, absl::Now() + absl::Seconds(30));
  auto stream = raw_->link().stubs().gemm->Submit(&context);
  for (uint64_t tag = 1; tag <= 6; ++tag) {
    v1::SubmitRequest request;
    request.set_tag(tag);
    if (tag != 5) *request.mutable_gemm() = raw_->Good();  // 5 holds no request at all
    if (tag % 2 == 0) request.mutable_gemm()->set_layer_id(tag);
    ASSERT_TRUE(stream->Write(request));
  }
  stream->WritesDone();
  v1::SubmitResponse response;
  for (uint64_t tag = 1; tag <= 6; ++tag) {
    ASSERT_TRUE(stream->Read(&response)) << tag;
    EXPECT_EQ(response.tag(), tag);
    if (tag % 2 == 0) {
      EXPECT_EQ(response.reason(), "LAYER_NOT_FOUND");
    } else {
      EXPECT_EQ(response.code() == 0, tag != 5) << tag << " " << response.message();
    }
  }
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
}

}  // namespace
}  // namespace gemmd::e2e
