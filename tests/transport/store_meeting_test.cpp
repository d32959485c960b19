// Ranks that are processes, and meet where the environment says.

#include "bootstrap/store_meeting.hpp"

#include <cstdlib>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/store.hpp"

namespace rondo::transport::test::store_meeting_test {
namespace {

using namespace std::chrono_literals;
using rendezvous::meet_at_store;
using rendezvous::Placement;
using rendezvous::StoreMeeting;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class StoreMeetingTest : public testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("RONDO_SECRET_FD");
    ::setenv("RONDO_SECRET", "a secret of all ranks", 1);
  }
  void TearDown() override { ::unsetenv("RONDO_SECRET"); }

  static Placement place(int rank, const rendezvous::Endpoint& endpoint) {
    return {.job = std::string(32, 'd'), .rank = rank, .size = 2, .coordinator = endpoint};
  }
};

TEST_F(StoreMeetingTest, UsesTheListenerThatWasInherited) {
  const auto listener = rendezvous::listen_at({.host = "127.0.0.1", .port = 0});
  const rendezvous::Endpoint endpoint{.host = "127.0.0.1",
                                      .port = rendezvous::own_address(listener.get()).port()};

  on_threads(2, [&](int rank) {
    Placement placement = place(rank, endpoint);
    if (rank == 0) placement.listener = listener.get();

    const StoreMeeting meeting = meet_at_store(placement, "", 60s);

    EXPECT_EQ(meeting.interface, "lo");
    EXPECT_THAT(meeting.channel->allgather(std::to_string(rank)), ElementsAre("0", "1"));
  });
}

TEST_F(StoreMeetingTest, RefusesAListenerThatIsNone) {
  Placement placement = place(0, {.host = "127.0.0.1", .port = 1});
  placement.listener = 0;

  EXPECT_THAT(complaint_of([&] { (void)meet_at_store(placement, "", 60s); }),
              HasSubstr("RONDO_LISTENER=0 is no listening socket"));
}

TEST_F(StoreMeetingTest, ComplainsOfInterfacesBeforeAnybodyWaits) {
  const Placement placement = place(1, {.host = "127.0.0.1", .port = 1});

  EXPECT_THAT(complaint_of([&] { (void)meet_at_store(placement, "not_there", 60s); }),
              AllOf(HasSubstr("nothing matches 'not_there'"), HasSubstr("lo (127.0.0.1")));
}

TEST_F(StoreMeetingTest, DoesNotListenToOtherHostsWithoutASecret) {
  ::unsetenv("RONDO_SECRET");
  ::setenv("HOME", "/nonexistent", 1);
  const auto listener = rendezvous::listen_at({.host = "0.0.0.0", .port = 0});
  Placement placement = place(0, {.host = "somewhere", .port = 1});
  placement.listener = listener.get();

  EXPECT_THAT(complaint_of([&] { (void)meet_at_store(placement, "", 60s); }),
              AllOf(HasSubstr("no secret"), HasSubstr("RONDO_SECRET")));
}

TEST_F(StoreMeetingTest, SaysWhenThePortIsTaken) {
  const auto listener = rendezvous::listen_at({.host = "127.0.0.1", .port = 0});
  const auto port = rendezvous::own_address(listener.get()).port();
  const Placement placement = place(0, {.host = "127.0.0.1", .port = port});

  EXPECT_THAT(complaint_of([&] { (void)meet_at_store(placement, "", 60s); }),
              HasSubstr("cannot listen at 127.0.0.1:" + std::to_string(port)));
}

}  // namespace
}  // namespace rondo::transport::test::store_meeting_test
