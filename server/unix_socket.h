// What    Addresses of Unix sockets. `path` fits (config.h checks it).
#ifndef GEMMD_SERVER_UNIX_SOCKET_H_
#define GEMMD_SERVER_UNIX_SOCKET_H_

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace gemmd {

inline sockaddr_un UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  return address;
}

}  // namespace gemmd

#endif  // GEMMD_SERVER_UNIX_SOCKET_H_
