// One rank's World without others: what it tells the store of its waits, over a side channel that
// counts; and what is left when it cannot sleep.

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>

#include "bootstrap/side_channel.hpp"
#include "communicator/communicator_core.hpp"
#include "communicator/operation_record.hpp"
#include "memory/control_block.hpp"
#include "memory/memory.hpp"
#include "message/link.hpp"
#include "recorder/recorder.hpp"
#include "support/expect_error.hpp"
#include "verdict/wait_graph.hpp"
#include "world/world_core.hpp"

namespace rondo::transport::core_world_test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Lists = std::vector<std::vector<int>>;

// Keeps what the rank tells of its waits.
class WaitLog final : public SideChannel {
 public:
  explicit WaitLog(Lists& told) : told_(told) {}
  std::vector<std::string> allgather(std::string_view /*mine*/) override { return {}; }
  void watch(std::function<void(const StatusMessage&)> /*handler*/) override {}
  void tell(const StatusMessage& message) noexcept override {
    if (message.kind == StatusMessage::Kind::waits) {
      told_.push_back(decode_ranks(message.text));
    }
  }

 private:
  Lists& told_;
};

Membership alone(const shm::Reserve& reserve = shm::Reserve::of(1)) {
  Membership membership;
  membership.peers.push_back(
      {.memory = shm::RankMemory::create(reserve, 1),
       .recorder = std::make_shared<recorder::Memory>(recorder::Memory::create())});
  return membership;
}

TEST(WorldCoreTest, SaysThatCommunicatorsHaveUsedUpTheMemoryOfTheirBlocks) {
  const shm::Reserve small{.control_bytes = std::size_t{4} << 20U, .arena_bytes = 1U << 20U};
  const auto world = std::make_shared<WorldCore>(alone(small), WorldOptions{});
  std::vector<std::shared_ptr<CommunicatorCore>> communicators{CommunicatorCore::of_world(*world)};
  const std::string text = test::expect_error(Errc::out_of_memory, [&] {
    for (;;) communicators.push_back(communicators.front()->split(0, 0));
  });
  EXPECT_THAT(text, HasSubstr("end some of them before another split: "));
  const std::size_t made = communicators.size();
  communicators.pop_back();
  communicators.push_back(communicators.front()->split(0, 0));

  EXPECT_GT(made, 10U);
}

// Two ranks of one node, of which the first has little memory. The allgather of a failed split
// gives back what was offered, so the communicator can be made when there is memory.
TEST(WorldCoreTest, ASplitFailsOnAllRanksWhenOneLacksMemoryForItsBlock) {
  const shm::Reserve small{.control_bytes = std::size_t{4} << 20U, .arena_bytes = 1U << 20U};
  const std::vector memories{shm::RankMemory::create(small, 1), shm::RankMemory::create(small, 2)};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Membership membership;
      membership.rank = rank;
      for (const auto& memory : memories) {
        membership.peers.push_back(
            {.memory = memory,
             .recorder = std::make_shared<recorder::Memory>(recorder::Memory::create())});
      }
      const auto world = std::make_shared<WorldCore>(std::move(membership), WorldOptions{});
      const auto both = CommunicatorCore::of_world(*world);
      const auto alone = both->split(rank, 0);
      std::vector<std::shared_ptr<CommunicatorCore>> others;
      if (rank == 0) {
        EXPECT_THROW(for (;;) others.push_back(alone->split(0, 0)), Error);
      }
      EXPECT_THAT(
          test::expect_error(Errc::out_of_memory, [&] { static_cast<void>(both->split(0, 0)); }),
          HasSubstr("rank 0 has no shared memory"));
      others.clear();
      EXPECT_EQ(both->split(0, 0)->group().size(), 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::shared_ptr<shm::Descriptor> ended_process() {
  const ::pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  const auto process = ::syscall(SYS_pidfd_open, child, 0);
  ::waitpid(child, nullptr, 0);
  return std::make_shared<shm::Descriptor>(static_cast<int>(process));
}

// Three ranks of one node, of which the last has ended. Rank 0 has gone on after that, so it posts
// another operation than rank 1.
class MismatchAfterALossTest : public testing::Test {
 protected:
  MismatchAfterALossTest() {
    std::vector<Peer> peers;
    for (const std::uint64_t nonce : {1U, 2U, 3U}) {
      peers.push_back({.memory = shm::RankMemory::create(shm::Reserve::of(3), nonce),
                       .recorder = std::make_shared<recorder::Memory>(recorder::Memory::create())});
    }
    peers.back().process = ended_process();
    for (int rank = 0; rank < 2; ++rank) {
      Membership membership;
      membership.rank = rank;
      membership.peers = peers;
      const auto world = std::make_shared<WorldCore>(std::move(membership), WorldOptions{});
      communicators.push_back(CommunicatorCore::of_world(*world));
    }
  }

  // Rank 1 gets it.
  Error error() {
    const Request barrier = communicators[0]->post(communicators[0]->prepare_barrier());
    std::array<std::byte, 4> value{};
    CommunicatorCore& mine = *communicators[1];
    return test::error_of(
               mine.post(mine.prepare_broadcast({value.data(), ElementType::f32, 1, 4, 4}, 1)))
        .value();
  }

  std::vector<std::shared_ptr<CommunicatorCore>> communicators;
};

TEST_F(MismatchAfterALossTest, NamesTheLostRank) {
  const Error got = error();

  EXPECT_EQ(got.code(), Errc::peer_lost);
  EXPECT_EQ(got.detail().rank, 2);
}

TEST_F(MismatchAfterALossTest, IsAMismatchIfTheRankEndedBecauseOfIt) {
  shm::ControlBlock& lost = *communicators[1]->group().members[2].block;
  lost.failure.code = static_cast<std::int32_t>(Errc::mismatch);
  lost.failure.set_text("ranks posted different operations");
  lost.failed = 1;

  EXPECT_EQ(error().code(), Errc::mismatch);
}

class StallsTest : public testing::Test {
 protected:
  StallsTest() {
    Membership membership = alone();
    membership.side_channel = std::make_unique<WaitLog>(told);
    world = std::make_shared<WorldCore>(std::move(membership), WorldOptions{});
  }
  Stalls& stalls() { return world->stalls(); }

  // Two threads wait for these operations. Only their addresses count.
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

// A link over which nothing moves.
class SilentLink : public Link {
 public:
  void post_send(int /*peer*/, std::uint64_t /*tag*/, std::span<const std::byte> /*data*/,
                 Transfer& /*transfer*/) override {}
  void post_recv(int /*peer*/, std::uint64_t /*tag*/, std::span<std::byte> /*data*/,
                 Transfer& /*transfer*/) override {}
  bool progress() override { return false; }
  void cancel(Transfer& /*transfer*/) override {}
  std::optional<int> arm() override { return std::nullopt; }
  std::string address() const override { return {}; }
  std::string route() const override { return {}; }
  std::string error_text(const Transfer& /*transfer*/) const override { return {}; }
};

// One whose descriptor nothing can watch: it is closed.
class UnwatchableLink final : public SilentLink {
 public:
  std::optional<int> arm() override {
    constexpr int closed = 1'000'000;
    return closed;
  }
};

// One over which something arrives all the while, and is for nobody who waits; at last it ends, so
// that a wait which it holds back ends, too.
class BusyLink final : public SilentLink {
 public:
  bool progress() override { return std::chrono::steady_clock::now() < end_; }

 private:
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::now() + 20s;
};

TEST(WaitTest, TrafficOfOthersHoldsBackNeitherALimitNorALoss) {
  Membership membership = alone(shm::Reserve::of(2));
  membership.peers.push_back(
      {.memory = shm::RankMemory::create(shm::Reserve::of(2), 2), .process = ended_process()});
  membership.local = std::make_unique<BusyLink>();
  const auto world = std::make_shared<WorldCore>(std::move(membership), WorldOptions{});
  const auto both = CommunicatorCore::of_world(*world);
  Request barrier = both->post(both->prepare_barrier());

  EXPECT_FALSE(barrier.wait_for(10ms));
  EXPECT_THROW(barrier.wait(), Error);
  EXPECT_TRUE(world->progress());  // the traffic has not ended
}

// One that keeps messages which no receive awaits, and takes no more.
class FullLink final : public SilentLink {
 public:
  void post_recv(int /*peer*/, std::uint64_t /*tag*/, std::span<std::byte> /*data*/,
                 Transfer& transfer) override {
    transfer.begin(nullptr);
  }
  void cancel(Transfer& transfer) override { transfer.end(1, 0); }
  std::string held_back(int /*peer*/) const override { return "they take 77 bytes"; }
};

TEST(WaitTest, ItsDeadlineTellsWhatStandsBeforeTheMessageThatItAwaits) {
  Membership membership = alone();
  membership.peers.emplace_back().info.node = 1;
  membership.fabric = std::make_unique<FullLink>();
  const auto world =
      std::make_shared<WorldCore>(std::move(membership), WorldOptions{.deadline = 10ms});
  const auto both = CommunicatorCore::of_world(*world);
  std::array<std::byte, 4> value{};
  Request request = both->recv({value.data(), ElementType::f32, 1, 4, 4}, 1, 0);
  EXPECT_THAT(test::expect_error(
                  Errc::deadline_exceeded, [&] { request.wait(); }, 1),
              HasSubstr("): they take 77 bytes"));
}

// Peers would ring for ever, at a system call each.
TEST(ArmTest, ARankThatCannotSleepIsNotMarkedAsleep) {
  Membership membership = alone();
  membership.fabric = std::make_unique<UnwatchableLink>();
  const auto world = std::make_shared<WorldCore>(std::move(membership), WorldOptions{});
  static_cast<void>(world->event_descriptor(0ns));

  EXPECT_THROW(static_cast<void>(world->arm()), std::system_error);

  EXPECT_EQ(world->header().asleep, 0U);
}

}  // namespace
}  // namespace rondo::transport::core_world_test
