#include "kernels/jit/compile_helper.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "kernels/base/status.h"
#include "kernels/jit/compile_backend.h"
#include "kernels/jit/compiler.h"
#include "kernels/jit/embedded_sources.h"
#include "kernels/jit/helper_protocol.h"

namespace gemmd::jit {
namespace {

HelperMessage Hello(const absl::StatusOr<const NvrtcTable*>& nvrtc) {
  const CompilerFacts facts = FactsOf(nvrtc);
  return {kHelperHello, EmbeddedSourcesDigest(), facts.name,
          facts.path,   facts.problem,           absl::StrJoin(facts.architectures, ",")};
}

HelperMessage Answer(const absl::StatusOr<CompiledKernel>& kernel) {
  const absl::Status status = kernel.status();
  HelperMessage answer = {absl::StrCat(static_cast<int>(status.code())),
                          ReasonOf(status),
                          std::string(status.message()),
                          "",
                          "",
                          "",
                          ""};
  if (!kernel.ok()) return answer;
  answer[3] = kernel->lowered_name;
  answer[4] = kernel->log;
  answer[5] = kernel->usage;
  answer[6].assign(reinterpret_cast<const char*>(kernel->cubin.data()), kernel->cubin.size());
  return answer;
}

absl::StatusOr<CompiledKernel> Serve(const HelperMessage& request,
                                     const absl::StatusOr<const NvrtcTable*>& nvrtc) {
  if (!nvrtc.ok()) return nvrtc.status();
  return Compile({request[0], request[1], request[2], request[3]}, **nvrtc);
}

// A terminal's or a container's signals are for the daemon, which drains and then closes the socket.
void LeaveSignalsToTheDaemon() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_IGN);
  sigset_t alarm_only;
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  sigprocmask(SIG_UNBLOCK, &alarm_only, nullptr);
  signal(SIGALRM, SIG_DFL);
}

// A thread that sees the parent's end of the socket close, which it does however the parent ends. PR_SET_PDEATHSIG
// would kill a helper at the end of the parent's thread that started it, while others use it.
void* EndWithTheDaemon(void*) {
  pollfd parent = {.fd = kHelperSocket, .events = POLLRDHUP, .revents = 0};
  while (poll(&parent, 1, -1) < 0 && errno == EINTR) {
  }
  sleep(kHelperEndSeconds);
  kill(getpid(), SIGKILL);
  return nullptr;
}

// Without the thread the alarm remains.
void WatchTheDaemon() {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, &EndWithTheDaemon, nullptr) == 0) pthread_detach(thread);
}

absl::StatusOr<const NvrtcTable*> LoadInTime() {
  alarm(kHelperPatienceSeconds);
  absl::StatusOr<const NvrtcTable*> nvrtc = LoadNvrtc();
  alarm(0);
  return nvrtc;
}

}  // namespace

int RunCompileHelper() {
  LeaveSignalsToTheDaemon();
  WatchTheDaemon();
  const absl::StatusOr<const NvrtcTable*> nvrtc = LoadInTime();
  if (!SendMessage(kHelperSocket, Hello(nvrtc)).ok()) return 1;
  while (true) {
    const auto request = ReceiveMessage(kHelperSocket, 4, absl::InfiniteFuture());
    if (!request.ok()) return absl::IsUnavailable(request.status()) ? 0 : 1;
    alarm(kHelperPatienceSeconds);
    const HelperMessage answer = Answer(Serve(*request, nvrtc));
    alarm(0);
    if (!SendMessage(kHelperSocket, answer).ok()) return 1;
  }
}

}  // namespace gemmd::jit
