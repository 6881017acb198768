// What    A child process made by fork and exec, its stdout read line by line, its end awaited with
//         a limit.
// Life    The destructor kills and reaps the child; it never touches another process.
// Threads One thread.
#ifndef GEMMD_TESTS_E2E_PROCESS_H_
#define GEMMD_TESTS_E2E_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace gemmd::e2e {

class Process {
 public:
  // `extra_environment` holds NAME=VALUE; stderr goes to `stderr_path`, or is shared when that is
  // empty.
  Process(const std::vector<std::string>& argv, const std::vector<std::string>& extra_environment,
          const std::string& stderr_path);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  bool running();
  void Signal(int signal);

  // The next line of its stdout; nothing at end of file or after `limit`.
  std::optional<std::string> ReadLine(absl::Duration limit);
  // Reads until a line starts with `prefix`; whether one came.
  bool ReadUntil(const std::string& prefix, absl::Duration limit);

  // The exit code, 128 + signal, or -1 after `limit`.
  int Wait(absl::Duration limit);
  // Everything it wrote to stdout that was not read as lines; call after Wait.
  std::string Rest();

 private:
  bool Fill(absl::Time deadline);

  pid_t pid_ = -1;
  int out_ = -1;
  std::string buffer_;
  std::optional<int> exit_code_;
};

}  // namespace gemmd::e2e

#endif  // GEMMD_TESTS_E2E_PROCESS_H_
