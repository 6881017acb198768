// What    Exit codes of gemmd, and the start-up failures that lead to them.
// Source  sysexits.h for 64 to 78; systemd's RestartPreventExitStatus in deploy/systemd lists those
//         that a restart cannot cure.
#ifndef GEMMD_SERVER_EXIT_CODES_H_
#define GEMMD_SERVER_EXIT_CODES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gemmd {

inline constexpr int kExitDrained = 0;
inline constexpr int kExitUsage = 2;      // a stray argument
inline constexpr int kExitBadFlag = 64;   // unknown flag, or a value it cannot take
inline constexpr int kExitNoDevice = 69;  // no usable device
inline constexpr int kExitFatal =
    70;  // a CUDA context was lost, or the daemon could not stop in time
inline constexpr int kExitCannotCreate = 73;    // socket, cache directory or metrics port
inline constexpr int kExitAlreadyRunning = 75;  // another instance holds the lock
inline constexpr int kExitNotPermitted = 77;
inline constexpr int kExitBadConfig = 78;  // configuration file or environment

// Reasons of start-up failures (gemmd::Error); they never reach a client.
inline constexpr char kBadFlag[] = "BAD_FLAG";
inline constexpr char kBadConfig[] = "BAD_CONFIG";
inline constexpr char kNoDevice[] = "NO_DEVICE";
inline constexpr char kCannotCreate[] = "CANNOT_CREATE";
inline constexpr char kAlreadyRunning[] = "ALREADY_RUNNING";
inline constexpr char kNotPermitted[] = "NOT_PERMITTED";

// The exit code for a failed start; kExitFatal for reasons that are none of the above.
int ExitCodeOf(const absl::Status& status);

// Error with kNotPermitted for EACCES, EPERM and EROFS, else with kCannotCreate; `what` says what failed.
absl::Status SystemError(int error, absl::string_view what);

}  // namespace gemmd

#endif  // GEMMD_SERVER_EXIT_CODES_H_
