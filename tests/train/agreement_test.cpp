// A rank that fails, while everybody prepares or later: all ranks learn of it and end alike, none
// waits in vain.

#include "trainer/agreement.hpp"

#include <functional>
#include <stdexcept>
#include <string>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"

namespace rondo::train::agreement_test {
namespace {

using test::World;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Work that throws `error` on the given rank and succeeds on others.
template <typename Error>
std::function<void()> failing_on(int rank, const transport::World& world, const Error& error) {
  return [rank, mine = world.rank(), error] {
    if (mine == rank) throw error;
  };
}

TEST(AgreementTest, AllSucceedTogether) {
  World{3}.run([](transport::World& world) {
    bool worked = false;

    agree_on(world, [&] { worked = true; });

    EXPECT_TRUE(worked);
  });
}

TEST(AgreementTest, TheFailingRankKeepsItsErrorAndOthersHearOfIt) {
  World{3}.run([](transport::World& world) {
    const std::string expected = world.rank() == 1 ? "bad file" : "rank 1: bad file";

    EXPECT_THAT([&] { agree_on(world, failing_on(1, world, DataError("bad file"))); },
                ThrowsMessage<DataError>(expected));
  });
}

TEST(AgreementTest, ErrorsKeepTheirTypes) {
  World{2}.run([](transport::World& world) {
    EXPECT_THROW(agree_on(world, failing_on(0, world, ConfigError("x"))), ConfigError);
    EXPECT_THROW(agree_on(world, failing_on(0, world, std::invalid_argument("x"))),
                 std::invalid_argument);
    EXPECT_THROW(agree_on(world, failing_on(1, world, std::logic_error("x"))), std::exception);
  });
}

TEST(AgreementTest, TheFirstFailingRankIsNamed) {
  World{3}.run([](transport::World& world) {
    const auto work = [&] {
      if (world.rank() > 0) throw ConfigError("of rank " + std::to_string(world.rank()));
    };
    const std::string expected =
        world.rank() == 0 ? "rank 1: of rank 1" : "of rank " + std::to_string(world.rank());

    EXPECT_THAT([&] { agree_on(world, work); }, ThrowsMessage<ConfigError>(expected));
  });
}

TEST(AgreementTest, ALongTextIsCut) {
  World{2}.run([](transport::World& world) {
    const std::string text(5000, 'x');
    std::string heard;

    try {
      agree_on(world, failing_on(1, world, DataError(text)));
    } catch (const DataError& error) {
      heard = error.what();
    }

    EXPECT_EQ(heard.size(), world.rank() == 1 ? 5000U : std::string("rank 1: ").size() + 1022U);
  });
}

TEST(AgreementTest, ErrorsOfDifferentTypesEndAllRanksAlike) {
  World{3}.run([](transport::World& world) {
    const auto work = [&] {
      if (world.rank() == 1) throw DataError("bad file");
      if (world.rank() == 2) throw ConfigError("bad key");
    };

    EXPECT_THROW(agree_on(world, work), DataError);
  });
}

TEST(AgreementTest, WhatIsNoExceptionEndsAllRanks) {
  World{2}.run([](transport::World& world) {
    if (world.rank() == 0) {
      EXPECT_THROW(agree_on(world, failing_on(0, world, 42)), int);
    } else {
      EXPECT_THROW(agree_on(world, [] {}), std::runtime_error);
    }
  });
}

/// `error` is thrown on rank 1 while the others wait for it.
template <typename Error>
void fail_while_others_wait(transport::World& world, const Error& error) {
  end_together(world, [&] {
    if (world.rank() == 1) throw error;
    world.communicator().barrier().wait();
  });
}

TEST(EndTogetherTest, NothingHappensWhereNothingIsThrown) {
  World{2}.run([](transport::World& world) {
    EXPECT_NO_THROW(end_together(world, [&] { world.communicator().barrier().wait(); }));
    EXPECT_NO_THROW(world.communicator().barrier().wait());
  });
}

TEST(EndTogetherTest, OthersThrowTheSameTypeAndNameTheRank) {
  World{3}.run([](transport::World& world) {
    const auto fail = [&] { fail_while_others_wait(world, DataError("the disk is full")); };

    if (world.rank() == 1) {
      EXPECT_THAT(fail, ThrowsMessage<DataError>("the disk is full"));
    } else {
      EXPECT_THAT(fail, ThrowsMessage<DataError>(
                            AllOf(HasSubstr("rank 1"), HasSubstr("the disk is full"))));
    }
  });
}

template <typename Error>
void expect_of_all(const Error& error) {
  World{2}.run(
      [&](transport::World& world) { EXPECT_THROW(fail_while_others_wait(world, error), Error); });
}

TEST(EndTogetherTest, EveryTypeThatMeansAStatusIsKept) {
  expect_of_all(ConfigError("x"));
  expect_of_all(DataError("x"));
  expect_of_all(std::invalid_argument("x"));
  expect_of_all(std::runtime_error("x"));
  expect_of_all(transport::Error(transport::Errc::deadline_exceeded, "x"));
}

TEST(EndTogetherTest, MemoryThatOneRankLacksIsNoLostPeerToOthers) {
  World{2}.run([](transport::World& world) {
    const transport::Error error(transport::Errc::out_of_memory, "x");
    std::error_code seen;
    bool other = false;
    try {
      fail_while_others_wait(world, error);
    } catch (const transport::Error& caught) {
      seen = caught.code();
    } catch (const std::runtime_error&) {
      other = true;
    }

    EXPECT_EQ(seen == transport::Errc::out_of_memory, world.rank() == 1);
    EXPECT_EQ(other, world.rank() == 0);
  });
}

TEST(EndTogetherTest, WhatIsNoExceptionEndsAllRanks) {
  World{2}.run([](transport::World& world) {
    if (world.rank() == 1) {
      EXPECT_THROW(fail_while_others_wait(world, 42), int);
    } else {
      EXPECT_THROW(fail_while_others_wait(world, 42), std::runtime_error);
    }
  });
}

// What aborts a World elsewhere says nothing of a type.
TEST(EndTogetherTest, AnAbortOfSomebodyElseStaysOne) {
  World{2}.run([](transport::World& world) {
    if (world.rank() == 1) return world.abort("enough");
    EXPECT_THAT([&] { end_together(world, [&] { world.communicator().barrier().wait(); }); },
                ThrowsMessage<transport::Error>(HasSubstr("enough")));
  });
}

}  // namespace
}  // namespace rondo::train::agreement_test
