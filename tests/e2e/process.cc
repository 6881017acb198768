#include "tests/e2e/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/time/clock.h"

extern char** environ;

namespace gemmd::e2e {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Process::Process(const std::vector<std::string>& argv,
                 const std::vector<std::string>& extra_environment,
                 const std::string& stderr_path) {
  std::vector<std::string> words = argv;
  std::vector<std::string> environment = extra_environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  std::vector<char*> arguments = Pointers(words);
  std::vector<char*> variables = Pointers(environment);
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return;
  pid_ = fork();
  if (pid_ == 0) {
    dup2(pipe_fds[1], STDOUT_FILENO);
    if (!stderr_path.empty()) {
      dup2(open(stderr_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644), STDERR_FILENO);
    }
    execve(arguments[0], arguments.data(), variables.data());
    _exit(127);
  }
  close(pipe_fds[1]);
  out_ = pipe_fds[0];
}

Process::~Process() {
  if (pid_ > 0 && !exit_code_) {
    kill(pid_, SIGKILL);
    Wait(absl::Seconds(10));
  }
  if (out_ >= 0) close(out_);
}

bool Process::running() { return Wait(absl::ZeroDuration()) == -1; }

void Process::Signal(int signal) {
  if (pid_ > 0 && !exit_code_) kill(pid_, signal);
}

bool Process::Fill(absl::Time deadline) {
  const auto left =
      absl::ToInt64Milliseconds(std::max(deadline - absl::Now(), absl::ZeroDuration()));
  pollfd entry{.fd = out_, .events = POLLIN, .revents = 0};
  if (poll(&entry, 1, static_cast<int>(left)) <= 0) return false;
  char piece[4096];
  const ssize_t size = read(out_, piece, sizeof(piece));
  if (size <= 0) return false;
  buffer_.append(piece, static_cast<size_t>(size));
  return true;
}

std::optional<std::string> Process::ReadLine(absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  while (true) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (!Fill(deadline)) return std::nullopt;
  }
}

bool Process::ReadUntil(const std::string& prefix, absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  while (const auto line = ReadLine(deadline - absl::Now())) {
    if (line->compare(0, prefix.size(), prefix) == 0) return true;
    std::fprintf(stderr, "[%d] %s\n", static_cast<int>(pid_), line->c_str());
  }
  return false;
}

int Process::Wait(absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  while (!exit_code_) {
    int status = 0;
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended == pid_) {
      exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    } else if (ended < 0) {
      exit_code_ = 127;
    } else if (absl::Now() >= deadline) {
      return -1;
    } else if (!Fill(absl::Now() + absl::Milliseconds(2))) {  // a full pipe would hold it for ever
      absl::SleepFor(absl::Milliseconds(2));
    }
  }
  return *exit_code_;
}

std::string Process::Rest() {
  while (Fill(absl::Now() + absl::Seconds(1))) {
  }
  return std::exchange(buffer_, "");
}

}  // namespace gemmd::e2e
