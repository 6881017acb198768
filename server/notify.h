// What    Tells systemd about readiness, status and liveness.
// Why     The protocol is one datagram to $NOTIFY_SOCKET, so this is shorter than linking libsystemd, which
//         Debian offers as a shared library only: a static build could not have it.
// Source  sd_notify(3).
#ifndef GEMMD_SERVER_NOTIFY_H_
#define GEMMD_SERVER_NOTIFY_H_

#include <string>

#include "absl/time/time.h"

namespace gemmd {

// Does nothing without $NOTIFY_SOCKET. `state` is for example "READY=1\nSTATUS=serving".
void NotifySystemd(const std::string& state);

// How often to send WATCHDOG=1: half of what systemd asks of this process; infinite when it asks nothing.
absl::Duration WatchdogPeriod();

}  // namespace gemmd

#endif  // GEMMD_SERVER_NOTIFY_H_
