// What anyone who can reach the metrics port may send.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kScrape[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

class MetricsHttpTest : public DaemonTest {
 protected:
  void SetUp() override { StartDaemon({{"metrics_address", "127.0.0.1:0"}}); }

  UniqueFd Connect() const {
    const std::string& address = daemon_->metrics_address();
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << address;
    UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    return fd;
  }

  static std::string ReadAll(int fd) {
    std::string answer;
    char data[4096];
    for (ssize_t size; (size = recv(fd, data, sizeof data, 0)) > 0;)
      answer.append(data, static_cast<size_t>(size));
    return answer;
  }

  std::string Ask(const std::string& request) const {
    const UniqueFd fd = Connect();
    size_t sent = 0;
    while (sent < request.size()) {
      const ssize_t size =
          send(fd.get(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (size <= 0) break;
      sent += static_cast<size_t>(size);
    }
    return ReadAll(fd.get());
  }

  static std::string Status(const std::string& answer) {
    return answer.size() < 12 ? answer : answer.substr(9, 3);
  }
};

struct Case {
  const char* name;
  std::string request;
  const char* status;  // empty: any answer, or none
};

TEST_F(MetricsHttpTest, OnlyGetAndHeadOfMetricsAreServedAndNothingEndsTheDaemon) {
  const std::string end = " HTTP/1.1\r\nHost: x\r\n\r\n";
  const Case cases[] = {
      {"1.1", kScrape, "200"},
      {"1.0", "GET /metrics HTTP/1.0\r\n\r\n", "200"},
      {"query", "GET /metrics?a=b" + end, "200"},
      {"head", "HEAD /metrics" + end, "200"},
      {"root", "GET /" + end, "404"},
      {"head root", "HEAD /" + end, "404"},
      {"below", "GET /metrics/x" + end, "404"},
      {"up", "GET /../../etc/passwd" + end, "404"},
      {"delete", "DELETE /metrics" + end, "405"},
      {"options", "OPTIONS /metrics" + end, "405"},
      {"put", "PUT /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "405"},
      {"patch", "PATCH /a HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "404"},
      {"post", "POST /metrics HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", "405"},
      {"post huge", "POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", "405"},
      {"post negative", "POST /metrics HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "405"},
      {"chunked",
       "POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "405"},
      {"unknown method", "BREW /metrics" + end, "400"},
      {"garbage", std::string("\0\xff\x01garbage\r\n\r\n", 13), ""},
      {"long line", "GET /" + std::string(100000, 'a') + end, ""},
      {"long path", "GET /" + std::string(8000, 'a') + end, "404"},
      {"long range",
       "GET /metrics HTTP/1.1\r\nRange: bytes=" + std::string(7000, '1') + "-\r\n\r\n", ""},
      {"no range", "GET /metrics HTTP/1.1\r\nRange: " + std::string(8000, 'b') + "\r\n\r\n", ""},
      {"many headers",
       [] {
         std::string text = "GET /metrics HTTP/1.1\r\n";
         for (int i = 0; i < 20000; ++i) absl::StrAppend(&text, "h", i, ": v\r\n");
         return text + "\r\n";
       }(),
       ""},
  };
  for (const Case& c : cases) {
    const std::string answer = Ask(c.request);
    if (*c.status != '\0') {
      EXPECT_EQ(Status(answer), c.status) << c.name << "\n" << answer;
    }
    EXPECT_EQ(Status(Ask(kScrape)), "200") << "after " << c.name;
  }
}

TEST_F(MetricsHttpTest, HeadHasNoBodyAndARefusalNamesWhatIsAllowed) {
  const std::string head = Ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(head, Not(HasSubstr("gemmd_up_gpus")));
  EXPECT_THAT(Ask("POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
              HasSubstr("Allow: GET, HEAD"));
}

TEST_F(MetricsHttpTest, ManyRangesDoNotMultiplyThePage) {
  std::string ranges = "bytes=0-";
  for (int i = 0; i < 1500; ++i) ranges += ",0-";
  const std::string answer =
      Ask(absl::StrCat("GET /metrics HTTP/1.1\r\nRange: ", ranges, "\r\n\r\n"));
  EXPECT_LT(answer.size(), 2 * Ask(kScrape).size());
}

TEST_F(MetricsHttpTest, SilentAndSlowConnectionsDoNotStarveAScrapeNorTheEnd) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 400; ++i) {
    silent.push_back(Connect());
    if (i % 4 == 0) send(silent.back().get(), "G", 1, MSG_NOSIGNAL);
  }
  const absl::Time start = absl::Now();
  EXPECT_EQ(Status(Ask(kScrape)), "200");
  EXPECT_LT(absl::Now() - start, absl::Seconds(6));
  const absl::Time stop = absl::Now();
  daemon_.reset();
  EXPECT_LT(absl::Now() - stop, absl::Seconds(3));
}

}  // namespace
}  // namespace gemmd
