// gemmd: the daemon. See gemmd --help.
#include <iostream>
#include <string>

#include "server/config.h"
#include "server/exit_codes.h"
#include "server/flags.h"
#include "server/run.h"

int main(int argc, char** argv) {
  const gemmd::CommandLine command = gemmd::ParseCommandLine(argc, argv);
  const auto config = gemmd::LoadConfig(command.values, gemmd::SystemEnvironment());
  if (!config.ok()) {
    std::cerr << "gemmd: " << std::string(config.status().message()) << "\n";
    return gemmd::ExitCodeOf(config.status());
  }
  if (!command.check_config) return gemmd::RunDaemon(*config);
  for (const gemmd::ConfigEntry& entry : config->entries) {
    std::cout << entry.name << ": " << entry.value << "  # " << entry.origin << "\n";
  }
  return 0;
}
