// Ranks that are processes join the store of which the environment tells.

#include "bootstrap/bootstrap.hpp"

#include <cstdlib>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/store.hpp"

namespace rondo::transport::test::join_store_test {
namespace {

using namespace std::chrono_literals;
using bootstrap::join_store;
using bootstrap::JoinedStore;
using bootstrap::LaunchInfo;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class JoinStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("RONDO_SECRET_FD");
    ::setenv("RONDO_SECRET", "a secret of all ranks", 1);
  }
  void TearDown() override { ::unsetenv("RONDO_SECRET"); }

  static LaunchInfo launch_info(int rank, const bootstrap::Endpoint& endpoint) {
    return {.job = std::string(32, 'd'), .rank = rank, .size = 2, .coordinator = endpoint};
  }
};

TEST_F(JoinStoreTest, UsesTheListenerThatWasInherited) {
  const auto listener = bootstrap::listen_at({.host = "127.0.0.1", .port = 0});
  const bootstrap::Endpoint endpoint{.host = "127.0.0.1",
                                     .port = bootstrap::own_address(listener.get()).port()};

  on_threads(2, [&](int rank) {
    LaunchInfo launch = launch_info(rank, endpoint);
    if (rank == 0) launch.listener = listener.get();

    const JoinedStore store = join_store(launch, "", 60s);

    EXPECT_EQ(store.interface, "lo");
    EXPECT_THAT(store.channel->allgather(std::to_string(rank)), ElementsAre("0", "1"));
  });
}

TEST_F(JoinStoreTest, RefusesAListenerThatDoesNotListen) {
  LaunchInfo launch = launch_info(0, {.host = "127.0.0.1", .port = 1});
  launch.listener = 0;

  EXPECT_THAT(error_of([&] { (void)join_store(launch, "", 60s); }),
              HasSubstr("RONDO_LISTENER=0 is no listening socket"));
}

TEST_F(JoinStoreTest, RefusesUnknownInterfacesBeforeAnybodyWaits) {
  const LaunchInfo launch = launch_info(1, {.host = "127.0.0.1", .port = 1});

  EXPECT_THAT(error_of([&] { (void)join_store(launch, "not_there", 60s); }),
              AllOf(HasSubstr("nothing matches 'not_there'"), HasSubstr("lo (127.0.0.1")));
}

TEST_F(JoinStoreTest, DoesNotListenToOtherHostsWithoutASecret) {
  ::unsetenv("RONDO_SECRET");
  ::setenv("HOME", "/nonexistent", 1);
  const auto listener = bootstrap::listen_at({.host = "0.0.0.0", .port = 0});
  LaunchInfo launch = launch_info(0, {.host = "somewhere", .port = 1});
  launch.listener = listener.get();

  EXPECT_THAT(error_of([&] { (void)join_store(launch, "", 60s); }),
              AllOf(HasSubstr("no secret"), HasSubstr("RONDO_SECRET")));
}

TEST_F(JoinStoreTest, SaysWhenThePortIsTaken) {
  const auto listener = bootstrap::listen_at({.host = "127.0.0.1", .port = 0});
  const auto port = bootstrap::own_address(listener.get()).port();
  const LaunchInfo launch = launch_info(0, {.host = "127.0.0.1", .port = port});

  EXPECT_THAT(error_of([&] { (void)join_store(launch, "", 60s); }),
              HasSubstr("cannot listen at 127.0.0.1:" + std::to_string(port)));
}

}  // namespace
}  // namespace rondo::transport::test::join_store_test
