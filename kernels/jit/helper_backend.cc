#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "kernels/jit/compile_backend.h"
#include "kernels/jit/embedded_sources.h"
#include "kernels/jit/helper_protocol.h"

extern char** environ;

namespace gemmd::jit {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(60);  // loading NVRTC from a cold disk
constexpr absl::Duration kIdleLimit = absl::Seconds(30);
constexpr absl::Duration kLookPause = absl::Seconds(10);

absl::Status CannotStart(absl::string_view why) {
  return Error(absl::StatusCode::kUnavailable, "HELPER_UNAVAILABLE",
               absl::StrCat("the compile helper does not start: ", why));
}

// "signal 11 (Segmentation fault)" or "exit code 3".
std::string DescribeEnd(int status) {
  if (WIFSIGNALED(status)) {
    return absl::StrCat("signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  }
  return absl::StrCat("exit code ", WEXITSTATUS(status));
}

// Starts `command` with `socket` as kHelperSocket and no other file but the standard streams.
absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& command, int socket) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, socket, kHelperSocket);
  posix_spawn_file_actions_addclosefrom_np(&actions, kHelperSocket + 1);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return CannotStart(absl::StrCat(command[0], ": ", std::strerror(error)));
  return pid;
}

// One helper process. Destruction kills and reaps it.
class Helper {
 public:
  Helper(pid_t pid, int socket) : pid_(pid), socket_(socket) {}
  ~Helper() { (void)End(); }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  static absl::StatusOr<std::unique_ptr<Helper>> Start(const std::vector<std::string>& command,
                                                       const std::function<bool()>& abandoned) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
      return CannotStart(std::strerror(errno));
    }
    // dup2 onto itself would keep O_CLOEXEC.
    const int theirs = fcntl(sockets[1], F_DUPFD_CLOEXEC, kHelperSocket + 1);
    close(sockets[1]);
    const absl::StatusOr<pid_t> pid = Spawn(command, theirs);
    close(theirs);
    if (!pid.ok()) {
      close(sockets[0]);
      return pid.status();
    }
    auto helper = std::make_unique<Helper>(*pid, sockets[0]);
    GEMMD_RETURN_IF_ERROR(helper->Greet(abandoned));
    return helper;
  }

  const CompilerFacts& facts() const { return facts_; }
  const std::string& compiler() const { return facts_.name; }
  absl::Time idle_since = absl::Now();

  // Of an idle helper: it says nothing, so whatever can be read is the end of its socket.
  bool IsThere() const {
    pollfd end = {.fd = socket_, .events = POLLIN, .revents = 0};
    return poll(&end, 1, 0) == 0;
  }

  // Not to be used again after Cancelled or COMPILER_CRASHED.
  absl::StatusOr<CompiledKernel> Compile(const KernelSource& source, absl::Duration limit,
                                         const std::function<bool()>& abandoned) {
    absl::Status sent = SendMessage(
        socket_, {source.program, source.name_expression, source.architecture, source.label});
    if (!sent.ok()) return Crashed(source, sent, limit);
    const auto answer = ReceiveMessage(socket_, 7, absl::Now() + limit, abandoned);
    if (absl::IsCancelled(answer.status())) return answer.status();
    if (!answer.ok()) return Crashed(source, answer.status(), limit);
    int code = 0;
    if (!absl::SimpleAtoi((*answer)[0], &code)) {
      return Crashed(source, absl::DataLossError("no status"), limit);
    }
    if (code != 0) {
      return Error(static_cast<absl::StatusCode>(code), (*answer)[1], (*answer)[2]);
    }
    return Assemble(source, *answer);
  }

 private:
  absl::Status Greet(const std::function<bool()>& abandoned) {
    const auto hello = ReceiveMessage(socket_, 6, absl::Now() + kStartLimit, abandoned);
    if (absl::IsCancelled(hello.status())) return hello.status();
    if (!hello.ok()) {
      return CannotStart(absl::StrCat(hello.status().message(), ", ended by ", End()));
    }
    if ((*hello)[0] != kHelperHello || (*hello)[1] != EmbeddedSourcesDigest()) {
      return CannotStart("it is of another build of gemmd");
    }
    facts_ = {.name = (*hello)[2], .path = (*hello)[3], .problem = (*hello)[4]};
    for (const absl::string_view part : absl::StrSplit((*hello)[5], ',', absl::SkipEmpty())) {
      int number = 0;
      if (absl::SimpleAtoi(part, &number)) facts_.architectures.push_back(number);
    }
    return absl::OkStatus();
  }

  CompiledKernel Assemble(const KernelSource& source, const HelperMessage& answer) const {
    CompiledKernel kernel;
    kernel.lowered_name = answer[3];
    kernel.log = answer[4];
    kernel.usage = answer[5];
    kernel.cubin.resize(answer[6].size());
    std::memcpy(kernel.cubin.data(), answer[6].data(), answer[6].size());
    kernel.key = KernelKey(source, compiler());
    kernel.architecture = source.architecture;
    kernel.compiler = compiler();
    kernel.label = source.label.empty() ? source.name_expression : source.label;
    return kernel;
  }

  absl::Status Crashed(const KernelSource& source, const absl::Status& cause,
                       absl::Duration limit) {
    const bool late = absl::IsDeadlineExceeded(cause);
    const std::string end = End();
    return Error(
        absl::StatusCode::kInternal, "COMPILER_CRASHED",
        absl::StrCat("the compiler of ", source.name_expression, " for ", source.architecture,
                     late ? absl::StrCat(" took longer than ", absl::FormatDuration(limit))
                          : absl::StrCat(" died: ", end)));
  }

  std::string End() {
    if (pid_ < 0) return "";
    close(socket_);
    int status = 0;
    // A helper whose parent closed leaves by itself; one that hangs does not.
    const absl::Time patience = absl::Now() + absl::Milliseconds(20);
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (absl::Now() > patience) kill(pid_, SIGKILL);
      absl::SleepFor(absl::Milliseconds(1));
    }
    pid_ = -1;
    return DescribeEnd(status);
  }

  pid_t pid_;
  const int socket_;
  CompilerFacts facts_;
};

class Helpers : public CompileBackend {
 public:
  Helpers(std::vector<std::string> command, absl::Duration limit)
      : command_(std::move(command)), limit_(limit) {}

  absl::StatusOr<std::string> Identity() override {
    {
      MutexLock lock(mutex_);
      if (!last_.name.empty()) return last_.name;
    }
    // Asked again when there is none: NVRTC may be installed while the daemon runs.
    absl::StatusOr<std::unique_ptr<Helper>> helper = Take([this] { return stopped_.load(); });
    if (absl::IsCancelled(helper.status())) return helper.status();
    if (!helper.ok()) {
      Found({.problem = std::string(helper.status().message())});
      return helper.status();
    }
    CompilerFacts facts = (*helper)->facts();
    Found(facts);
    if (facts.name.empty()) {
      return Error(absl::StatusCode::kUnavailable, "NVRTC_MISSING", facts.problem);
    }
    PutBack(*std::move(helper));
    return std::move(facts.name);
  }
  CompilerFacts LastFacts() const override {
    MutexLock lock(mutex_);
    return last_;
  }

  void LookForCompiler(const std::function<bool()>& abandoned) override {
    const auto ends = [&] { return stopped_ || (abandoned && abandoned()); };
    if (!BeginLook(ends)) return;
    absl::StatusOr<std::unique_ptr<Helper>> helper = Take(ends);
    const bool cancelled = absl::IsCancelled(helper.status());
    if (helper.ok()) {  // otherwise what was found before is not known to be gone
      Found((*helper)->facts());
      PutBack(*std::move(helper));
    }
    MutexLock lock(mutex_);
    looks_ = false;
    if (!cancelled) next_look_ = absl::Now() + kLookPause;
    looked_.NotifyAll();
  }

  absl::StatusOr<std::vector<int>> Architectures() override {
    GEMMD_RETURN_IF_ERROR(Identity().status());
    return LastFacts().architectures;
  }

  absl::StatusOr<CompiledKernel> Compile(const KernelSource& source, const std::string& compiler,
                                         const std::function<bool()>& abandoned) override {
    GEMMD_RETURN_IF_ERROR(CheckArchitecture(source.architecture));
    const auto ends = [&] { return stopped_ || (abandoned && abandoned()); };
    GEMMD_ASSIGN_OR_RETURN(std::unique_ptr<Helper> helper, Take(ends));
    if (helper->compiler() != compiler) return Changed(*helper, compiler);
    absl::StatusOr<CompiledKernel> kernel = helper->Compile(source, limit_, ends);
    const bool ended =
        absl::IsCancelled(kernel.status()) || ReasonOf(kernel.status()) == "COMPILER_CRASHED";
    if (!ended) PutBack(std::move(helper));
    return kernel;
  }

  void Rest() override {
    std::vector<std::unique_ptr<Helper>> old;
    MutexLock lock(mutex_);
    for (auto& helper : idle_) {
      if (absl::Now() - helper->idle_since > kIdleLimit) old.push_back(std::move(helper));
    }
    std::erase(idle_, nullptr);
  }

  void Stop() override { stopped_ = true; }

 private:
  // Whether this thread shall look for the compiler. Whoever comes during a look waits for what it finds.
  bool BeginLook(const std::function<bool()>& ends) {
    MutexLock lock(mutex_);
    while (looks_) {
      if (ends()) return false;
      looked_.WaitUntil(mutex_, absl::Now() + kAbandonPoll,
                        [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !looks_; });
    }
    const bool lives = std::any_of(idle_.begin(), idle_.end(),
                                   [](const auto& helper) { return helper->IsThere(); });
    if (lives || absl::Now() < next_look_) return false;
    looks_ = true;
    return true;
  }

  absl::StatusOr<std::unique_ptr<Helper>> Take(const std::function<bool()>& abandoned) {
    {
      MutexLock lock(mutex_);
      while (!idle_.empty()) {
        std::unique_ptr<Helper> helper = std::move(idle_.back());
        idle_.pop_back();
        if (helper->IsThere()) return helper;  // one that died while it was idle costs no kernel
      }
    }
    if (abandoned()) return absl::CancelledError("no compile helper is started any more");
    return Helper::Start(command_, abandoned);
  }

  // Helpers of another compiler than that are of no use any more.
  void Found(CompilerFacts facts) {
    std::vector<std::unique_ptr<Helper>> old;
    MutexLock lock(mutex_);
    if (facts.name != last_.name) old.swap(idle_);
    last_ = std::move(facts);
  }

  // One that worked while another compiler was found ends.
  void PutBack(std::unique_ptr<Helper> helper) {
    helper->idle_since = absl::Now();
    MutexLock lock(mutex_);
    if (!last_.name.empty() && helper->compiler() == last_.name) idle_.push_back(std::move(helper));
  }

  absl::Status Changed(const Helper& helper, const std::string& expected) {
    Found(helper.facts());
    return Error(absl::StatusCode::kUnavailable, "COMPILER_CHANGED",
                 absl::StrCat("NVRTC is now '", helper.compiler(), "', no longer '", expected,
                              "'; ask again"));
  }

  const std::vector<std::string> command_;
  const absl::Duration limit_;
  std::atomic<bool> stopped_{false};
  mutable Mutex mutex_;
  CompilerFacts last_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Helper>> idle_ ABSL_GUARDED_BY(mutex_);
  CondVar looked_;
  bool looks_ ABSL_GUARDED_BY(mutex_) = false;  // somebody, in LookForCompiler
  absl::Time next_look_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace

std::unique_ptr<CompileBackend> HelperBackend(std::vector<std::string> command,
                                              absl::Duration limit) {
  return std::make_unique<Helpers>(std::move(command), limit);
}

}  // namespace gemmd::jit
