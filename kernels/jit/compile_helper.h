// What    The helper's side: a process that compiles what its parent asks for, until the parent
//         closes. A crash or hang of the compiler ends this process, not the daemon.
// Exit    0 the parent closed; 1 the socket is not usable; killed by SIGKILL when the parent closed a second ago, or is
//         gone, and NVRTC still loads or compiles; by SIGALRM when that takes longer than kHelperPatience.
#ifndef GEMMD_KERNELS_JIT_COMPILE_HELPER_H_
#define GEMMD_KERNELS_JIT_COMPILE_HELPER_H_

namespace gemmd::jit {

inline constexpr unsigned kHelperPatienceSeconds = 600;
inline constexpr unsigned kHelperEndSeconds = 1;  // the parent kills one that hangs sooner, and says so

// Serves on file descriptor kHelperSocket (helper_protocol.h). Returns the process's exit code.
int RunCompileHelper();

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_COMPILE_HELPER_H_
