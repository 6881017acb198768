// What    The helper's side: a process that compiles what its parent asks for, until the parent
//         closes. A crash or hang of the compiler ends this process, not the daemon.
// Exit    0 the parent closed; 1 the socket is not usable; killed by SIGALRM when a kernel takes
//         longer than kHelperPatience, in case the parent is gone too.
#ifndef GEMMD_KERNELS_JIT_COMPILE_HELPER_H_
#define GEMMD_KERNELS_JIT_COMPILE_HELPER_H_

namespace gemmd::jit {

inline constexpr unsigned kHelperPatienceSeconds = 600;

// Serves on file descriptor kHelperSocket (helper_protocol.h). Returns the process's exit code.
int RunCompileHelper();

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_COMPILE_HELPER_H_
