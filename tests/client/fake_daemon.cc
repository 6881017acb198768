#include "tests/client/fake_daemon.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "absl/time/clock.h"
#include "google/rpc/error_details.pb.h"

namespace gemmd::client {
namespace {

void WaitForCancellation(const grpc::ServerContext& context) {
  while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
}

grpc::Status MakeStatus(const Fault& fault) {
  google::rpc::Status details;
  details.set_code(fault.code);
  if (!fault.reason.empty()) {
    google::rpc::ErrorInfo info;
    info.set_reason(fault.reason);
    info.set_domain("gemmd");
    details.add_details()->PackFrom(info);
  }
  if (fault.retry_ms >= 0) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_nanos(fault.retry_ms * 1000000);
    details.add_details()->PackFrom(retry);
  }
  return grpc::Status(fault.code, "injected", details.SerializeAsString());
}

int ListenAt(const std::string& path) {
  unlink(path.c_str());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  listen(fd, 16);
  return fd;
}

// A packet and the descriptor it carries, which is closed at once.
ssize_t ReceivePacket(int fd, std::array<char, 4096>& buffer) {
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  if (const cmsghdr* header = size > 0 ? CMSG_FIRSTHDR(&message) : nullptr; header != nullptr) {
    int passed = -1;
    std::memcpy(&passed, CMSG_DATA(header), sizeof(passed));
    close(passed);
  }
  return size;
}

}  // namespace

class FakeDaemon::Gemms : public v1::GemmService::Service {
 public:
  explicit Gemms(FakeDaemon* daemon) : daemon_(daemon) {}
  grpc::Status Gemm(grpc::ServerContext* context, const v1::GemmRequest* request,
                    v1::GemmResponse* response) override {
    const grpc::Status entered = daemon_->Enter("Gemm", context, true);
    if (!entered.ok()) return entered;
    const uint64_t armed = daemon_->armed_numerics;
    const uint64_t named = request->options().numerics();
    if (named != 0 && named != armed) {
      return MakeStatus({.code = grpc::StatusCode::FAILED_PRECONDITION,
                         .reason = "NUMERICS_NOT_READY"});
    }
    v1::ExecutionReport* const report = response->mutable_report();
    report->set_kernel("fake");
    report->set_numerics(named != 0 ? named : 1);
    if (request->options().batch_invariant() && named == 0) report->set_armed_numerics(armed);
    return grpc::Status::OK;
  }
  grpc::Status Submit(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::SubmitResponse, v1::SubmitRequest>* stream) override {
    const grpc::Status entered = daemon_->Enter("Submit", context, true);
    if (!entered.ok()) return entered;
    v1::SubmitRequest request;
    for (int answered = 0; stream->Read(&request); ++answered) {
      if (answered == daemon_->gemms_before_break) {
        return MakeStatus({.code = grpc::StatusCode::UNAVAILABLE, .reason = "EXECUTOR_RESTART"});
      }
      v1::SubmitResponse response;
      response.set_tag(request.tag());
      response.mutable_gemm()->mutable_report()->set_kernel("fake");
      stream->Write(response);
    }
    return grpc::Status::OK;
  }

 private:
  FakeDaemon* const daemon_;
};

class FakeDaemon::Admins : public v1::AdminService::Service {
 public:
  explicit Admins(FakeDaemon* daemon) : daemon_(daemon) {}
  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    *response = daemon_->status;
    return daemon_->Enter("GetStatus", context, false);
  }
  // One layer, or none if nothing is told; with a kernel that is not stored, a full disk.
  grpc::Status Prewarm(grpc::ServerContext* context, const v1::PrewarmRequest*,
                       grpc::ServerWriter<v1::PrewarmProgress>* writer) override {
    const grpc::Status entered = daemon_->Enter("Prewarm", context, true);
    if (!entered.ok()) return entered;
    v1::PrewarmProgress progress;  // the plan comes first, without a total
    const std::vector<v1::PrewarmOutcome>& outcomes = daemon_->prewarmed;
    if (!outcomes.empty()) {
      progress.add_layers();
      progress.set_named_layers(1);
    }
    writer->Write(progress);
    bool stored = true;
    for (size_t i = 0; i < outcomes.size(); ++i) {
      progress.Clear();
      progress.set_done(static_cast<uint32_t>(i + 1));
      progress.set_total(static_cast<uint32_t>(outcomes.size()));
      progress.set_outcome(outcomes[i]);
      writer->Write(progress);
      if (outcomes[i] == v1::PREWARM_OUTCOME_NOT_STORED) stored = false;
    }
    return stored ? grpc::Status::OK
                  : MakeStatus({.code = grpc::StatusCode::UNAVAILABLE, .reason = "CACHE_WRITE"});
  }
  grpc::Status ListCache(grpc::ServerContext* context, const v1::ListCacheRequest* request,
                         v1::ListCacheResponse* response) override {
    daemon_->cache_filter = request->filter();
    *response = daemon_->listed_cache;
    return daemon_->Enter("ListCache", context, false);
  }
  grpc::Status ListTuning(grpc::ServerContext* context, const v1::ListTuningRequest*,
                          v1::ListTuningResponse* response) override {
    *response = daemon_->listed_tuning;
    return daemon_->Enter("ListTuning", context, false);
  }
  grpc::Status ImportTuning(grpc::ServerContext* context, const v1::ImportTuningRequest*,
                            v1::ImportTuningResponse* response) override {
    *response = daemon_->imported_tuning;
    return daemon_->Enter("ImportTuning", context, true);
  }
  grpc::Status ImportCache(grpc::ServerContext* context, grpc::ServerReader<v1::CacheChunk>* reader,
                           v1::ImportCacheResponse* response) override {
    const grpc::Status entered = daemon_->Enter("ImportCache", context, true);
    if (!entered.ok()) return entered;
    std::string bundle;
    v1::CacheChunk chunk;
    while (reader->Read(&chunk)) bundle += chunk.data();
    response->set_imported(1);
    response->set_other_compiler(daemon_->imported_of_other_compiler);
    MutexLock lock(daemon_->mutex_);
    daemon_->imported_bundle_ = std::move(bundle);
    return grpc::Status::OK;
  }

 private:
  FakeDaemon* const daemon_;
};

class FakeDaemon::Models : public v1::ModelService::Service {
 public:
  explicit Models(FakeDaemon* daemon) : daemon_(daemon) {}
  grpc::Status RegisterModel(grpc::ServerContext* context, const v1::RegisterModelRequest* request,
                             grpc::ServerWriter<v1::RegisterModelProgress>* writer) override {
    const grpc::Status entered = daemon_->Enter("RegisterModel", context, true);
    if (!entered.ok()) return entered;
    daemon_->model = *request;
    v1::RegisterModelProgress progress;
    progress.mutable_module()->set_module("m");
    if (daemon_->stuck_at.has_value()) {
      progress.set_modules_total(7);
      *progress.mutable_module()->mutable_progress() = *daemon_->stuck_at;
      writer->Write(progress);
      WaitForCancellation(*context);
      return grpc::Status::OK;
    }
    progress.mutable_module()->mutable_progress()->mutable_layer()->set_name("m");
    writer->Write(progress);
    return grpc::Status::OK;
  }

 private:
  FakeDaemon* const daemon_;
};

FakeDaemon::FakeDaemon(const std::string& directory)
    : directory_(directory),
      gemms_(std::make_unique<Gemms>(this)),
      admins_(std::make_unique<Admins>(this)),
      models_(std::make_unique<Models>(this)) {}

FakeDaemon::~FakeDaemon() { Stop(); }

void FakeDaemon::Start() {
  {
    MutexLock lock(mutex_);
    stopping_ = false;
  }
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket_path(), grpc::InsecureServerCredentials());
  builder.RegisterService(static_cast<v1::SessionService::Service*>(this));
  builder.RegisterService(static_cast<v1::RegionService::Service*>(this));
  builder.RegisterService(static_cast<v1::LayerService::Service*>(this));
  builder.RegisterService(gemms_.get());
  builder.RegisterService(admins_.get());
  builder.RegisterService(models_.get());
  server_ = builder.BuildAndStart();
  listener_ = ListenAt(directory_ + "/session.sock");
  acceptor_ = std::thread([this, listener = listener_] { AcceptLoop(listener); });
}

void FakeDaemon::Stop() {
  if (server_ == nullptr) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    for (int fd : socket_fds_) shutdown(fd, SHUT_RDWR);
  }
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  for (std::thread& thread : socket_threads_) thread.join();
  socket_threads_.clear();
  close(listener_);
  server_->Shutdown(std::chrono::system_clock::now());
  server_ = nullptr;
  unlink(socket_path().c_str());
  ForgetSessions();
}

void FakeDaemon::ForgetSessions() {
  MutexLock lock(mutex_);
  tokens_.clear();
  regions_.clear();
  layers_.clear();
}

void FakeDaemon::AcceptLoop(int listener) {
  while (true) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    MutexLock lock(mutex_);
    if (stopping_) {
      close(fd);
      return;
    }
    socket_fds_.insert(fd);
    socket_threads_.emplace_back([this, fd] { ServeSocket(fd); });
  }
}

void FakeDaemon::ServeSocket(int fd) {
  std::array<char, 4096> buffer;
  std::string token;
  while (true) {
    const ssize_t size = ReceivePacket(fd, buffer);
    v1::SessionSocketRequest request;
    if (size <= 0 || !request.ParseFromArray(buffer.data(), static_cast<int>(size))) break;
    v1::SessionSocketResponse response;
    if (request.has_open()) {
      token = OpenToken();
      response.mutable_opened()->set_token(token);
    } else {
      MutexLock lock(mutex_);
      ++calls_["PassMemory"];
      response.set_memory_ticket(next_id_);
      tickets_.insert(next_id_++);
    }
    const std::string bytes = response.SerializeAsString();
    send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  CloseToken(token);
  MutexLock lock(mutex_);
  socket_fds_.erase(fd);
  close(fd);
}

std::string FakeDaemon::OpenToken() {
  MutexLock lock(mutex_);
  std::string token = "token-" + std::to_string(next_id_++);
  token.resize(16, '.');
  tokens_.insert(token);
  return token;
}

void FakeDaemon::CloseToken(const std::string& token) {
  MutexLock lock(mutex_);
  tokens_.erase(token);
}

grpc::Status FakeDaemon::Enter(const std::string& method, grpc::ServerContext* context,
                               bool needs_session) {
  MutexLock lock(mutex_);
  ++calls_[method];
  Fault& fault = faults_[method];
  if (fault.times > 0) {
    --fault.times;
    return MakeStatus(fault);
  }
  if (!needs_session) return grpc::Status::OK;
  const auto found = context->client_metadata().find("gemmd-session-bin");
  const bool known = found != context->client_metadata().end() &&
                     tokens_.count(std::string(found->second.data(), found->second.size())) != 0;
  if (known) return grpc::Status::OK;
  return MakeStatus({.code = grpc::StatusCode::UNAUTHENTICATED, .reason = "UNKNOWN_SESSION"});
}

void FakeDaemon::Inject(const std::string& method, Fault fault) {
  MutexLock lock(mutex_);
  faults_[method] = fault;
}

int FakeDaemon::calls(const std::string& method) {
  MutexLock lock(mutex_);
  return calls_[method];
}

size_t FakeDaemon::sessions() {
  MutexLock lock(mutex_);
  return tokens_.size();
}

size_t FakeDaemon::regions() {
  MutexLock lock(mutex_);
  return regions_.size();
}

size_t FakeDaemon::layers() {
  MutexLock lock(mutex_);
  return layers_.size();
}

std::string FakeDaemon::imported_bundle() {
  MutexLock lock(mutex_);
  return imported_bundle_;
}

grpc::Status FakeDaemon::Hello(grpc::ServerContext* context, const v1::HelloRequest*,
                               v1::HelloResponse* response) {
  response->set_server_version("fake");
  response->set_max_message_bytes(8192);
  if (!device.empty()) {
    v1::DeviceInfo* const only = response->add_devices();
    only->set_id(device);
    only->set_ready(true);
  }
  if (offer_session_socket) response->set_session_socket(directory_ + "/session.sock");
  return Enter("Hello", context, false);
}

grpc::Status FakeDaemon::OpenSession(grpc::ServerContext* context, const v1::OpenSessionRequest*,
                                     v1::OpenSessionResponse* response) {
  response->set_token(OpenToken());
  return Enter("OpenSession", context, false);
}

grpc::Status FakeDaemon::KeepSession(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::SessionEvent, v1::KeepSessionRequest>* stream) {
  const grpc::Status entered = Enter("KeepSession", context, true);
  if (!entered.ok()) return entered;
  v1::SessionEvent event;
  event.set_kind(v1::SessionEvent::KIND_OPEN);
  stream->Write(event);
  v1::KeepSessionRequest request;
  while (stream->Read(&request)) {
  }
  const auto token = context->client_metadata().find("gemmd-session-bin")->second;
  CloseToken(std::string(token.data(), token.size()));
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::CloseSession(grpc::ServerContext* context, const v1::CloseSessionRequest*,
                                      v1::CloseSessionResponse*) {
  return Enter("CloseSession", context, true);
}

grpc::Status FakeDaemon::RegisterRegion(grpc::ServerContext* context,
                                        const v1::RegisterRegionRequest* request,
                                        v1::RegisterRegionResponse* response) {
  const grpc::Status entered = Enter("RegisterRegion", context, true);
  if (!entered.ok()) return entered;
  MutexLock lock(mutex_);
  if (request->has_passed() && tickets_.erase(request->passed().ticket()) == 0) {
    return MakeStatus({.code = grpc::StatusCode::NOT_FOUND, .reason = "TICKET_NOT_FOUND"});
  }
  response->mutable_region()->set_id(next_id_);
  response->mutable_region()->set_generation(1);
  regions_[next_id_++] = std::string(request->daemon_owned().size(), '\0');
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::UnregisterRegion(grpc::ServerContext* context,
                                          const v1::UnregisterRegionRequest* request,
                                          v1::UnregisterRegionResponse*) {
  const grpc::Status entered = Enter("UnregisterRegion", context, true);
  MutexLock lock(mutex_);
  regions_.erase(request->region().id());
  return entered;
}

grpc::Status FakeDaemon::WriteRegion(grpc::ServerContext* context,
                                     const v1::WriteRegionRequest* request,
                                     v1::WriteRegionResponse*) {
  const grpc::Status entered = Enter("WriteRegion", context, true);
  if (!entered.ok()) return entered;
  MutexLock lock(mutex_);
  regions_[request->region().id()].replace(request->offset(), request->data().size(),
                                           request->data());
  return entered;
}

grpc::Status FakeDaemon::ReadRegion(grpc::ServerContext* context,
                                    const v1::ReadRegionRequest* request,
                                    v1::ReadRegionResponse* response) {
  const grpc::Status entered = Enter("ReadRegion", context, true);
  if (!entered.ok()) return entered;
  MutexLock lock(mutex_);
  response->set_data(regions_[request->region().id()].substr(request->offset(), request->size()));
  return entered;
}

grpc::Status FakeDaemon::RegisterLayer(grpc::ServerContext* context,
                                       const v1::RegisterLayerRequest* request,
                                       grpc::ServerWriter<v1::RegisterLayerProgress>* writer) {
  const grpc::Status entered = Enter("RegisterLayer", context, true);
  if (!entered.ok()) return entered;
  if (stuck_at.has_value()) {
    writer->Write(*stuck_at);
    WaitForCancellation(*context);
    return grpc::Status::OK;
  }
  checkpoint = request->checkpoint();
  v1::RegisterLayerProgress progress;
  progress.set_stage(v1::RegisterLayerProgress::STAGE_LOADING);
  writer->Write(progress);
  progress.set_stage(v1::RegisterLayerProgress::STAGE_READY);
  // The same content is the same layer of a session: the module's name stands for the content.
  const uint64_t id = 1000 + std::hash<std::string>()(request->checkpoint().module()) % 1000;
  {
    MutexLock lock(mutex_);
    layers_.insert(id);
  }
  progress.mutable_layer()->set_layer_id(id);
  progress.mutable_layer()->set_digest(digest);
  progress.mutable_layer()->set_name(request->name());
  *progress.mutable_notes() = {notes.begin(), notes.end()};
  if (request->checkpoint().has_quantize()) {
    progress.mutable_layer()->set_quantized(v1::SCALE_RULE_LARGEST);
    progress.mutable_layer()->set_quantization_error(0.0625);
  }
  writer->Write(progress);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::ReleaseLayer(grpc::ServerContext* context,
                                      const v1::ReleaseLayerRequest* request,
                                      v1::ReleaseLayerResponse*) {
  const grpc::Status entered = Enter("ReleaseLayer", context, true);
  MutexLock lock(mutex_);
  layers_.erase(request->layer_id());
  return entered;
}

}  // namespace gemmd::client
