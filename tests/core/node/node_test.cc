// What clients may and may not do. Ends and faults: node_end_test.cc; many threads: node_stress_test.cc.
#include "core/node.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/core/node/node_fixture.h"

namespace gemmd {
namespace {

TEST_F(NodeTest, RunsARequestAndReportsIt) {
  Create();
  Client client(*node);
  client.Prepare();
  const auto result = client.Start(client.Request(3))->Wait();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->device, "cuda:fake");
  EXPECT_EQ(result->report.kernel, "fake");
  EXPECT_EQ(node->Status().requests_total, 1u);
  EXPECT_EQ(node->ListSessions().at(0).requests, 1u);
}

TEST_F(NodeTest, BatchInvariantRequestsGetTheNumericsThatTheyName) {
  Create();
  {
    MutexLock lock(state->mutex);
    state->numerics = {{11, "generic", kNoFormat}};
  }
  Client client(*node);
  client.Prepare();
  GemmRequest request = client.Request();
  request.batch_invariant = true;
  EXPECT_EQ(client.Start(request)->Wait()->report.numerics, 11u);
  request.numerics = 22;
  const int runs = state->runs;
  const absl::Status refused = client.Gemm(request);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(refused), "NUMERICS_NOT_READY");
  EXPECT_EQ(state->runs, runs) << "refused before it is queued";
  {
    MutexLock lock(state->mutex);
    state->numerics.push_back({22, "specialised", kFloat16});
  }
  EXPECT_EQ(client.Start(request)->Wait()->report.numerics, 22u);
  request.numerics = 0;
  EXPECT_EQ(client.Start(request)->Wait()->report.numerics, 11u) << "the others do not change";
  const LayerInfo info = *node->GetLayer(*client.session(), client.layer_id);
  ASSERT_EQ(info.numerics.size(), 2u);
  EXPECT_EQ(info.numerics[1].kernel, "specialised");
}

TEST_F(NodeTest, OnlyItsTokenFindsASession) {
  Create();
  Client client(*node);
  const std::string token = node->TokenOf(*client.session());
  EXPECT_EQ(node->FindSession(token).value(), client.session());
  const absl::Status unknown = node->FindSession(std::string(16, 'x')).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(ReasonOf(unknown), "UNKNOWN_SESSION");
  client.End();
  EXPECT_FALSE(node->FindSession(token).ok());
}

TEST_F(NodeTest, SessionsOfOneProcessAreSeparate) {
  Create();
  Client mine(*node, "socket", 42);
  Client other(*node, "socket", 42);
  mine.Prepare();
  other.Prepare();
  EXPECT_NE(node->IdOf(*mine.session()), node->IdOf(*other.session()));
  GemmRequest stolen = other.Request();
  stolen.x.region = mine.x;
  const absl::Status status = other.Gemm(stolen);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ReasonOf(status), "NOT_OWNER");
  EXPECT_EQ(ReasonOf(node->UnregisterRegion(*other.session(), mine.x)), "NOT_OWNER");
  EXPECT_EQ(ReasonOf(node->ReadRegion(*other.session(), mine.x, 0, 1).status()), "NOT_OWNER");
  EXPECT_TRUE(mine.Gemm().ok());
}

TEST_F(NodeTest, ASharedLayerIsHeldBySessionNotByKnowingItsId) {
  Create();
  Client mine(*node);
  Client other(*node);
  mine.Prepare();
  other.Prepare("cuda:fake", /*seed=*/2);
  GemmRequest request = other.Request();
  request.layer_id = mine.layer_id;
  EXPECT_EQ(ReasonOf(other.Gemm(request)), "NOT_OWNER");
  request.layer_id = 12345;
  EXPECT_EQ(ReasonOf(other.Gemm(request)), "LAYER_NOT_FOUND");
}

TEST_F(NodeTest, UnknownAndStaleRegionsHaveTheirOwnErrors) {
  Create();
  Client client(*node);
  client.Prepare();
  GemmRequest request = client.Request();
  request.x.region.id ^= 0x55;
  EXPECT_EQ(client.Gemm(request).code(), absl::StatusCode::kNotFound);
  request = client.Request();
  ++request.x.region.generation;
  const absl::Status stale = client.Gemm(request);
  EXPECT_EQ(stale.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ReasonOf(stale), "STALE_EPOCH");
}

TEST_F(NodeTest, NewMemoryAtAnOldHandleMakesItsRegionsStale) {
  Create();
  Client client(*node);
  const std::string handle(64, 'h');
  const RegionRef old = client.NewIpcRegion(handle, 5).value();
  const RegionRef twin = client.NewIpcRegion(handle, 5).value();
  EXPECT_EQ(state->opens, 1) << "one open per allocation";
  const RegionRef fresh = client.NewIpcRegion(handle, 6).value();
  EXPECT_GT(fresh.generation, old.generation);
  for (const RegionRef& ref : {old, twin}) {
    EXPECT_EQ(ReasonOf(node->ReadRegion(*client.session(), ref, 0, 1).status()), "STALE_EPOCH");
  }
  EXPECT_TRUE(node->ReadRegion(*client.session(), fresh, 0, 1).ok());
  EXPECT_TRUE(node->UnregisterRegion(*client.session(), old).ok());
}

TEST_F(NodeTest, RefusesHandlesOfTheWrongSizeAndRangesOutsideTheAllocation) {
  Create();
  Client client(*node);
  for (const size_t bytes : {0, 63, 65}) {
    EXPECT_EQ(ReasonOf(client.NewIpcRegion(std::string(bytes, 'h'), 1).status()),
              "BAD_HANDLE_SIZE");
  }
  const auto reason = [&](uint64_t offset, uint64_t size) {
    CudaIpcSource source{std::string(64, 'h'), offset, size, 8192, 1};
    return ReasonOf(node->RegisterRegion(*client.session(), {"cuda:fake", source, ""}).status());
  };
  EXPECT_EQ(reason(0, 8193), "REGION_OUT_OF_BOUNDS");
  EXPECT_EQ(reason(~uint64_t{0}, 2), "REGION_OUT_OF_BOUNDS");
  EXPECT_EQ(reason(8192, 0), "REGION_OUT_OF_BOUNDS");
  EXPECT_EQ(reason(8000, 192), "");
  EXPECT_EQ(node->Status().regions, 1);
}

TEST_F(NodeTest, ArgumentsLiveOnTheDeviceOfTheLayer) {
  Create();
  Client client(*node);
  client.Prepare();
  GemmRequest request = client.Request();
  request.x.region = client.NewRegion(4096, "cuda:other").value();
  const absl::Status status = client.Gemm(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "WRONG_DEVICE");
  EXPECT_EQ(ReasonOf(client.NewRegion(1, "cuda:none").status()), "WRONG_DEVICE");
}

TEST_F(NodeTest, ChecksEveryMatrixBeforeItIsQueued) {
  Create();
  Client client(*node);
  client.Prepare();
  GemmRequest request = client.Request(2);
  request.x.row_stride = kK - 1;
  EXPECT_EQ(ReasonOf(client.Gemm(request)), "STRIDE_TOO_SMALL");
  request = client.Request(65);  // 65 * 32 * 2 bytes
  EXPECT_EQ(ReasonOf(client.Gemm(request)), "REGION_OUT_OF_BOUNDS");
  request = client.Request();
  request.x.shape = {1, kK - 1};
  EXPECT_EQ(ReasonOf(client.Gemm(request)), "SHAPE_MISMATCH");
  request = client.Request();
  request.y.region = request.x.region;
  EXPECT_EQ(ReasonOf(client.Gemm(request)), "SHAPE_MISMATCH");
  request = client.Request();
  request.y.type = kFloat8E4M3;
  EXPECT_EQ(client.Gemm(request).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(state->runs, 0) << "nothing reached the device";
  EXPECT_TRUE(client.Gemm(client.Request(0)).ok()) << "no rows is legal";
}

TEST_F(NodeTest, QuotasAnswerResourceExhausted) {
  NodeOptions options;
  options.max_sessions = 2;
  options.max_regions_per_session = 3;
  options.max_region_bytes_per_session = 10000;
  options.max_queued_per_session = 2;
  Create(options);
  Client client(*node);
  Client other(*node);
  EXPECT_EQ(ReasonOf(node->OpenSession({}).status()), "QUOTA");
  EXPECT_EQ(ReasonOf(client.NewRegion(10001).status()), "QUOTA");
  client.Prepare();
  ASSERT_TRUE(client.NewRegion(1).ok());
  EXPECT_EQ(ReasonOf(client.NewRegion(1).status()), "QUOTA");
  BlockRuns();
  const auto first = client.Start(client.Request());
  const auto second = client.Start(client.Request());
  EXPECT_EQ(ReasonOf(client.Gemm()), "QUEUE_FULL");
  gate.Open();
  EXPECT_TRUE(first->Wait().ok());
  EXPECT_TRUE(second->Wait().ok());
  EXPECT_TRUE(client.Gemm().ok());
}

TEST_F(NodeTest, SessionsThatNobodyKeepsLeaveRoomForOthers) {
  NodeOptions options;
  options.max_sessions = 8;
  Create(options);
  const SessionIdentity by_rpc{"rpc", 0, 0, "stream"};
  const auto first = node->OpenSession(by_rpc);
  const auto second = node->OpenSession(by_rpc);
  ASSERT_TRUE(first.ok() && second.ok());
  const absl::Status refused = node->OpenSession(by_rpc).status();
  EXPECT_EQ(ReasonOf(refused), "QUOTA");
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("the node has 2 sessions"));
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("KeepSession"));
  Client by_socket(*node);
  ASSERT_TRUE(node->BeginKeep(**first).ok());
  EXPECT_TRUE(node->OpenSession(by_rpc).ok()) << "a kept session gives its place up";
  EXPECT_EQ(ReasonOf(node->OpenSession(by_rpc).status()), "QUOTA");
  EXPECT_TRUE(node->EndSession(*second, "close"));
  EXPECT_FALSE(node->EndSession(*second, "eof")) << "it ended before";
  EXPECT_TRUE(node->OpenSession(by_rpc).ok()) << "so does one that ended";
  std::vector<Client> more;
  while (node->Status().sessions < options.max_sessions) more.emplace_back(*node);
  EXPECT_EQ(ReasonOf(node->OpenSession({"", 0, 0, "socket"}).status()), "QUOTA");
}

TEST_F(NodeTest, TicketsBelongToTheirSessionAndWorkOnce) {
  Create();
  Client client(*node);
  Client other(*node);
  const uint64_t ticket = node->PassMemory(*client.session(), dup(0), 4096).value();
  const RegionRequest request{"cuda:fake", PassedSource{ticket, 1024, 0}, ""};
  EXPECT_EQ(ReasonOf(node->RegisterRegion(*other.session(), request).status()), "TICKET_NOT_FOUND");
  const auto region = node->RegisterRegion(*client.session(), request);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(region->size, 3072u) << "0 means to the end";
  EXPECT_EQ(ReasonOf(node->RegisterRegion(*client.session(), request).status()),
            "TICKET_NOT_FOUND");
}

TEST_F(NodeTest, CopiesBytesInsideTheRegionOnly) {
  Create();
  Client client(*node);
  const RegionRef region = client.NewRegion(100).value();
  ASSERT_TRUE(node->WriteRegion(*client.session(), region, 90, "0123456789").ok());
  EXPECT_EQ(node->ReadRegion(*client.session(), region, 95, 5).value(), "56789");
  EXPECT_EQ(ReasonOf(node->WriteRegion(*client.session(), region, 91, "0123456789")),
            "REGION_OUT_OF_BOUNDS");
  EXPECT_EQ(ReasonOf(node->ReadRegion(*client.session(), region, 1, ~uint64_t{0}).status()),
            "REGION_OUT_OF_BOUNDS");
}

TEST_F(NodeTest, MoeArgumentsAreResolvedAndChecked) {
  Create();
  Client client(*node);
  client.Prepare();
  MoeRequest request;
  request.gate_up_layer_id = client.layer_id;
  request.down_layer_id = 99;
  const auto outcome = std::make_shared<Outcome<MoeResult>>();
  node->SubmitMoe(client.session(), request, absl::InfiniteFuture(), nullptr,
                  [outcome](absl::StatusOr<MoeResult> result) { outcome->Set(std::move(result)); });
  const absl::Status status = outcome->Wait().status();
  EXPECT_EQ(ReasonOf(status), "LAYER_NOT_FOUND");
  EXPECT_NE(status.message().find("down_layer_id"), absl::string_view::npos) << status;
}

TEST_F(NodeTest, ExplainsTheDefaultRowsOfALayer) {
  Create();
  Client client(*node);
  client.Prepare();
  const auto all = node->Explain(*client.session(), client.layer_id, {});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->size(), 4u);
  EXPECT_EQ(node->Explain(*client.session(), client.layer_id, {7})->at(0).m, 7);
  EXPECT_FALSE(node->Explain(*client.session(), client.layer_id, {-1}).ok());
}

TEST_F(NodeTest, TwoClientsOfOneLayerHoldOneCopy) {
  Create();
  Client first(*node);
  Client second(*node);
  first.Prepare();
  second.Prepare();
  EXPECT_EQ(first.layer_id, second.layer_id);
  const NodeStatus status = node->Status();
  EXPECT_EQ(status.layers, 1);
  EXPECT_EQ(status.layer_references, 2);
  EXPECT_EQ(status.devices[0].weights_bytes, 1000u);
  EXPECT_EQ(node->ListAllLayers().at(0).references, 2);
}

TEST_F(NodeTest, TensorSourcesThatDoNotFitTheirSpecAreRefused) {
  Create();
  Client client(*node);
  const auto reason = [&](TensorSource source) {
    Outcome<LayerInfo> outcome;
    node->RegisterLayer(client.session(), {"", "", source}, nullptr,
                        [&](absl::StatusOr<LayerInfo> info) { outcome.Set(std::move(info)); });
    return ReasonOf(outcome.Wait().status());
  };
  TensorSource source;
  source.spec = testing::Int4Spec();
  source.shape = {1, kN, kK};
  source.codes = RawRef{client.NewRegion(100).value(), 0, 100};
  EXPECT_EQ(reason(source), "SHAPE_MISMATCH");
  source.codes->byte_offset = 1;
  EXPECT_EQ(reason(source), "REGION_OUT_OF_BOUNDS");
  source.shape.k = INT64_MAX;
  EXPECT_EQ(reason(source), "SHAPE_MISMATCH");
  source.shape = {-1, 1, 1};
  EXPECT_EQ(reason(source), "SHAPE_MISMATCH");
}

class NodeTensorsTest : public NodeTest {
 protected:
  NodeTensorsTest() {
    Create();
    client.emplace(*node);
    region = client->NewRegion(1 << 16).value();
    tensor = testing::RandomTensor(spec(), {2, kN, kK}, 3);
    const auto ref = [&](const Buffer& buffer) { return RawRef{region, 0, buffer.size()}; };
    source.spec = tensor.spec;
    source.shape = tensor.shape;
    source.codes = ref(tensor.codes);
    source.scales = ref(tensor.scales);
    source.zero_points = ref(tensor.zero_points);
    source.secondary_scales = ref(tensor.secondary_scales);
    source.group_index = ref(tensor.group_index);
    source.bias = ref(tensor.bias);
    source.activation_scale = ref(tensor.activation_scale);
  }
  ~NodeTensorsTest() override { client.reset(); }

  // Everything a layer may have.
  static QuantSpec spec() {
    QuantSpec spec = testing::Int4Spec();
    spec.zero_point = ZeroPointKind::kInteger;
    spec.secondary_scale = SecondaryScaleKind::kChannel;
    spec.has_group_index = true;
    spec.bias = kFloat16;
    spec.activation = kFloat8E4M3;
    spec.activation_scale = ActivationScaleKind::kStaticTensor;
    return spec;
  }
  // The outcome, which must be there at once: nothing was queued.
  absl::Status AtOnce() {
    const int loads = state->loads;
    Outcome<LayerInfo> outcome;
    node->RegisterLayer(client->session(), {"", "", source}, nullptr,
                        [&](absl::StatusOr<LayerInfo> info) { outcome.Set(std::move(info)); });
    EXPECT_EQ(outcome.calls(), 1) << "answered before it was queued";
    const absl::Status status = outcome.Wait().status();
    EXPECT_EQ(state->loads, loads);
    return status;
  }

  std::optional<Client> client;
  RegionRef region;
  StandardTensor tensor;
  TensorSource source;
};

TEST_F(NodeTensorsTest, EveryTensorOfTheWrongSizeIsNamedBeforeAnythingIsRead) {
  struct Field {
    const char* name;
    std::optional<RawRef>& ref;
  };
  for (const Field& field : {Field{"codes", source.codes}, Field{"scales", source.scales},
                             Field{"zero_points", source.zero_points},
                             Field{"secondary_scales", source.secondary_scales},
                             Field{"group_index", source.group_index}, Field{"bias", source.bias},
                             Field{"activation_scale", source.activation_scale}}) {
    const RawRef right = *field.ref;
    ASSERT_GT(right.byte_size, 0u) << field.name;
    for (const uint64_t size :
         {uint64_t{0}, right.byte_size - 1, right.byte_size + 1, uint64_t{1 << 16}}) {
      field.ref->byte_size = size;
      const absl::Status status = AtOnce();
      EXPECT_EQ(ReasonOf(status), "SHAPE_MISMATCH") << status;
      EXPECT_EQ(std::string(status.message()),
                absl::StrCat(field.name, " has ", size, " bytes, expected ", right.byte_size));
    }
    field.ref.reset();
    EXPECT_EQ(ReasonOf(AtOnce()), "SHAPE_MISMATCH") << field.name << " is absent";
    field.ref = right;
  }
}

TEST_F(NodeTensorsTest, ATensorTheSpecDoesNotHaveIsRefused) {
  source.spec.bias = kNoFormat;
  const absl::Status status = AtOnce();
  EXPECT_EQ(ReasonOf(status), "SHAPE_MISMATCH");
  EXPECT_NE(std::string(status.message()).find("bias has"), std::string::npos) << status;
}

TEST_F(NodeTensorsTest, AnExtentOutOfRangeIsNamedAlone) {
  struct Field {
    const char* name;
    int64_t& value;
  };
  for (const Field& field :
       {Field{"experts", source.shape.experts}, Field{"n", source.shape.n},
        Field{"k", source.shape.k}, Field{"scale_columns", source.scale_columns},
        Field{"scale_block_n", source.spec.scale_block_n},
        Field{"scale_block_k", source.spec.scale_block_k}}) {
    const int64_t right = field.value;
    for (const int64_t bad : {int64_t{-1}, INT64_MIN, INT64_MAX, (int64_t{1} << 40) + 1}) {
      field.value = bad;
      const absl::Status status = AtOnce();
      EXPECT_EQ(ReasonOf(status), "SHAPE_MISMATCH") << status;
      EXPECT_EQ(std::string(status.message()).rfind(absl::StrCat(field.name, " is ", bad, ","), 0),
                0u)
          << status;
    }
    field.value = right;
  }
}

TEST_F(NodeTest, CheckpointsWithoutUsableNamesAreRefused) {
  Create();
  Client client(*node);
  const auto refused = [&](const std::string& path, const std::string& module) {
    Outcome<LayerInfo> outcome;
    node->RegisterLayer(client.session(), {"", "", CheckpointSource{path, module}}, nullptr,
                        [&](absl::StatusOr<LayerInfo> info) { outcome.Set(std::move(info)); });
    const absl::Status status = outcome.Wait().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return ReasonOf(status);
  };
  EXPECT_EQ(refused("", "x"), "MISSING_FIELD");
  EXPECT_EQ(refused("/etc", ""), "MISSING_FIELD");
  EXPECT_EQ(refused(std::string("/etc\0x", 6), "x"), "BAD_PATH");
}

TEST_F(NodeTest, CheckpointsOutsideTheRootsAreRefused) {
  Create();
  Client client(*node);
  Outcome<LayerInfo> outcome;
  node->RegisterLayer(client.session(), {"", "", CheckpointSource{"/etc", "x"}}, nullptr,
                      [&](absl::StatusOr<LayerInfo> info) { outcome.Set(std::move(info)); });
  EXPECT_EQ(ReasonOf(outcome.Wait().status()), "PATH_NOT_ALLOWED");
}

}  // namespace
}  // namespace gemmd
