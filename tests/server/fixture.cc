#include "tests/server/fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "absl/time/clock.h"
#include "google/rpc/error_details.pb.h"
#include "server/unix_socket.h"

namespace gemmd {
namespace {

constexpr uint64_t kWeightBytes = kN * kK, kScaleBytes = kN * sizeof(float);

std::string LayerBytes() {
  std::string bytes(kWeightBytes + kScaleBytes, '\0');
  for (int n = 0; n < kN; ++n) {
    for (int k = 0; k < kK; ++k) bytes[n * kK + k] = static_cast<char>(128 + n + k - 3);
  }
  for (int n = 0; n < kN; ++n) {
    const float one = 1;
    std::memcpy(&bytes[kWeightBytes + n * sizeof(float)], &one, sizeof one);
  }
  return bytes;
}

void SetTensor(v1::TensorRef* to, const v1::RegionRef& region, uint64_t offset, int rows,
               int columns) {
  *to->mutable_region() = region;
  to->set_byte_offset(offset);
  to->set_dtype(v1::DATA_TYPE_FLOAT32);
  to->add_shape(rows);
  to->add_shape(columns);
}

void SetRaw(v1::RawRef* to, const v1::RegionRef& region, uint64_t offset, uint64_t size) {
  *to->mutable_region() = region;
  to->set_byte_offset(offset);
  to->set_byte_size(size);
}

}  // namespace

TempDir::TempDir() {
  char name[] = "/tmp/gemmd-XXXXXX";
  path_ = mkdtemp(name);
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

FlagValues FlagsFor(const TempDir& directory) {
  return {{"socket", directory / "g.sock"},
          {"session_socket", directory / "s.sock"},
          {"cache_dir", directory / "cache"},
          {"metrics_address", ""},
          {"device", "cpu"},
          {"cpu_threads", "2"},
          {"log_level", "warn"}};
}

SessionSocketClient::SessionSocketClient(const std::string& path)
    : fd_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  const sockaddr_un address = UnixAddress(path);
  connected_ = connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

void SessionSocketClient::Send(const std::string& packet, const std::vector<int>& fds) {
  std::string copy = packet;
  iovec buffer = {copy.data(), copy.size()};
  msghdr message{};
  message.msg_iov = &buffer;
  message.msg_iovlen = 1;
  std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
}

bool SessionSocketClient::Receive(v1::SessionSocketResponse& response) {
  pollfd event = {fd_.get(), POLLIN, 0};
  if (poll(&event, 1, 5000) != 1) return false;
  char data[8192];
  const ssize_t size = recv(fd_.get(), data, sizeof data, 0);
  return size >= 0 && !(size == 0 && (event.revents & POLLHUP)) &&
         response.ParseFromArray(data, static_cast<int>(size));
}

v1::SessionSocketResponse SessionSocketClient::Call(const v1::SessionSocketRequest& request,
                                                    const std::vector<int>& fds) {
  v1::SessionSocketResponse response;
  Send(request.SerializeAsString(), fds);
  EXPECT_TRUE(Receive(response));
  return response;
}

std::string SessionSocketClient::Open(const std::string& name) {
  v1::SessionSocketRequest request;
  request.mutable_open()->set_name(name);
  const v1::SessionSocketResponse response = Call(request);
  EXPECT_EQ(response.code(), 0) << response.message();
  return response.opened().token();
}

uint64_t SessionSocketClient::PassMemory(int fd, uint64_t bytes) {
  v1::SessionSocketRequest request;
  request.mutable_pass_memory()->set_bytes(bytes);
  const v1::SessionSocketResponse response = Call(request, {fd});
  EXPECT_EQ(response.code(), 0) << response.message();
  return response.memory_ticket();
}

SharedMemory::SharedMemory(uint64_t size)
    : fd_(memfd_create("gemmd-test", MFD_CLOEXEC | MFD_ALLOW_SEALING)), size_(size) {
  EXPECT_EQ(ftruncate(fd_.get(), static_cast<off_t>(size)), 0);
  EXPECT_EQ(fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  data_ = static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
}

SharedMemory::~SharedMemory() { munmap(data_, size_); }

std::string ReasonOf(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  if (!details.ParseFromString(status.error_details()) || details.details_size() == 0) return "";
  if (!details.details(0).UnpackTo(&info) || info.domain() != "gemmd") return "";
  return info.reason();
}

float Expected(int m, int n) {
  float sum = 0;
  for (int k = 0; k < kK; ++k) sum += Input(m, k) * Weight(n, k);
  return sum;
}

void DaemonTest::SetUp() { StartDaemon(); }

void DaemonTest::StartDaemon(const FlagValues& more) {
  daemon_.reset();
  FlagValues flags = more;
  for (const auto& [name, value] : FlagsFor(directory_)) flags.emplace(name, value);
  auto config = LoadConfig(flags, {[](const std::string&) { return std::nullopt; }, geteuid()});
  ASSERT_TRUE(config.ok()) << config.status();
  config->config.max_bundle_bytes = max_bundle_bytes_;
  auto daemon = Daemon::Start(*config, [this](absl::Duration) { ++drains_; });
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  daemon_ = *std::move(daemon);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
                   1);  // a restarted daemon gets a new connection
  channel_ = grpc::CreateCustomChannel("unix:" + directory_ / "g.sock",
                                       grpc::InsecureChannelCredentials(), arguments);
  sessions_ = v1::SessionService::NewStub(channel_);
  regions_ = v1::RegionService::NewStub(channel_);
  layers_ = v1::LayerService::NewStub(channel_);
  gemms_ = v1::GemmService::NewStub(channel_);
  admin_ = v1::AdminService::NewStub(channel_);
}

void DaemonTest::TearDown() {
  connections_.clear();
  daemon_.reset();
}

std::unique_ptr<grpc::ClientContext> DaemonTest::Context(const std::string& token,
                                                         absl::Duration within) const {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(absl::ToChronoTime(absl::Now() + within));
  if (!token.empty()) context->AddMetadata("gemmd-session-bin", token);
  return context;
}

std::string DaemonTest::OpenBySocket(const std::string& name) {
  connections_.push_back(std::make_unique<SessionSocketClient>(directory_ / "s.sock"));
  return connections_.back()->Open(name);
}

v1::RegionRef DaemonTest::RegisterDaemonRegion(const std::string& token, uint64_t size) {
  v1::RegisterRegionRequest request;
  v1::RegisterRegionResponse response;
  request.set_device("cpu");
  request.mutable_daemon_owned()->set_size(size);
  const grpc::Status status = regions_->RegisterRegion(Context(token).get(), request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.region();
}

void DaemonTest::Write(const std::string& token, const v1::RegionRef& region, uint64_t offset,
                       const std::string& data) {
  v1::WriteRegionRequest request;
  v1::WriteRegionResponse response;
  *request.mutable_region() = region;
  request.set_offset(offset);
  request.set_data(data);
  const grpc::Status status = regions_->WriteRegion(Context(token).get(), request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

std::string DaemonTest::Read(const std::string& token, const v1::RegionRef& region, uint64_t offset,
                             uint64_t size) {
  v1::ReadRegionRequest request;
  v1::ReadRegionResponse response;
  *request.mutable_region() = region;
  request.set_offset(offset);
  request.set_size(size);
  const grpc::Status status = regions_->ReadRegion(Context(token).get(), request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.data();
}

v1::RegisterLayerRequest DaemonTest::LayerRequestIn(const v1::RegionRef& region) const {
  v1::RegisterLayerRequest request;
  request.set_name("layer");
  v1::TensorSource* tensors = request.mutable_tensors();
  v1::NumberFormat* weight = tensors->mutable_spec()->mutable_weight();
  weight->set_kind(v1::NUMBER_KIND_INTEGER);
  weight->set_bits(8);
  v1::NumberFormat* scale = tensors->mutable_spec()->mutable_scale();
  scale->set_kind(v1::NUMBER_KIND_FLOAT);
  scale->set_bits(32);
  scale->set_exponent_bits(8);
  scale->set_mantissa_bits(23);
  scale->set_special(v1::SPECIAL_VALUES_IEEE);
  tensors->mutable_spec()->set_scale_block_n(1);
  tensors->set_n(kN);
  tensors->set_k(kK);
  SetRaw(tensors->mutable_codes(), region, 0, kWeightBytes);
  SetRaw(tensors->mutable_scales(), region, kWeightBytes, kScaleBytes);
  return request;
}

grpc::Status DaemonTest::TryRegisterLayer(const std::string& token,
                                          const v1::RegisterLayerRequest& request,
                                          v1::LayerInfo* layer, int* messages) {
  const auto context = Context(token);
  const auto reader = layers_->RegisterLayer(context.get(), request);
  v1::RegisterLayerProgress progress;
  while (reader->Read(&progress)) {
    if (messages != nullptr) ++*messages;
    if (progress.stage() == v1::RegisterLayerProgress::STAGE_READY) *layer = progress.layer();
  }
  return reader->Finish();
}

v1::LayerInfo DaemonTest::RegisterLayer(const std::string& token, const std::string& name) {
  const v1::RegionRef region = RegisterDaemonRegion(token, kWeightBytes + kScaleBytes);
  Write(token, region, 0, LayerBytes());
  v1::RegisterLayerRequest request = LayerRequestIn(region);
  request.set_name(name);
  v1::LayerInfo layer;
  const grpc::Status status = TryRegisterLayer(token, request, &layer);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return layer;
}

v1::GemmRequest DaemonTest::MakeGemm(const std::string& token, uint64_t layer_id, int rows) {
  const uint64_t x_bytes = rows * kK * sizeof(float);
  const v1::RegionRef region = RegisterDaemonRegion(token, x_bytes + rows * kN * sizeof(float));
  std::string x(x_bytes, '\0');
  for (int m = 0; m < rows; ++m) {
    for (int k = 0; k < kK; ++k) {
      const float value = Input(m, k);
      std::memcpy(&x[(m * kK + k) * sizeof value], &value, sizeof value);
    }
  }
  Write(token, region, 0, x);
  v1::GemmRequest request;
  request.set_layer_id(layer_id);
  SetTensor(request.mutable_x(), region, 0, rows, kK);
  SetTensor(request.mutable_y(), region, x_bytes, rows, kN);
  return request;
}

void DaemonTest::ExpectResult(const std::string& token, const v1::GemmRequest& request) {
  const int rows = static_cast<int>(request.y().shape(0));
  const std::string y =
      Read(token, request.y().region(), request.y().byte_offset(), rows * kN * sizeof(float));
  ASSERT_EQ(y.size(), rows * kN * sizeof(float));
  for (int m = 0; m < rows; ++m) {
    for (int n = 0; n < kN; ++n) {
      float value = 0;
      std::memcpy(&value, &y[(m * kN + n) * sizeof value], sizeof value);
      ASSERT_EQ(value, Expected(m, n)) << "row " << m << " column " << n;
    }
  }
}

}  // namespace gemmd
