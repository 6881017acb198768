// What    The command line. Values stay text here; config.h checks them together with file and environment.
#ifndef GEMMD_SERVER_FLAGS_H_
#define GEMMD_SERVER_FLAGS_H_

#include <string>

#include "server/config.h"

namespace gemmd {

struct CommandLine {
  FlagValues values;          // only flags that were given
  bool check_config = false;  // validate, print the effective configuration, exit
};

// Exits by itself: 0 after --help and --version, 64 for a bad flag, 2 for a stray argument.
CommandLine ParseCommandLine(int argc, char** argv);

// What --help prints.
std::string ManualPage();

}  // namespace gemmd

#endif  // GEMMD_SERVER_FLAGS_H_
