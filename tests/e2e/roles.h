// What    What this program does when the harness starts it as a client process ($GEMMD_E2E_ROLE).
//           steady      runs one GEMM after the other until SIGTERM; every answer must be right
//           recovering  the same, but a lost daemon is waited for: prints "recovered N" each time
//           busy        keeps 64 large requests in flight (to be killed in the middle)
//           registering registers and releases layers without end (to be killed in the middle)
//           hoarding    registers many regions and layers and waits (to be killed)
//           enormous    waits for a request that takes minutes (to be killed)
//         Each prints "ready" once it does its work.
// Exit    0 when everything was right until SIGTERM.
#ifndef GEMMD_TESTS_E2E_ROLES_H_
#define GEMMD_TESTS_E2E_ROLES_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/session.h"

namespace gemmd::e2e {

// A client at $GEMMD_SOCKET with a request of 2^27 rows on the CPU device. x and y are shared memory
// that nobody has touched.
struct EnormousJob {
  client::Session session;
  client::Region memory;
  client::Layer layer;
  client::Gemm gemm;
};
absl::StatusOr<std::unique_ptr<EnormousJob>> MakeEnormousJob();

int RunRole(const std::string& role);

}  // namespace gemmd::e2e

#endif  // GEMMD_TESTS_E2E_ROLES_H_
