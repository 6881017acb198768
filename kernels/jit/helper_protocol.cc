#include "kernels/jit/helper_protocol.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status.h"

namespace gemmd::jit {
namespace {

constexpr uint64_t kMaxFieldBytes = uint64_t{256} << 20;

absl::Status Gone(absl::string_view what) {
  return Error(absl::StatusCode::kUnavailable, "HELPER_GONE", what);
}

template <typename Integer>
void Append(std::string& bytes, Integer value) {
  for (size_t i = 0; i < sizeof(value); ++i) bytes += static_cast<char>(value >> 8 * i);
}

absl::Status AwaitInput(int socket, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer in time");
    pollfd waiting = {socket, POLLIN, 0};
    const int64_t milliseconds = std::min<int64_t>(absl::ToInt64Milliseconds(left) + 1, 60000);
    const int ready = poll(&waiting, 1, static_cast<int>(milliseconds));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Gone(std::strerror(errno));
  }
}

absl::Status ReceiveBytes(int socket, char* bytes, size_t size, absl::Time deadline) {
  while (size > 0) {
    GEMMD_RETURN_IF_ERROR(AwaitInput(socket, deadline));
    const ssize_t count = recv(socket, bytes, size, MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return Gone("the other end closed");
    bytes += count;
    size -= count;
  }
  return absl::OkStatus();
}

template <typename Integer>
absl::StatusOr<Integer> ReceiveInteger(int socket, absl::Time deadline) {
  unsigned char bytes[sizeof(Integer)];
  GEMMD_RETURN_IF_ERROR(
      ReceiveBytes(socket, reinterpret_cast<char*>(bytes), sizeof(bytes), deadline));
  Integer value = 0;
  for (size_t i = 0; i < sizeof(value); ++i) value |= static_cast<Integer>(bytes[i]) << 8 * i;
  return value;
}

}  // namespace

absl::Status SendMessage(int socket, const HelperMessage& message) {
  std::string bytes;
  Append(bytes, static_cast<uint32_t>(message.size()));
  for (const std::string& field : message) {
    Append(bytes, static_cast<uint64_t>(field.size()));
    bytes += field;
  }
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = send(socket, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Gone(std::strerror(errno));
    done += count;
  }
  return absl::OkStatus();
}

absl::StatusOr<HelperMessage> ReceiveMessage(int socket, size_t fields, absl::Time deadline) {
  GEMMD_ASSIGN_OR_RETURN(const uint32_t count, ReceiveInteger<uint32_t>(socket, deadline));
  if (count != fields) {
    return absl::DataLossError(absl::StrCat("message of ", count, " fields, not ", fields));
  }
  HelperMessage message(fields);
  for (std::string& field : message) {
    GEMMD_ASSIGN_OR_RETURN(const uint64_t size, ReceiveInteger<uint64_t>(socket, deadline));
    if (size > kMaxFieldBytes)
      return absl::DataLossError(absl::StrCat("field of ", size, " bytes"));
    field.resize(size);
    GEMMD_RETURN_IF_ERROR(ReceiveBytes(socket, field.data(), size, deadline));
  }
  return message;
}

}  // namespace gemmd::jit
