// A ByteReader reads what a ByteWriter wrote, and refuses everything else with a reason.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/scheme_base.hpp>

#include "support/error_text.hpp"
#include "support/world.hpp"

namespace rondo::sync::scheme_base_test {
namespace {

using rondo::test::World;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::byte> written(const std::vector<float>& values) {
  ByteWriter writer("thing", 2);
  writer.put(std::uint64_t{42});
  writer.put_array(std::span<const float>(values));
  return writer.take();
}

TEST(ByteStreamTest, GivesBackWhatWasWritten) {
  const std::vector<std::byte> bytes = written({1.5F, -2.5F});
  ByteReader reader(bytes, "thing", 2);
  std::vector<float> values(2);

  const auto number = reader.get<std::uint64_t>();
  reader.get_array(std::span(values));

  EXPECT_EQ(number, 42U);
  EXPECT_THAT(values, testing::ElementsAre(1.5F, -2.5F));
  EXPECT_NO_THROW(reader.expect_end());
}

TEST(ByteStreamTest, HoldsOtherStreamsAsBytes) {
  const std::vector<std::byte> inner = written({3.0F});
  ByteWriter writer("outer", 1);
  writer.put_array(std::span<const std::byte>(inner));
  const std::vector<std::byte> bytes = writer.take();
  ByteReader reader(bytes, "outer", 1);

  const std::span<const std::byte> found = reader.get_bytes();

  EXPECT_THAT(std::vector(found.begin(), found.end()), testing::ContainerEq(inner));
}

void read_floats(std::span<const std::byte> bytes, std::size_t count) {
  ByteReader reader(bytes, "thing", 2);
  static_cast<void>(reader.get<std::uint64_t>());
  std::vector<float> values(count);
  reader.get_array(std::span(values));
  reader.expect_end();
}

TEST(ByteStreamTest, SaysWhyItRefusesOtherStates) {
  const std::vector<std::byte> bytes = written({1.0F, 2.0F});
  const auto refusal = [](const std::function<void()>& read) {
    return rondo::test::error_text<std::invalid_argument>(read);
  };
  EXPECT_THAT(refusal([&] { ByteReader(bytes, "other", 2); }), HasSubstr("state of other: "));
  EXPECT_THAT(refusal([&] { ByteReader(bytes, "thing", 3); }), HasSubstr("version 2 was written"));
  EXPECT_THAT(refusal([&] { read_floats(bytes, 3); }),
              HasSubstr("2 elements were saved, there are 3"));
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THAT(refusal([&] { read_floats(longer, 2); }), HasSubstr("1 bytes too many"));
}

TEST(ByteStreamTest, RefusesWhatWasCutShortAnywhere) {
  const std::vector<std::byte> bytes = written({1.0F, 2.0F});

  EXPECT_NO_THROW(read_floats(bytes, 2));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(read_floats(std::span(bytes).first(length), 2), std::invalid_argument)
        << "cut to " << length;
  }
}

// The mean of batch norm's running statistics over the ranks.

TEST(StatisticsMeanTest, RanksThatAgreeGetBackWhatTheyGave) {
  World{3}.run([](transport::World& world) {
    std::vector<float> held(2);
    StatisticsMean mean({.world = &world, .statistics = held});
    const std::vector<float> mine{0.1F, 1e-30F};
    std::vector<float> result(2);

    mean.compute(mine, result);

    EXPECT_THAT(result, ElementsAre(0.1F, 1e-30F));
  });
}

TEST(StatisticsMeanTest, IsTheMeanToTheLastBit) {
  World{4}.run([](transport::World& world) {
    std::vector<float> held(10);
    StatisticsMean mean({.world = &world, .statistics = held});
    // In fp32 the three ones would be lost beside 2^26.
    const std::vector<float> mine(10, world.rank() == 0 ? 67'108'864.0F : 1.0F);
    std::vector<float> result(10);

    mean.compute(mine, result);

    EXPECT_THAT(result, Each(static_cast<float>((67'108'864.0 + 3.0) / 4.0)));
  });
}

TEST(StatisticsMeanTest, IsTakenOverTheRanksThatAreNamed) {
  World{4}.run([](transport::World& world) {
    transport::Communicator pair = world.communicator().split(world.rank() / 2);
    std::vector<float> held(1);
    StatisticsMean mean({.world = &world, .statistics = held, .statistics_over = &pair});
    std::vector<float> result(1);

    mean.compute(std::vector<float>{static_cast<float>(world.rank())}, result);

    EXPECT_THAT(result, ElementsAre(world.rank() < 2 ? 0.5F : 2.5F));
  });
}

TEST(StatisticsMeanTest, OneRankCopiesAndNothingIsNotReduced) {
  for (const int ranks : {1, 2}) {
    World{ranks}.run([ranks](transport::World& world) {
      std::vector<float> held(1);
      EXPECT_FALSE(StatisticsMean({.world = &world}).reduces());
      StatisticsMean mean({.world = &world, .statistics = held});
      EXPECT_EQ(mean.reduces(), ranks > 1);
      std::vector<float> result(1);

      mean.compute(std::vector<float>{7.0F}, result);

      EXPECT_THAT(result, ElementsAre(7.0F));
    });
  }
}

}  // namespace
}  // namespace rondo::sync::scheme_base_test
