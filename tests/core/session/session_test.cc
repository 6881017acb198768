#include "core/session/session.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "kernels/base/status.h"

namespace gemmd {
namespace {

class SessionTest : public ::testing::Test {
 protected:
  static bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }
  static int NewFd() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }
  absl::StatusOr<uint64_t> Pass(int fd) { return session.AddTicket({UniqueFd(fd), 4096}); }

  std::shared_ptr<ThreadTracker> tracker = std::make_shared<ThreadTracker>();
  Session session{SessionIdentity{"test", 1, 2, "socket"}, Session::Limits{4, 2}, tracker};
};

TEST_F(SessionTest, HasASecretOf128BitsAndARandomId) {
  Session other({}, {4, 2}, tracker);
  EXPECT_EQ(session.token().size(), 16u);
  EXPECT_NE(session.token(), other.token());
  EXPECT_NE(session.id(), other.id());
}

TEST_F(SessionTest, ATicketIsGoodForOneUse) {
  const int fd = NewFd();
  const uint64_t ticket = Pass(fd).value();
  {
    const auto memory = session.TakeTicket(ticket);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(memory->size, 4096u);
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
  EXPECT_EQ(ReasonOf(session.TakeTicket(ticket).status()), "TICKET_NOT_FOUND");
  EXPECT_EQ(ReasonOf(session.TakeTicket(0).status()), "TICKET_NOT_FOUND");
}

TEST_F(SessionTest, BoundsUnusedTicketsAndClosesTheRefusedDescriptor) {
  ASSERT_TRUE(Pass(NewFd()).ok());
  ASSERT_TRUE(Pass(NewFd()).ok());
  const int refused = NewFd();
  EXPECT_EQ(ReasonOf(Pass(refused).status()), "QUOTA");
  EXPECT_FALSE(IsOpen(refused));
}

TEST_F(SessionTest, SessionsShareTheNodesBudgetOfTicketsAndReturnTheirPart) {
  const auto in_use = std::make_shared<std::atomic<int>>(0);
  Session one({}, {4, 2, 3, in_use}, tracker), two({}, {4, 2, 3, in_use}, tracker);
  const uint64_t ticket = one.AddTicket({UniqueFd(NewFd()), 1}).value();
  ASSERT_TRUE(one.AddTicket({UniqueFd(NewFd()), 1}).ok());
  ASSERT_TRUE(two.AddTicket({UniqueFd(NewFd()), 1}).ok());
  EXPECT_EQ(ReasonOf(two.AddTicket({UniqueFd(NewFd()), 1}).status()), "QUOTA");
  EXPECT_TRUE(one.TakeTicket(ticket).ok());
  EXPECT_TRUE(two.AddTicket({UniqueFd(NewFd()), 1}).ok());
  EXPECT_TRUE(one.End());
  EXPECT_EQ(*in_use, 2);
  EXPECT_TRUE(two.End());
  EXPECT_EQ(*in_use, 0);
}

TEST_F(SessionTest, TheEndClosesPassedDescriptorsAndRefusesWork) {
  const int fd = NewFd();
  ASSERT_TRUE(Pass(fd).ok());
  EXPECT_TRUE(session.End());
  EXPECT_FALSE(session.End()) << "only the first call ends it";
  EXPECT_FALSE(IsOpen(fd));
  EXPECT_EQ(ReasonOf(Pass(NewFd()).status()), "SESSION_ENDED");
  EXPECT_EQ(ReasonOf(session.BeginKeep()), "SESSION_ENDED");
}

TEST_F(SessionTest, CountsTheStreamsThatKeepIt) {
  EXPECT_FALSE(session.ever_kept());
  ASSERT_TRUE(session.BeginKeep().ok());
  ASSERT_TRUE(session.BeginKeep().ok());
  EXPECT_FALSE(session.EndKeep());
  EXPECT_TRUE(session.EndKeep());
  EXPECT_TRUE(session.ever_kept());
}

}  // namespace
}  // namespace gemmd
