// What    gemmctl doctor: every step between a client and a result, each checked by doing it.
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cuda_memory.h"
#include "client/gemmctl/command.h"
#include "client/gemmctl/table.h"
#include "kernels/base/status.h"
#include "kernels/cuda/device_info.h"

namespace gemmd::gemmctl {
namespace {

constexpr char kToolVersion[] = "0.1.0";

struct Finding {
  std::string level;  // ok, warn or fail
  std::string check;
  std::string detail;
  std::string hint;
};

class Examination {
 public:
  void Ok(const std::string& check, const std::string& detail) { Add("ok", check, detail, ""); }
  void Warn(const std::string& check, const std::string& detail, const std::string& hint) {
    Add("warn", check, detail, hint);
  }
  // `code`: what the tool exits with, of the first failure.
  void Fail(const std::string& check, const std::string& detail, const std::string& hint,
            int code = kFailed) {
    Add("fail", check, detail, hint);
    if (exit_code_ == kDone) exit_code_ = code;
  }
  void FailFor(const std::string& check, const absl::Status& status, const std::string& hint) {
    Fail(check, std::string(status.message()), hint, ExitCode(status));
  }
  int exit_code() const { return exit_code_; }
  const std::vector<Finding>& findings() const { return findings_; }

 private:
  void Add(std::string level, std::string check, std::string detail, std::string hint) {
    findings_.push_back({std::move(level), std::move(check), std::move(detail), std::move(hint)});
  }
  std::vector<Finding> findings_;
  int exit_code_ = kDone;
};

// Why nothing can be seen at the path of the socket.
void FailForPath(const client::Address& address, int error, Examination& exam) {
  const std::string detail = absl::StrCat(address.Text(), ": ", std::strerror(error));
  if (error == EACCES) {
    exam.Fail("socket", detail, "this user may not look into the socket's folder: add the user to the folder's group",
              kNotAllowed);
  } else {
    exam.Fail("socket", detail, "start the daemon, or name its socket with --socket or $GEMMD_SOCKET", kNotRunning);
  }
}

// What to do about a daemon that does not answer at an address where something may be.
std::string HintForSilence(const client::Address& address, const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) return "something listens and does not answer: see the daemon's log";
  if (address.path.empty()) {
    return "daemons listen at Unix sockets: name one with --socket, or see whether what forwards this address runs";
  }
  return "no process listens at this socket, it is left over: start the daemon, which takes it over";
}

// Whether something may be at the address at all.
bool CheckSocketFile(const client::Address& address, Examination& exam) {
  if (address.path.empty()) {
    exam.Ok("socket", address.Text());
    return true;
  }
  struct stat info {};
  if (stat(address.path.c_str(), &info) != 0) {
    FailForPath(address, errno, exam);
    return false;
  }
  if (!S_ISSOCK(info.st_mode)) {
    exam.Fail("socket", address.Text() + ": is no socket",
              "name the daemon's socket with --socket or $GEMMD_SOCKET; in a container mount its folder, not the file",
              kNotRunning);
    return false;
  }
  exam.Ok("socket", address.Text());
  if (access(address.path.c_str(), R_OK | W_OK) != 0) {
    exam.Fail(
        "permissions", absl::StrCat("uid ", getuid(), " may not connect: ", std::strerror(errno)),
        "add the user to the socket's group, or widen its mode in the daemon's configuration",
        kNotAllowed);
    return false;
  }
  exam.Ok("permissions",
          absl::StrFormat("uid %d may connect; mode %o", getuid(), info.st_mode & 0777));
  return true;
}

void CheckVersion(const v1::HelloResponse& hello, Examination& exam) {
  const std::string text = absl::StrCat("daemon ", hello.server_version(), ", tool ", kToolVersion);
  if (hello.server_version() == kToolVersion) {
    exam.Ok("version", text);
  } else {
    exam.Warn("version", text,
              "unknown features are ignored; upgrade the older side when convenient");
  }
}

void CheckDevices(const v1::HelloResponse& hello, Examination& exam) {
  if (hello.devices_size() == 0) exam.Fail("devices", "none", "see the daemon's log");
  for (const v1::DeviceInfo& device : hello.devices()) {
    if (device.ready()) {
      exam.Ok("device " + device.id(), absl::StrCat(device.name(), ", ", device.architecture()));
    } else {
      exam.Fail("device " + device.id(), device.not_ready_reason(),
                "restart the daemon; if it stays, look at the driver (nvidia-smi)");
    }
  }
}

void CheckSession(const Context& context, bool socket, Examination& exam) {
  const std::string check = socket ? "session socket" : "session by RPC";
  client::SessionOptions options;
  options.address = context.socket;
  options.name = "gemmctl doctor";
  options.use_session_socket = socket;
  auto session = client::Session::Open(options);
  if (!session.ok()) {
    exam.FailFor(check, session.status(), "see the daemon's log");
    return;
  }
  if (!socket) {
    auto region = session->AllocateInDaemon("cpu", 4096, "doctor");
    if (region.ok()) {
      exam.Ok(check, "opened; daemon-owned memory works");
    } else {
      exam.FailFor(check, region.status(), "see the daemon's log");
    }
    return;
  }
  const auto region = session->AllocateHost(4096, "doctor");
  if (region.ok()) {
    exam.Ok(check, "opened");
    exam.Ok("memfd", "host memory is shared with the daemon");
  } else if (ReasonOf(region.status()) == "NO_SESSION_SOCKET") {
    exam.Warn(check, "cannot be reached; the session is kept by a stream",
              "mount the folder of the socket whole, so that the session socket is in it");
  } else {
    exam.Ok(check, "opened");
    exam.FailFor("memfd", region.status(),
                 "memfd_create may be forbidden (seccomp) or memory short");
  }
}

// A buffer of ours on the daemon's GPU, registered and given back.
void CheckIpc(const Context& context, const std::string& device, Examination& exam) {
  auto buffer = client::CudaBuffer::Create(device, 1 << 20);
  if (!buffer.ok()) {
    exam.FailFor("CUDA IPC " + device, buffer.status(),
                 "make the same GPU visible to client and daemon");
    return;
  }
  auto session = context.OpenSession("gemmctl doctor");
  if (!session.ok()) return;
  const auto region =
      session->RegisterCuda(reinterpret_cast<const void*>(buffer->address()), 1 << 20);
  if (region.ok()) {
    exam.Ok("CUDA IPC " + device, "memory of this process opens in the daemon");
  } else {
    exam.FailFor("CUDA IPC " + device, region.status(),
                 "run client and daemon on the same host, with the same GPU visible to both");
  }
}

void CheckCuda(const Context& context, const v1::HelloResponse& hello, Examination& exam) {
  const auto driver = cuda::LoadDriver();
  bool daemon_has_gpu = false;
  for (const v1::DeviceInfo& device : hello.devices()) {
    daemon_has_gpu |= absl::StartsWith(device.id(), "cuda:");
  }
  if (!driver.ok()) {
    if (daemon_has_gpu) {
      exam.Warn("libcuda", std::string(driver.status().message()),
                "this process can use daemon-owned memory only");
    } else {
      exam.Ok("libcuda", "not here, and not needed: the daemon has no GPU");
    }
    return;
  }
  exam.Ok("libcuda", "loaded");
  for (const v1::DeviceInfo& device : hello.devices()) {
    if (device.ready() && absl::StartsWith(device.id(), "cuda:"))
      CheckIpc(context, device.id(), exam);
  }
}

void CheckCache(const v1::GetStatusResponse& status, Examination& exam) {
  const std::string& directory = status.cache_directory();
  if (status.cache_in_memory_only()) {
    exam.Warn("cache",
              absl::StrCat(status.cache_warning().empty() ? "no directory" : status.cache_warning(),
                           "; kernels live in memory only"),
              "every start compiles its kernels again: name another with cache_dir, or mend this one and start again");
    return;
  }
  if (!status.cache_warning().empty()) {
    exam.Warn("cache", status.cache_warning(), "what the directory holds serves all the same");
    return;
  }
  std::error_code error;
  if (std::filesystem::is_directory(directory, error)) {
    exam.Ok("cache", directory);
  } else if (error == std::errc::permission_denied) {
    exam.Ok("cache", directory + "; this user may not look into it");
  } else {
    exam.Warn("cache", directory + ": not visible from here",
              "normal when the daemon runs in a container; else it was removed, and a restart of the daemon makes it "
              "anew");
  }
}

void CheckCompiler(const v1::GetStatusResponse& status, Examination& exam) {
  if (!status.compiler().empty()) {
    exam.Ok("compiler", absl::StrCat("NVRTC ", status.compiler(), ", ", status.compiler_path()));
  } else if (status.compiler_problem().empty()) {
    exam.Ok("compiler", "the daemon still looks for one");
  } else {
    exam.Warn("compiler", status.compiler_problem(),
              "the CPU device needs none; a GPU serves what the cache holds. An NVRTC that is "
              "installed now is found when the next kernel is asked for");
  }
}

// Connects to host:port and reads the start of an HTTP answer to /metrics.
absl::Status FetchMetrics(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return absl::InvalidArgumentError(address + " has no port");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon + 1);
  if (const int code = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); code != 0) {
    return absl::UnavailableError(absl::StrCat(address, ": ", gai_strerror(code)));
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{.tv_sec = 2, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  const bool connected = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0;
  freeaddrinfo(found);
  const std::string request = "GET /metrics HTTP/1.0\r\nHost: " + host + "\r\n\r\n";
  char answer[16] = {};
  const bool answered = connected && send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0 &&
                        recv(fd, answer, sizeof(answer) - 1, 0) > 0;
  if (fd >= 0) close(fd);
  if (answered && absl::StrContains(answer, " 200")) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(address, ": ", answered ? answer : std::strerror(errno)));
}

void CheckMetrics(const v1::GetStatusResponse& status, Examination& exam) {
  if (status.metrics_address().empty()) {
    exam.Warn("metrics", "the endpoint is off", "gemmctl metrics shows the same text");
    return;
  }
  if (const absl::Status fetched = FetchMetrics(status.metrics_address()); fetched.ok()) {
    exam.Ok("metrics", absl::StrCat("http://", status.metrics_address(), "/metrics"));
  } else {
    exam.Warn("metrics", std::string(fetched.message()),
              "loopback of the daemon's network namespace only");
  }
}

void CheckAdmin(const client::Admin& admin, Examination& exam) {
  const auto status = admin.Status();
  if (status.status().code() == absl::StatusCode::kPermissionDenied) {
    exam.Warn("admin", std::string(status.status().message()),
              "status, cache and metrics need the daemon's user or one of its admins");
    return;
  }
  if (!status.ok()) {
    exam.FailFor("admin", status.status(), "see the daemon's log");
    return;
  }
  exam.Ok("admin", absl::StrCat("allowed; ", status->sessions(), " sessions, ", status->layers(),
                                " layers"));
  if (status->draining()) exam.Fail("state", "the daemon drains", "wait for its restart");
  CheckCache(*status, exam);
  CheckCompiler(*status, exam);
  CheckMetrics(*status, exam);
}

void Examine(const Context& context, const client::Admin& admin, Examination& exam) {
  if (!CheckSocketFile(admin.address(), exam)) return;
  const auto hello = admin.Greet();
  if (!hello.ok()) {
    exam.FailFor("daemon", hello.status(), HintForSilence(admin.address(), hello.status()));
    return;
  }
  exam.Ok("daemon", absl::StrCat("pid ", hello->pid(), " answers"));
  CheckVersion(*hello, exam);
  CheckDevices(*hello, exam);
  CheckSession(context, /*socket=*/true, exam);
  CheckSession(context, /*socket=*/false, exam);
  CheckCuda(context, *hello, exam);
  CheckAdmin(admin, exam);
}

absl::StatusOr<int> RunDoctor(const Context& context, const Arguments&) {
  GEMMD_ASSIGN_OR_RETURN(const client::Admin admin, context.OpenAdmin());
  Examination exam;
  Examine(context, admin, exam);
  if (context.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Finding& finding : exam.findings()) {
      list.push_back({{"level", finding.level},
                      {"check", finding.check},
                      {"detail", finding.detail},
                      {"hint", finding.hint}});
    }
    context.PrintJson({{"ok", exam.exit_code() == kDone}, {"findings", list}});
  } else {
    for (const Finding& finding : exam.findings()) {
      context.Print(absl::StrCat(finding.level, std::string(5 - finding.level.size(), ' '),
                                 finding.check, ": ", finding.detail, "\n"));
      if (!finding.hint.empty()) context.Print("       hint: " + finding.hint + "\n");
    }
  }
  return exam.exit_code();
}

}  // namespace

Command DoctorCommand() {
  return {
      .name = "doctor",
      .summary = "check every step between a client and a result",
      .description =
          "  Each line is ok, warn or fail with a hint. Checked by doing it: socket and "
          "permissions, versions,\n"
          "  devices, session socket, shared host memory, a session without the socket, libcuda "
          "and CUDA IPC,\n"
          "  admin rights, cache directory, metrics endpoint. When lines say fail, the exit code is "
          "that of\n"
          "  the first: 69 when no daemon listens, 77 when it may not be reached, else 1.",
      .examples =
          "  gemmctl doctor\n  gemmctl doctor -o json | jq '.findings[] | select(.level != "
          "\"ok\")'",
      .run = RunDoctor};
}

}  // namespace gemmd::gemmctl
