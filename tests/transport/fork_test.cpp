// A rank that forks, as a PyTorch DataLoader does: whatever the child does with its copies of the
// World and of what belongs to it, the parent and the other ranks go on.

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory_resource>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/request.hpp>
#include <rondo/transport/world.hpp>

#include "support/processes.hpp"
#include "support/world.hpp"

namespace rondo::transport::fork_test {
namespace {

/// Forks; the child calls body() and ends. Its exit status: 0 if nothing failed there.
template <typename Body>
int status_of_child(Body body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 0;
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      status = 1;
    }
    std::fflush(nullptr);
    ::_exit(testing::Test::HasFailure() ? 1 : status);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : status;
}

/// All that a program usually has of a World, with an operation that cannot end before the peers
/// post theirs.
struct Belongings {
  explicit Belongings(World& world)
      : part(world.communicator().dup()),
        in_arena(1000, world.rank(), &world.arena()),
        plan(part.plan_allreduce(std::span(in_arena))),
        pending(part.allreduce(std::span(values))) {}

  Communicator part;
  std::vector<int> values = std::vector<int>(50'000, 1);
  std::pmr::vector<int> in_arena;
  Plan plan;
  Request pending;
};

void expect_sums(World& world, Belongings& belongings) {
  belongings.pending.wait();
  EXPECT_TRUE(test::all_are(belongings.values, world.size()));
  belongings.plan.start().wait();
  EXPECT_TRUE(test::all_are(belongings.in_arena, world.size() * (world.size() - 1) / 2));
  world.communicator().barrier().wait();
}

void fork_and_end_the_copies(World& world) {
  std::optional<Belongings> belongings(world);

  EXPECT_EQ(status_of_child([&] {
              belongings.reset();
              const World ends = std::move(world);
            }),
            0);

  expect_sums(world, *belongings);
}

TEST(ForkTest, AChildMayEndItsCopies) { test::expect_success(2, fork_and_end_the_copies); }

TEST(ForkTest, AChildMayEndItsCopiesBetweenNodes) {
  test::expect_success(2, test::meet_over_tcp(), [] {
    World world = World::attach({.fabric = {.name = "tcp", .fake_nodes = 2}});
    fork_and_end_the_copies(world);
  });
}

// Another thread may have the World's lock when the process forks.
TEST(ForkTest, AChildNeedsNoLockOfAnotherThread) {
  test::expect_success(2, test::meet_locally(), [] {
    World world = World::attach({.threads = Threads::multiple});
    std::optional<Belongings> belongings(world);
    std::jthread waits([&world](const std::stop_token& stop) {
      while (!stop.stop_requested()) world.progress();
    });
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(status_of_child([&] {
                  belongings.reset();
                  const World ends = std::move(world);
                }),
                0);
    }
    waits.request_stop();
    waits.join();
    expect_sums(world, *belongings);
  });
}

TEST(ForkTest, AChildIsToldThatTheWorldIsItsParents) {
  test::expect_success(2, [](World& world) {
    Belongings belongings(world);

    EXPECT_EQ(status_of_child([&] {
                int value = 1;
                EXPECT_TRUE(belongings.pending.finished());
                EXPECT_THROW((void)belongings.pending.test(), std::logic_error);
                EXPECT_THROW(belongings.pending.wait(), std::logic_error);
                EXPECT_THROW((void)belongings.plan.start(), std::logic_error);
                EXPECT_THROW((void)belongings.part.allreduce(std::span(&value, 1)),
                             std::logic_error);
                EXPECT_THROW((void)belongings.part.split(0), std::logic_error);
                EXPECT_THROW((void)world.communicator().send<int>(std::span(&value, 1), 0),
                             std::logic_error);
                EXPECT_THROW(world.progress(), std::logic_error);
                EXPECT_THROW(std::pmr::vector<int>(1000, &world.arena()), std::logic_error);
                EXPECT_EQ(world.size(), 2);
                EXPECT_TRUE(world.arena().contains(belongings.in_arena.data(), 4));
                EXPECT_EQ(belongings.in_arena.front(), world.rank());
              }),
              0);

    expect_sums(world, belongings);
  });
}

TEST(ForkTest, AChildMayMakeAWorldOfItsOwn) {
  test::expect_success(2, [](World& world) {
    Belongings belongings(world);

    EXPECT_EQ(status_of_child([] {
                test::World(3).run([](World& own) {
                  std::pmr::vector<int> values(5000, own.rank(), &own.arena());
                  own.communicator().allreduce(std::span(values)).wait();
                  EXPECT_TRUE(test::all_are(values, 3));
                });
              }),
              0);

    expect_sums(world, belongings);
  });
}

// It waited until the deadline for ranks that had met long ago, or said that a descriptor was bad.
void expect_to_refuse_a_child(const World& world) {
  const std::string parent = "is rank " + std::to_string(world.rank()) +
                             " of this job already (pid " + std::to_string(::getpid()) + ")";

  EXPECT_EQ(status_of_child([&] {
              ::closefrom(STDERR_FILENO + 1);
              const auto attach = [] { (void)World::attach(test::quick_options()); };
              EXPECT_THAT(attach, testing::ThrowsMessage<Error>(testing::HasSubstr(parent)));
            }),
            0);
}

// It kept the rank itself out, where it had come first.
TEST(ForkTest, AProcessWithAnotherSecretIsNotTheRank) {
  test::expect_success(2, test::meet_over_tcp(), [] {
    World world = World::attach(test::quick_options());
    EXPECT_EQ(status_of_child([] {
                ::closefrom(STDERR_FILENO + 1);
                ::unsetenv("RONDO_SECRET_FD");
                ::setenv("RONDO_SECRET", "known to nobody but a stranger", 1);
                WorldOptions options = test::quick_options();
                options.bootstrap_deadline = std::chrono::seconds(1);
                EXPECT_THAT([&] { (void)World::attach(options); },
                            testing::ThrowsMessage<Error>(
                                testing::Not(testing::HasSubstr("of this job already"))));
              }),
              0);
    world.communicator().barrier().wait();
  });
}

TEST(ForkTest, AChildIsToldThatItsParentIsTheRank) {
  for (const auto& place : {test::meet_locally(), test::meet_over_tcp()}) {
    test::expect_success(2, place, [] {
      World world = World::attach(test::quick_options());
      expect_to_refuse_a_child(world);
      world.communicator().barrier().wait();
    });
  }
}

TEST(ForkTest, ProcessesMayFollowThoseThatHaveLeftAChild) {
  int end_of_test[2];
  ASSERT_EQ(::pipe(end_of_test), 0);
  const test::MeetingPlace place = test::meet_locally();
  const auto leave_a_child = [&] {
    World world = World::attach(test::quick_options());
    world.communicator().barrier().wait();
    if (::fork() != 0) return;
    ::close(end_of_test[1]);
    char byte = 0;
    (void)!::read(end_of_test[0], &byte, 1);
    ::_exit(0);
  };

  test::expect_success(2, place, leave_a_child);
  test::expect_success(2, place, leave_a_child);

  ::close(end_of_test[0]);
  ::close(end_of_test[1]);
}

TEST(ForkTest, WhatAChildDoesWithReleasedMemoryIsItsOwn) {
  test::expect_success(1, [](World& world) {
    std::vector<int> values(100'000, 1);
    std::optional<AdoptedMemory> adopted = world.adopt(std::as_writable_bytes(std::span(values)));

    EXPECT_EQ(status_of_child([&] {
                adopted.reset();
                EXPECT_TRUE(test::all_are(values, 1));
                values.assign(values.size(), 2);
              }),
              0);

    EXPECT_TRUE(test::all_are(values, 1));
    EXPECT_TRUE(world.arena().contains(values.data(), 4));
  });
}

// Nothing that the child frees is handed out to the parent, who still has it.
TEST(ForkTest, WhatAChildFreesStaysTheParents) {
  test::expect_success(1, [](World& world) {
    std::optional<std::pmr::vector<int>> values(std::in_place, 100'000, 1, &world.arena());
    const std::size_t used = world.arena().used_bytes();

    EXPECT_EQ(status_of_child([&] {
                values.reset();
                EXPECT_EQ(world.arena().used_bytes(), used);
              }),
              0);

    EXPECT_TRUE(test::all_are(*values, 1));
  });
}

}  // namespace
}  // namespace rondo::transport::fork_test
