// What    The version that Hello, GetStatus, --version and gemmd_build_info report.
#ifndef GEMMD_SERVER_VERSION_H_
#define GEMMD_SERVER_VERSION_H_

#include <string>

namespace gemmd {

inline std::string Version() { return GEMMD_VERSION; }

}  // namespace gemmd

#endif  // GEMMD_SERVER_VERSION_H_
