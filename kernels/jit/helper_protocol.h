// What    Messages between the daemon and its compile helpers, over a stream socket.
// Layout  A message is a u32 number of fields, then each field as a u64 size and its bytes; all
//         integers are little-endian.
//           helper -> daemon, once   hello, sources digest, then CompilerFacts: compiler (empty:
//           none), its library, why there is none, architectures that it compiles for ("75,80,90")
//           daemon -> helper         program, name expression, architecture, label
//           helper -> daemon         status code, reason, message, lowered name, log, usage, cubin
// Errors  Unavailable HELPER_GONE: the other end closed. DeadlineExceeded. Cancelled: `abandoned` said
//         so. DataLoss: no such message.
// Threads One thread per socket.
#ifndef GEMMD_KERNELS_JIT_HELPER_PROTOCOL_H_
#define GEMMD_KERNELS_JIT_HELPER_PROTOCOL_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace gemmd::jit {

inline constexpr char kHelperHello[] = "gemmd compile helper 3";
inline constexpr int kHelperSocket = 3;  // its number in the helper

using HelperMessage = std::vector<std::string>;

absl::Status SendMessage(int socket, const HelperMessage& message);
// `abandoned` is asked every kAbandonPoll while nothing comes; null: never.
inline constexpr absl::Duration kAbandonPoll = absl::Milliseconds(20);
absl::StatusOr<HelperMessage> ReceiveMessage(int socket, size_t fields, absl::Time deadline,
                                             const std::function<bool()>& abandoned = nullptr);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_HELPER_PROTOCOL_H_
