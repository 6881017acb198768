#include "client/address.h"

#include <sys/un.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd::client {
namespace {

constexpr char kSystemSocket[] = "/run/gemmd/gemmd.sock";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string DefaultPath() {
  std::vector<std::string> candidates;
  const std::string runtime = Environment("XDG_RUNTIME_DIR");
  if (!runtime.empty()) candidates.push_back(runtime + "/gemmd/gemmd.sock");
  candidates.push_back(kSystemSocket);
  for (const std::string& candidate : candidates) {
    std::error_code ignored;
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  }
  return candidates.front();
}

// Other gRPC targets have a scheme before their first colon; a path has a slash first or no colon.
bool IsPath(const std::string& address) {
  const size_t colon = address.find(':');
  return colon == std::string::npos || address.find('/') < colon;
}

absl::StatusOr<Address> UnixAddress(std::string path, std::string origin) {
  path = std::filesystem::absolute(path).lexically_normal().string();
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_ADDRESS",
                 absl::StrCat("socket path has ", path.size(), " bytes; at most ",
                              sizeof(sockaddr_un::sun_path) - 1, " are possible: ", path));
  }
  return Address{.target = "unix:" + path, .path = path, .origin = std::move(origin)};
}

}  // namespace

std::string Address::Text() const {
  return absl::StrCat(path.empty() ? target : path, " (", origin, ")");
}

absl::StatusOr<Address> ResolveAddress(const std::string& explicit_address) {
  std::string origin = "given";
  std::string address = explicit_address;
  if (address.empty()) {
    origin = "$GEMMD_SOCKET";
    address = Environment("GEMMD_SOCKET");
  }
  if (address.empty()) return UnixAddress(DefaultPath(), "default");
  if (absl::StartsWith(address, "unix://")) return UnixAddress(address.substr(7), origin);
  if (absl::StartsWith(address, "unix:")) return UnixAddress(address.substr(5), origin);
  if (IsPath(address)) return UnixAddress(address, origin);
  return Address{.target = address, .path = "", .origin = origin};
}

}  // namespace gemmd::client
