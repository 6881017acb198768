// RegisterModel over the wire: the plan, every module's end, limits, cancellation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gemmd/v1/model.grpc.pb.h"
#include "server/convert_models.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

constexpr char kQwen[] = "modelopt_fp8_qwen3moe";
constexpr int kQwenModules = 13;

class ModelTest : public DaemonTest {
 protected:
  void SetUp() override {
    StartDaemon({{"checkpoint_roots", std::filesystem::canonical(kCheckpoints)}});
    models_ = v1::ModelService::NewStub(channel_);
  }

  static v1::RegisterModelRequest Of(const std::string& name) {
    v1::RegisterModelRequest request;
    request.set_path(std::filesystem::canonical(kCheckpoints) / name);
    return request;
  }

  grpc::Status Register(const std::string& token, const v1::RegisterModelRequest& request) {
    messages_.clear();
    const auto context = Context(token);
    const auto stream = models_->RegisterModel(context.get(), request);
    v1::RegisterModelProgress message;
    while (stream->Read(&message)) messages_.push_back(message);
    return stream->Finish();
  }

  int HeldLayers(const std::string& token) {
    v1::ListLayersResponse list;
    EXPECT_TRUE(layers_->ListLayers(Context(token).get(), {}, &list).ok());
    return list.layers_size();
  }

  static inline const std::filesystem::path kCheckpoints =
      std::filesystem::path(GEMMD_TEST_DATA) / "checkpoints";
  std::unique_ptr<v1::ModelService::Stub> models_;
  std::vector<v1::RegisterModelProgress> messages_;
};

TEST_F(ModelTest, StreamsThePlanAndTheEndOfEveryModule) {
  const std::string token = OpenBySocket();
  const grpc::Status status = Register(token, Of(kQwen));
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_FALSE(messages_.empty());
  EXPECT_FALSE(messages_.front().has_module());
  EXPECT_EQ(messages_.front().modules_total(), static_cast<uint32_t>(kQwenModules));
  EXPECT_GT(messages_.front().bytes_total(), 0u);
  std::map<std::string, v1::LayerInfo> layers;
  for (const v1::RegisterModelProgress& message : messages_) {
    if (message.module().progress().has_layer()) {
      layers[message.module().module()] = message.module().progress().layer();
    }
  }
  EXPECT_EQ(layers.size(), static_cast<size_t>(kQwenModules));
  EXPECT_EQ(messages_.back().modules_done(), static_cast<uint32_t>(kQwenModules));
  EXPECT_EQ(messages_.back().bytes_done(), messages_.front().bytes_total());
  EXPECT_EQ(HeldLayers(token), kQwenModules);
  // Again, and every layer is the same one.
  ASSERT_TRUE(Register(token, Of(kQwen)).ok());
  for (const v1::RegisterModelProgress& message : messages_) {
    if (!message.module().progress().has_layer()) continue;
    EXPECT_EQ(message.module().progress().layer().layer_id(),
              layers.at(message.module().module()).layer_id());
  }
  EXPECT_EQ(HeldLayers(token), kQwenModules);
}

TEST_F(ModelTest, SaysWhichPartOfAModuleARankHolds) {
  const std::string token = OpenBySocket();
  v1::RegisterModelRequest request = Of(kQwen);
  request.set_fuse(true);
  request.set_name_prefix("tp1 ");
  request.mutable_slice()->mutable_tensor()->set_rank(1);
  request.mutable_slice()->mutable_tensor()->set_size(2);
  request.mutable_slice()->mutable_experts()->mutable_range()->set_end(2);
  const grpc::Status status = Register(token, request);
  ASSERT_TRUE(status.ok()) << status.error_message();
  std::map<std::string, v1::ModuleProgress> modules;
  for (const v1::RegisterModelProgress& message : messages_) {
    if (message.module().progress().has_layer()) {
      modules[message.module().module()] = message.module();
    }
  }
  ASSERT_EQ(modules.size(), 4u);
  const v1::ModuleProgress& stack = modules.at("model.layers.0.mlp.experts.down_proj");
  EXPECT_EQ(stack.slice().columns().rank().rank(), 1u);
  EXPECT_EQ(stack.slice().columns().rank().size(), 2u);
  EXPECT_EQ(stack.slice().experts().range().end(), 2);
  EXPECT_FALSE(stack.slice().has_rows());
  EXPECT_EQ(stack.progress().layer().experts(), 2);
  EXPECT_EQ(stack.progress().layer().name(), "tp1 model.layers.0.mlp.experts.down_proj");
  EXPECT_TRUE(modules.at("model.layers.0.self_attn.qkv_proj").slice().has_rows());
}

TEST_F(ModelTest, ReportsFailuresWhenItKeepsGoing) {
  const std::string token = OpenBySocket();
  v1::RegisterModelRequest request = Of(kQwen);
  request.add_modules("*.q_proj");
  request.add_modules("no.such.module");
  const grpc::Status whole = Register(token, request);
  EXPECT_EQ(whole.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ReasonOf(whole), "MODULE_NOT_FOUND");
  EXPECT_THAT(whole.error_message(), HasSubstr("1 of 2 modules cannot be registered"));
  EXPECT_THAT(whole.error_message(), HasSubstr("no.such.module"));
  EXPECT_EQ(HeldLayers(token), 0);
  request.set_keep_going(true);
  ASSERT_TRUE(Register(token, request).ok());
  EXPECT_EQ(HeldLayers(token), 1);
  int failures = 0;
  for (const v1::RegisterModelProgress& message : messages_) {
    if (!message.module().has_failure()) continue;
    ++failures;
    EXPECT_FALSE(message.module().has_progress());
    EXPECT_EQ(message.module().module(), "no.such.module");
    EXPECT_EQ(message.module().failure().code(), grpc::StatusCode::NOT_FOUND);
    EXPECT_EQ(message.module().failure().reason(), "MODULE_NOT_FOUND");
  }
  EXPECT_EQ(failures, 1);
}

TEST_F(ModelTest, RefusesBadRequests) {
  EXPECT_EQ(ReasonOf(Register("", Of(kQwen))), "NO_SESSION");
  const std::string token = OpenBySocket();
  const auto with = [&](const std::function<void(v1::RegisterModelRequest&)>& change) {
    v1::RegisterModelRequest request = Of(kQwen);
    change(request);
    const grpc::Status status = Register(token, request);
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(messages_.empty());
    return ReasonOf(status);
  };
  EXPECT_EQ(with([](auto& request) { request.clear_path(); }), "MISSING_FIELD");
  EXPECT_EQ(with([](auto& request) { request.set_path(std::string(4097, 'x')); }), "OUT_OF_RANGE");
  EXPECT_EQ(with([](auto& request) { request.set_path("/etc"); }), "PATH_NOT_ALLOWED");
  EXPECT_EQ(with([](auto& request) { request.set_device("cuda:none"); }), "WRONG_DEVICE");
  EXPECT_EQ(with([](auto& request) { request.set_name_prefix(std::string(129, 'x')); }),
            "OUT_OF_RANGE");
  EXPECT_EQ(with([](auto& request) { request.add_modules(std::string(1025, '*')); }),
            "OUT_OF_RANGE");
  EXPECT_EQ(with([](auto& request) {
              for (int i = 0; i < 65; ++i) request.add_exclude("x");
            }),
            "OUT_OF_RANGE");
  EXPECT_EQ(with([](auto& request) { request.mutable_slice()->mutable_tensor()->set_rank(1); }),
            "OUT_OF_RANGE");
  EXPECT_EQ(with([](auto& request) {
              request.mutable_slice()->mutable_experts()->mutable_range()->set_begin(-1);
            }),
            "OUT_OF_RANGE");
  EXPECT_EQ(with([](auto& request) { request.add_modules("*.nothing"); }), "MODULE_NOT_FOUND");
}

// However far it has come when its client leaves, nothing of it stays; or all of it, when it was done.
TEST_F(ModelTest, LeavesNothingWhenItsClientCancels) {
  for (int read = 0; read < 6; ++read) {
    const std::string token = OpenBySocket();
    const auto context = Context(token);
    const auto stream = models_->RegisterModel(context.get(), Of(kQwen));
    v1::RegisterModelProgress message;
    for (int i = 0; i < read; ++i) ASSERT_TRUE(stream->Read(&message));
    context->TryCancel();
    while (stream->Read(&message)) {
    }
    const bool done = stream->Finish().ok();
    int last = -1;
    int same = 0;  // looks, 20 ms apart
    const absl::Time limit = absl::Now() + absl::Seconds(20);
    while (same < 5 && absl::Now() < limit) {
      const int held = HeldLayers(token);
      same = held == last ? same + 1 : 0;
      last = held;
      absl::SleepFor(absl::Milliseconds(20));
    }
    EXPECT_TRUE(last == kQwenModules || (!done && last == 0)) << last << " after " << read;
  }
}

TEST(ConvertModelTest, SlicesKeepWhatTheyAre) {
  SliceRequest slice;
  EXPECT_EQ(ToProto(slice).ByteSizeLong(), 0u);
  slice.rows = {.rank = 1, .size = 4, .range = {}};
  slice.experts.range = {2, 6};
  slice.row_parts = {{.rows = 64, .replicas = 2}};
  const v1::LayerSlice to = ToProto(slice);
  EXPECT_EQ(to.rows().rank().rank(), 1u);
  EXPECT_EQ(to.rows().rank().size(), 4u);
  EXPECT_EQ(to.experts().range().begin(), 2);
  EXPECT_EQ(to.experts().range().end(), 6);
  EXPECT_FALSE(to.has_columns());
  ASSERT_EQ(to.row_parts_size(), 1);
  EXPECT_EQ(to.row_parts(0).replicas(), 2u);
}

}  // namespace
}  // namespace gemmd
