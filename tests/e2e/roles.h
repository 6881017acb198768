// What    What this program does when the harness starts it as a client process ($GEMMD_E2E_ROLE).
//           steady      runs one GEMM after the other until SIGTERM; every answer must be right
//           recovering  the same, but a lost daemon is waited for: prints "recovered N" each time
//           busy        keeps 64 large requests in flight (to be killed in the middle)
//           registering registers and releases layers without end (to be killed in the middle)
//           hoarding    registers many regions and layers and waits (to be killed)
//         Each prints "ready" once it does its work.
// Exit    0 when everything was right until SIGTERM.
#ifndef GEMMD_TESTS_E2E_ROLES_H_
#define GEMMD_TESTS_E2E_ROLES_H_

#include <string>

namespace gemmd::e2e {

int RunRole(const std::string& role);

}  // namespace gemmd::e2e

#endif  // GEMMD_TESTS_E2E_ROLES_H_
