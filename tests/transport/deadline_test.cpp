// A wait for peers that do first what may take longer than any message: its deadline begins anew
// while something moves.

#include <chrono>
#include <latch>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/request.hpp>
#include <rondo/transport/world.hpp>

#include "support/error_text.hpp"
#include "support/world.hpp"

namespace rondo::transport::deadline_test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

// Such as a disk that is slower than any message may be.
TEST(DeadlineTest, BeginsAnewWhereSomethingHasMoved) {
  WorldOptions options;
  options.deadline = 500ms;
  std::latch has_waited(1);
  test::World(2, options).run([&](World& world) {
    if (world.rank() == 1) has_waited.wait();
    Request request = world.communicator().barrier();
    if (world.rank() == 1) {
      EXPECT_TRUE(request.wait_for(60s));
      return;
    }
    int asked = 0;
    request.wait([&] {
      ++asked;
      if (asked == 2) has_waited.count_down();
      return true;
    });
    EXPECT_GE(asked, 2);
  });
}

TEST(DeadlineTest, NamesTheRankWhereNothingHasMoved) {
  int stalls = 0;
  bool waits = false;  // both are rank 0's
  WorldOptions options;
  options.deadline = 500ms;
  options.stall_warning = 10ms;
  options.on_stall = [&](const Stall& stall) {
    if (stall.rank == 0 && waits) ++stalls;
  };
  std::latch has_failed(1);
  test::World(2, options).run([&](World& world) {
    if (world.rank() == 1) return has_failed.wait();
    Request request = world.communicator().barrier();
    int asked = 0;
    waits = true;
    EXPECT_THAT(
        rondo::test::error_text<Error>([&] { request.wait([&] { return ++asked < 2; }); }),
        AllOf(HasSubstr("its deadline, for rank 1"), HasSubstr("alive but not taking part")));
    waits = false;
    EXPECT_EQ(asked, 2);
    has_failed.count_down();
  });
  EXPECT_EQ(stalls, 2);  // one in each deadline
}

}  // namespace
}  // namespace rondo::transport::deadline_test
