#include "server/connections.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "absl/time/clock.h"
#include "core/session/unique_fd.h"
#include "server/unix_socket.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

UniqueFd Listen(const std::string& path) {
  UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = UnixAddress(path);
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(listen(listener.get(), 8), 0);
  return listener;
}

UniqueFd Connect(const std::string& path) {
  UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = UnixAddress(path);
  const int failed =
      connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return failed == 0 ? std::move(client) : UniqueFd();
}

// Accepts one connection and closes it at its end, as gRPC does.
void ServeOne(int listener) {
  const UniqueFd connection(accept(listener, nullptr, nullptr));
  char byte = 0;
  while (recv(connection.get(), &byte, 1, 0) > 0) {
  }
}

TEST(ConnectionsTest, ThoseOfThePathEndAndOthersGoOn) {
  const TempDir directory;
  const UniqueFd listener = Listen(directory / "a"), other_listener = Listen(directory / "b");
  const UniqueFd client = Connect(directory / "a"), other = Connect(directory / "b");
  std::thread owner([&] { ServeOne(listener.get()); });
  const UniqueFd other_end(accept(other_listener.get(), nullptr, nullptr));
  EXPECT_TRUE(CloseConnections(directory / "a", absl::Now() + absl::Seconds(10)));
  owner.join();
  char byte = 'x';
  EXPECT_EQ(recv(client.get(), &byte, 1, 0), 0) << "the client sees the end";
  EXPECT_EQ(send(other.get(), "y", 1, 0), 1);
  EXPECT_EQ(recv(other_end.get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_LT(Connect(directory / "a").get(), 0) << "nobody connects any more";
  EXPECT_GE(Connect(directory / "b").get(), 0);
}

TEST(ConnectionsTest, WhatWaitsToBeAcceptedIsWaitedForAndEndsToo) {
  const TempDir directory;
  const UniqueFd listener = Listen(directory / "a");
  const UniqueFd client = Connect(directory / "a");
  EXPECT_FALSE(CloseConnections(directory / "a", absl::Now() + absl::Milliseconds(20)));
  std::thread owner([&] { ServeOne(listener.get()); });
  EXPECT_TRUE(CloseConnections(directory / "a", absl::Now() + absl::Seconds(10)));
  owner.join();
  char byte = 0;
  EXPECT_EQ(recv(client.get(), &byte, 1, 0), 0);
}

TEST(ConnectionsTest, AnOwnerThatKeepsItsConnectionCostsTheDeadlineOnly) {
  const TempDir directory;
  const UniqueFd listener = Listen(directory / "a");
  const UniqueFd client = Connect(directory / "a");
  const UniqueFd kept(accept(listener.get(), nullptr, nullptr));
  const absl::Time start = absl::Now();
  EXPECT_FALSE(CloseConnections(directory / "a", start + absl::Milliseconds(20)));
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
  char byte = 0;
  EXPECT_EQ(recv(client.get(), &byte, 1, 0), 0) << "its client sees the end all the same";
}

}  // namespace
}  // namespace gemmd
