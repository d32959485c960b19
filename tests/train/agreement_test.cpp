// A rank that fails while everybody prepares: all ranks learn of it, none waits in vain.

#include "trainer/agreement.hpp"

#include <functional>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"

namespace rondo::train::agreement_test {
namespace {

using test::World;
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

}  // namespace
}  // namespace rondo::train::agreement_test
