#include "kernels/jit/helper_protocol.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "kernels/jit/encoding.h"

namespace gemmd::jit {
namespace {

constexpr uint64_t kMaxFieldBytes = uint64_t{256} << 20;

absl::Status Gone(absl::string_view what) {
  return Error(absl::StatusCode::kUnavailable, "HELPER_GONE", what);
}

// What one message is received from.
class Receiver {
 public:
  Receiver(int socket, absl::Time deadline, const std::function<bool()>& abandoned)
      : socket_(socket), deadline_(deadline), abandoned_(abandoned) {}

  absl::Status Bytes(char* bytes, size_t size) const {
    while (size > 0) {
      GEMMD_RETURN_IF_ERROR(AwaitInput());
      const ssize_t count = recv(socket_, bytes, size, MSG_DONTWAIT);
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (count <= 0) return Gone("the other end closed");
      bytes += count;
      size -= count;
    }
    return absl::OkStatus();
  }

  template <typename Integer>
  absl::StatusOr<Integer> Number() const {
    char bytes[sizeof(Integer)];
    GEMMD_RETURN_IF_ERROR(Bytes(bytes, sizeof(bytes)));
    return ReadInteger<Integer>({bytes, sizeof(bytes)});
  }

 private:
  absl::Status AwaitInput() const {
    while (true) {
      if (abandoned_ && abandoned_()) return absl::CancelledError("nobody waits any more");
      const absl::Duration left = deadline_ - absl::Now();
      if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer in time");
      const absl::Duration step =
          std::min(left + absl::Milliseconds(1), abandoned_ ? kAbandonPoll : absl::Minutes(1));
      pollfd waiting = {socket_, POLLIN, 0};
      const int ready = poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(step)));
      if (ready > 0) return absl::OkStatus();
      if (ready < 0 && errno != EINTR) return Gone(std::strerror(errno));
    }
  }

  const int socket_;
  const absl::Time deadline_;
  const std::function<bool()>& abandoned_;
};

}  // namespace

absl::Status SendMessage(int socket, const HelperMessage& message) {
  std::string bytes;
  AppendInteger(bytes, static_cast<uint32_t>(message.size()));
  for (const std::string& field : message) {
    AppendInteger(bytes, static_cast<uint64_t>(field.size()));
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

absl::StatusOr<HelperMessage> ReceiveMessage(int socket, size_t fields, absl::Time deadline,
                                             const std::function<bool()>& abandoned) {
  const Receiver receiver(socket, deadline, abandoned);
  GEMMD_ASSIGN_OR_RETURN(const uint32_t count, receiver.Number<uint32_t>());
  if (count != fields) {
    return absl::DataLossError(absl::StrCat("message of ", count, " fields, not ", fields));
  }
  HelperMessage message(fields);
  for (std::string& field : message) {
    GEMMD_ASSIGN_OR_RETURN(const uint64_t size, receiver.Number<uint64_t>());
    if (size > kMaxFieldBytes)
      return absl::DataLossError(absl::StrCat("field of ", size, " bytes"));
    field.resize(size);
    GEMMD_RETURN_IF_ERROR(receiver.Bytes(field.data(), size));
  }
  return message;
}

}  // namespace gemmd::jit
