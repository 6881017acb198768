// What    SIGTERM, SIGINT and SIGHUP as something to wait for, together with requests from other threads.
// Why     A handler, not a blocked mask with signalfd: the BLAS starts threads before main, and a signal that
//         such a thread does not block would end the process.
// Threads One object at a time; Wait from one thread, Wake from any.
#ifndef GEMMD_SERVER_SIGNALS_H_
#define GEMMD_SERVER_SIGNALS_H_

#include "absl/time/time.h"
#include "core/session/unique_fd.h"

namespace gemmd {

class Signals {
 public:
  Signals();
  ~Signals();  // the signals get their default meaning back
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // The number of the last signal that came since the previous call; 0 after Wake or `at_most`.
  int Wait(absl::Duration at_most);
  void Wake();

 private:
  const UniqueFd wake_;
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_SIGNALS_H_
