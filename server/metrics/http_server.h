// What    An HTTP server for one small page: cpp-httplib's protocol over connections that cannot
//         hold it up. A connection serves one request, and has a time for its first byte, a time
//         for all of it, and a bound on what it may send.
// Threads A few; the newest connection is served first, so that silent ones delay a scrape by no
//         more than the time for a first byte; when too many wait, the oldest is closed.
// Source  https://github.com/yhirose/cpp-httplib
#ifndef GEMMD_SERVER_METRICS_HTTP_SERVER_H_
#define GEMMD_SERVER_METRICS_HTTP_SERVER_H_

#include <httplib.h>

#include <atomic>
#include <string>
#include <thread>

namespace gemmd {

class HttpServer : public httplib::Server {
 public:
  explicit HttpServer(HandlerWithResponse handler);  // answers every request
  ~HttpServer() override;

  // Binds and serves until destruction. Port 0 lets the system choose. The real port, or -1.
  int Start(const std::string& host, int port);

 private:
  bool process_and_close_socket(socket_t socket) override;
  void Run();

  std::string host_;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_METRICS_HTTP_SERVER_H_
