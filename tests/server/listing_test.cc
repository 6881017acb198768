#include "server/listing.h"

#include <gtest/gtest.h>

#include "gemmd/v1/admin.pb.h"

namespace gemmd {
namespace {

TEST(FillListTest, CutsAndSaysSo) {
  std::vector<SessionInfo> sessions(3);
  for (const auto& [most, listed] : {std::pair(2, 2), {3, 3}, {4, 3}, {0, 0}}) {
    v1::ListSessionsResponse response;
    EXPECT_EQ(FillList(sessions, most, *response.mutable_sessions()), listed < 3) << most;
    EXPECT_EQ(response.sessions_size(), listed);
  }
}

TEST(FillListTest, TheLongestListOfSessionsFitsIntoAMessage) {
  SessionInfo longest{};
  longest.name = std::string(256, 'n');
  longest.region_bytes = longest.requests = ~uint64_t{0};
  longest.pid = longest.uid = ~0u;
  longest.transport = "socket";
  v1::ListSessionsResponse response;
  FillList(std::vector<SessionInfo>(kMaxListedSessions, longest), kMaxListedSessions,
           *response.mutable_sessions());
  EXPECT_LT(response.ByteSizeLong(), size_t{4} << 20);
}

}  // namespace
}  // namespace gemmd
