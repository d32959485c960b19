// One rank's World without others: what it tells the store of its waits, over a side channel that
// counts.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bootstrap/side_channel.hpp"
#include "bootstrap/wait_graph.hpp"
#include "core/operation_record.hpp"
#include "core/world_core.hpp"
#include "recorder/recorder.hpp"
#include "shm/control_block.hpp"
#include "shm/memory.hpp"

namespace rondo::transport::core_world_test {
namespace {

using namespace std::chrono_literals;
using bootstrap::StatusMessage;
using testing::ElementsAre;
using testing::IsEmpty;
using Lists = std::vector<std::vector<int>>;

// Keeps what the rank tells of its waits.
class WaitLog final : public bootstrap::SideChannel {
 public:
  explicit WaitLog(Lists& told) : told_(told) {}
  std::vector<std::string> allgather(std::string_view /*mine*/) override { return {}; }
  void watch(std::function<void(const StatusMessage&)> /*handler*/) override {}
  void tell(const StatusMessage& message) noexcept override {
    if (message.kind == StatusMessage::Kind::waits) {
      told_.push_back(bootstrap::decode_ranks(message.text));
    }
  }

 private:
  Lists& told_;
};

Membership alone() {
  Membership membership;
  membership.peers.push_back(
      {.memory = shm::RankMemory::create(shm::Reserve::of(1), 1),
       .recorder = std::make_shared<recorder::Memory>(recorder::Memory::create())});
  return membership;
}

class StallsTest : public testing::Test {
 protected:
  StallsTest() {
    Membership membership = alone();
    membership.side_channel = std::make_unique<WaitLog>(told);
    world = std::make_shared<WorldCore>(std::move(membership), WorldOptions{});
  }
  Stalls& stalls() { return world->stalls(); }

  // Of operations that two threads wait for. Only where they lie counts.
  OperationRecord first;
  OperationRecord second;
  Lists told;
  std::shared_ptr<WorldCore> world;
  const Stalls::Time begin{};
};

TEST_F(StallsTest, TellsOnceForWhomItWaits) {
  const std::vector<int> missing{3, 5};
  for (int i = 0; i < 10; ++i) stalls().tell(first, missing, begin);

  EXPECT_THAT(told, ElementsAre(missing));
}

TEST_F(StallsTest, TellsAgainWhenItWaitsForOthers) {
  stalls().tell(first, std::vector{3, 5}, begin);
  stalls().tell(first, std::vector{5}, begin);
  stalls().end(first);

  EXPECT_THAT(told, ElementsAre(ElementsAre(3, 5), ElementsAre(5), IsEmpty()));
  EXPECT_EQ(world->header().awaited[0], 0U);
}

TEST_F(StallsTest, TellsTheFirstOfManyRanksOnce) {
  stalls().tell(first, std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, begin);
  stalls().tell(first, std::vector{1, 2, 3, 4, 5, 6, 7, 8, 10}, begin);

  EXPECT_THAT(told, ElementsAre(ElementsAre(1, 2, 3, 4, 5, 6, 7, 8)));
}

TEST_F(StallsTest, TheEndOfAnotherWaitWithdrawsNothing) {
  stalls().tell(first, std::vector{3}, begin);
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(stalls().may_tell(second, begin + 900ms));
    stalls().end(second);
    stalls().tell(first, std::vector{3}, begin + 900ms);
  }

  EXPECT_THAT(told, ElementsAre(ElementsAre(3)));
}

TEST_F(StallsTest, LooksNowAndThenForWhomItWaits) {
  EXPECT_TRUE(stalls().may_tell(first, begin));
  stalls().tell(first, std::vector{3}, begin);

  EXPECT_FALSE(stalls().may_tell(first, begin + 99ms));
  EXPECT_TRUE(stalls().may_tell(first, begin + 100ms));
}

// As of a request that its program holds and tests no more.
TEST_F(StallsTest, AnotherWaitTellsInPlaceOfOneThatIsNotLookedAtAnyMore) {
  stalls().tell(first, std::vector{3}, begin);

  EXPECT_TRUE(stalls().may_tell(second, begin + 1s));
  stalls().tell(second, std::vector{4}, begin + 1s);
  stalls().end(first);

  EXPECT_THAT(told, ElementsAre(ElementsAre(3), ElementsAre(4)));
}

}  // namespace
}  // namespace rondo::transport::core_world_test
