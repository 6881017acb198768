#include "server/metrics/http_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/session/unique_fd.h"
#include "kernels/base/mutex.h"

namespace gemmd {
namespace {

constexpr int kThreads = 8;
constexpr size_t kMaxWaiting = 128;  // connections; beyond them the oldest is closed
constexpr int kBacklog = 128;
constexpr size_t kMaxRequestBytes = 32 << 10;
constexpr absl::Duration kFirstByte = absl::Seconds(1);
constexpr absl::Duration kWholeRequest = absl::Seconds(3);
constexpr absl::Duration kLinger = absl::Milliseconds(200);
constexpr int kIdleMicroseconds = 50000;  // between looks whether to stop
constexpr int kSliceMilliseconds = 20;    // how late a stop can be seen

// A connection with a deadline and a bound on the bytes it sends.
class BoundedStream : public httplib::Stream {
 public:
  BoundedStream(int fd, const std::atomic<bool>* stopping) : fd_(fd), stopping_(stopping) {}

  bool is_readable() const override {
    return begin_ < end_ || Wait(POLLIN, received_ == 0 ? first_byte_ : deadline_);
  }
  bool is_writable() const override { return Wait(POLLOUT, deadline_); }

  ssize_t read(char* data, size_t size) override {
    if (begin_ == end_ && !Fill()) return -1;
    const size_t count = std::min(size, end_ - begin_);
    std::memcpy(data, buffer_ + begin_, count);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* data, size_t size) override {
    if (!is_writable()) return -1;
    return send(fd_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  // A close with unread bytes would destroy the answer on its way.
  void Finish() {
    ::shutdown(fd_, SHUT_WR);
    const absl::Time until = absl::Now() + kLinger;
    while (received_ < 2 * kMaxRequestBytes && Wait(POLLIN, until)) {
      const ssize_t count = recv(fd_, buffer_, sizeof buffer_, MSG_DONTWAIT);
      if (count <= 0) return;
      received_ += static_cast<size_t>(count);
    }
  }

  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return fd_; }

 private:
  bool Fill() {
    if (received_ >= kMaxRequestBytes || !is_readable()) return false;
    const ssize_t count = recv(fd_, buffer_, sizeof buffer_, MSG_DONTWAIT);
    if (count <= 0) return false;
    begin_ = 0;
    end_ = static_cast<size_t>(count);
    received_ += end_;
    return true;
  }

  bool Wait(int16_t events, absl::Time until) const {
    while (!*stopping_ && absl::Now() < until) {
      pollfd poll_fd = {fd_, events, 0};
      if (poll(&poll_fd, 1, kSliceMilliseconds) > 0) return true;
    }
    return false;
  }

  const int fd_;
  const std::atomic<bool>* const stopping_;
  const absl::Time first_byte_ = absl::Now() + kFirstByte;
  const absl::Time deadline_ = absl::Now() + kWholeRequest;
  char buffer_[4096];
  size_t begin_ = 0, end_ = 0;
  size_t received_ = 0;
};

// Set while a thread runs a task only to close its connection: a task is all that knows the socket.
thread_local bool closing_only = false;

// The newest connection first; when too many wait, the oldest is closed.
class NewestFirst : public httplib::TaskQueue {
 public:
  NewestFirst() {
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Work(); });
  }

  void enqueue(std::function<void()> task) override {
    std::function<void()> oldest;
    {
      MutexLock lock(mutex_);
      tasks_.push_back(std::move(task));
      if (tasks_.size() > kMaxWaiting) {
        oldest = std::move(tasks_.front());
        tasks_.pop_front();
      }
      changed_.NotifyOne();
    }
    if (oldest == nullptr) return;
    closing_only = true;
    oldest();
    closing_only = false;
  }

  void shutdown() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Work() {
    while (true) {
      std::function<void()> task;
      {
        MutexLock lock(mutex_);
        changed_.Wait(mutex_, [this] { return !tasks_.empty() || stopping_; });
        if (tasks_.empty()) return;
        task = std::move(tasks_.back());
        tasks_.pop_back();
      }
      task();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// The library's own choice, SO_REUSEPORT, would let two daemons share a port.
void ReuseAddress(int fd) {
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

}  // namespace

HttpServer::HttpServer(HandlerWithResponse handler) {
  set_pre_routing_handler(std::move(handler));  // sees every method and path, before any body
  set_socket_options(ReuseAddress);
  set_idle_interval(0, kIdleMicroseconds);
  new_task_queue = [] { return new NewestFirst; };
}

HttpServer::~HttpServer() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  // The library's stop closes the listener while another thread accepts on it; this one waits.
  UniqueFd listener;
  while (!ended_) {
    const int fd = svr_sock_.exchange(INVALID_SOCKET);
    if (fd != INVALID_SOCKET) listener = UniqueFd(fd);
    absl::SleepFor(absl::Milliseconds(1));
  }
  thread_.join();
}

int HttpServer::Start(const std::string& host, int port) {
  host_ = host;
  if (port == 0) {
    port_ = bind_to_any_port(host);
  } else {
    port_ = bind_to_port(host, port) ? port : -1;
  }
  if (port_ < 0) return -1;
  thread_ = std::thread([this] { Run(); });
  while (!is_running() && !ended_) absl::SleepFor(absl::Milliseconds(1));
  return port_;
}

void HttpServer::Run() {
  while (!stopping_) {
    if (svr_sock_ != INVALID_SOCKET || bind_to_port(host_, port_)) {
      ::listen(svr_sock_, kBacklog);
      if (!listen_after_bind()) svr_sock_ = INVALID_SOCKET;
    }
    // It ends by itself when accept fails for a reason that passes.
    if (!stopping_) absl::SleepFor(absl::Milliseconds(100));
  }
  ended_ = true;
}

bool HttpServer::process_and_close_socket(socket_t socket) {
  if (closing_only) {
    ::close(socket);
    return false;
  }
  fcntl(socket, F_SETFD, FD_CLOEXEC);
  bool served = false;
  try {
    BoundedStream stream(socket, &stopping_);
    bool closed = false;
    served = process_request(stream, true, closed, nullptr);
    if (served) stream.Finish();
  } catch (const std::exception&) {
    served = false;  // of the library, about a header it cannot read
  }
  ::close(socket);
  return served;
}

}  // namespace gemmd
