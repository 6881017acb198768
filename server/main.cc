// gemmd: the daemon. See gemmd --help.
#include <malloc.h>

#include <iostream>
#include <string>

#include "core/prewarm.h"
#include "server/config.h"
#include "server/exit_codes.h"
#include "server/flags.h"
#include "server/run.h"

namespace {

// Not for people: the daemon starts itself with this flag, as a process that may crash.
constexpr char kCompileHelperFlag[] = "--compile_helper";

// Large buffers go back to the system when they are freed, instead of staying in one arena a thread.
void LimitKeptMemory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_ARENA_MAX, 8);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == kCompileHelperFlag) return gemmd::RunCompileHelper();
  LimitKeptMemory();
  const gemmd::CommandLine command = gemmd::ParseCommandLine(argc, argv);
  auto config = gemmd::LoadConfig(command.values, gemmd::SystemEnvironment());
  if (!config.ok()) {
    std::cerr << "gemmd: " << std::string(config.status().message()) << "\n";
    return gemmd::ExitCodeOf(config.status());
  }
  config->config.compile_helper = {"/proc/self/exe", kCompileHelperFlag};
  if (!command.check_config) return gemmd::RunDaemon(*config);
  for (const std::string& warning : config->warnings) std::cerr << "gemmd: " << warning << "\n";
  if (const std::string& why = config->config.no_cache_dir; !why.empty()) {
    std::cerr << "gemmd: " << why << "; kernels live in memory only\n";
  }
  for (const gemmd::ConfigEntry& entry : config->entries) {
    std::cout << entry.name << ": " << entry.value << "  # " << entry.origin << "\n";
  }
  const auto unusable = gemmd::UnusableRoots(config->config);
  for (const auto& [root, why] : unusable) {
    std::cerr << "gemmd: checkpoint_roots: " << root << ": " << why << "\n";
  }
  return unusable.empty() ? 0 : gemmd::kExitBadConfig;
}
