// A rank that has run out of memory fails with fewer words, but it does not end its process, and
// others learn of it.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>
#include <rondo/transport/request.hpp>

#include "memory/control_block.hpp"
#include "memory/memory.hpp"
#include "recorder/recorder.hpp"
#include "support/allocations.hpp"
#include "support/expect_error.hpp"
#include "support/store.hpp"
#include "support/world.hpp"
#include "world/world_core.hpp"

namespace rondo::transport::lack_of_memory_test {
namespace {

using test::NoMemory;
using testing::StartsWith;

// Longer than a string can be without memory.
const std::string reason = "the reason is long, as reasons are, so its text takes memory";

TEST(LackOfMemoryTest, AnAbortIsToldToTheRanksOfAllNodes) {
  test::World(test::Backend::hierarchy, 3).run([](World& world) {
    if (world.rank() == 0) {
      const NoMemory none;
      world.abort(reason);
    }
    test::expect_error(Errc::aborted, [&] { world.communicator().barrier().wait(); }, 0);
  });
}

TEST(LackOfMemoryTest, TheStorePassesAMessageOnWithoutItsText) {
  stores::StatusLog zero;
  stores::StoreJob job(2);
  job.join_all();
  zero.watch(*job.channel(0));
  const StatusMessage diverged{
      .kind = StatusMessage::Kind::diverged, .rank = 1, .context = 7, .text = reason};
  const StatusMessage waits{.kind = StatusMessage::Kind::waits, .rank = 1, .text = reason};
  {
    const NoMemory none;
    job.channel(1)->tell(waits);
    job.channel(1)->tell(diverged);
    job.channel(1).reset();
  }

  const auto told = zero.wait_for(2);
  EXPECT_EQ(told[0].kind, StatusMessage::Kind::diverged);
  EXPECT_EQ(told[0].context, 7U);
}

TEST(LackOfMemoryTest, ARankThatGivesUpNotesWhyForItsNode) {
  Membership membership;
  membership.peers.push_back(
      {.memory = shm::RankMemory::create(shm::Reserve::of(1), 1),
       .recorder = std::make_shared<recorder::Memory>(recorder::Memory::create())});
  const auto world = std::make_shared<WorldCore>(std::move(membership), WorldOptions{});
  const Error late(Errc::deadline_exceeded, reason, {.rank = 0});
  const Error lost(Errc::peer_lost, reason, {.rank = 0});
  {
    const NoMemory none;
    world->stalls().give_up(late);
    world->stalls().note_failure(lost);
    world->note_failure(lost);
  }

  EXPECT_EQ(world->header().gave_up, 1U);
  EXPECT_EQ(world->header().deadline_note.rank, 0);
  EXPECT_THAT(world->header().deadline_note.text.data(), StartsWith(reason));
  EXPECT_EQ(world->header().saw_loss, shm::LossNote::there);
  EXPECT_THAT(world->header().loss_note.text.data(), StartsWith(reason));
}

TEST(LackOfMemoryTest, ARequestThatIsDestroyedFailsItsCommunicator) {
  std::vector<World> worlds = test::World(2).open();
  std::vector<float> data(1000);
  Request request = worlds[0].communicator().allreduce(std::span(data));
  worlds.pop_back();
  {
    const NoMemory none;
    request = Request();
  }

  EXPECT_THROW(worlds[0].communicator().barrier().wait(), Error);
}

}  // namespace
}  // namespace rondo::transport::lack_of_memory_test
