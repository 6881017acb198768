// What    A whole daemon inside the test process, on sockets in a short temporary directory, with
//         the CPU device; and what clients of it need.
#ifndef GEMMD_TESTS_SERVER_FIXTURE_H_
#define GEMMD_TESTS_SERVER_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/session/unique_fd.h"
#include "gemmd/v1/admin.grpc.pb.h"
#include "gemmd/v1/attach.grpc.pb.h"
#include "gemmd/v1/gemm.grpc.pb.h"
#include "gemmd/v1/layer.grpc.pb.h"
#include "gemmd/v1/program.grpc.pb.h"
#include "gemmd/v1/region.grpc.pb.h"
#include "gemmd/v1/session.grpc.pb.h"
#include "server/config.h"
#include "server/daemon.h"

namespace gemmd {

// Removed with everything in it. Short, because a socket's path may have 107 bytes.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  std::filesystem::path path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Flags of a daemon in `directory`.
FlagValues FlagsFor(const TempDir& directory);

// A client's end of the session socket.
class SessionSocketClient {
 public:
  explicit SessionSocketClient(const std::string& path);
  bool connected() const { return connected_; }
  int fd() const { return fd_.get(); }
  void Send(const std::string& packet, const std::vector<int>& fds = {});
  // Waits up to 5 seconds; false at the end of the connection.
  bool Receive(v1::SessionSocketResponse& response);
  v1::SessionSocketResponse Call(const v1::SessionSocketRequest& request,
                                 const std::vector<int>& fds = {});
  std::string Open(const std::string& name = "test");  // the token
  uint64_t PassMemory(int fd, uint64_t bytes);         // the ticket

 private:
  UniqueFd fd_;
  bool connected_ = false;
};

// A memfd of `size` bytes, sealed against shrinking, mapped into the test.
class SharedMemory {
 public:
  explicit SharedMemory(uint64_t size);
  ~SharedMemory();
  int fd() const { return fd_.get(); }
  uint64_t size() const { return size_; }
  template <typename T>
  T* as(uint64_t byte_offset = 0) const {
    return reinterpret_cast<T*>(data_ + byte_offset);
  }

 private:
  UniqueFd fd_;
  uint64_t size_;
  char* data_;
};

// What a failed call says.
std::string ReasonOf(const grpc::Status& status);

// A layer of 4 x 8 int8 weights w[n][k] = n + k - 3, scale 1 per row, and a request on it. Small integers in
// float32: the results are exact.
inline constexpr int kN = 4, kK = 8;
inline float Weight(int n, int k) { return static_cast<float>(n + k - 3); }
inline float Input(int m, int k) { return static_cast<float>(m - k % 3); }
float Expected(int m, int n);

class DaemonTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  void StartDaemon(const FlagValues& more = {});

  // A context with a deadline and, unless empty, the token.
  std::unique_ptr<grpc::ClientContext> Context(const std::string& token,
                                               absl::Duration within = absl::Seconds(20)) const;
  std::string OpenBySocket(const std::string& name = "test");

  v1::RegionRef RegisterDaemonRegion(const std::string& token, uint64_t size);
  void Write(const std::string& token, const v1::RegionRef& region, uint64_t offset,
             const std::string& data);
  std::string Read(const std::string& token, const v1::RegionRef& region, uint64_t offset,
                   uint64_t size);

  // Registers the layer above. Returns the final message's layer.
  v1::LayerInfo RegisterLayer(const std::string& token, const std::string& name = "layer");
  grpc::Status TryRegisterLayer(const std::string& token, const v1::RegisterLayerRequest& request,
                                v1::LayerInfo* layer, int* messages = nullptr);
  v1::RegisterLayerRequest LayerRequestIn(const v1::RegionRef& region) const;

  // A GEMM of `rows` rows whose x and y lie in one new region.
  v1::GemmRequest MakeGemm(const std::string& token, uint64_t layer_id, int rows);
  // Whether y of `request` holds the expected values.
  void ExpectResult(const std::string& token, const v1::GemmRequest& request);

  uint64_t max_bundle_bytes_ = kMaxBundleBytes;  // of the next StartDaemon
  TempDir directory_;
  std::unique_ptr<Daemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::SessionService::Stub> sessions_;
  std::unique_ptr<v1::RegionService::Stub> regions_;
  std::unique_ptr<v1::LayerService::Stub> layers_;
  std::unique_ptr<v1::GemmService::Stub> gemms_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  std::vector<std::unique_ptr<SessionSocketClient>> connections_;
  std::atomic<int> drains_{0};
};

}  // namespace gemmd

#endif  // GEMMD_TESTS_SERVER_FIXTURE_H_
