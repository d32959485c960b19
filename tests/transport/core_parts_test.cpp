// A rank's records of others that have gone.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bootstrap/wire.hpp"
#include "message/channel.hpp"
#include "verdict/peer_status.hpp"

namespace rondo::transport::core_parts_test {
namespace {

TEST(PeerStatusTest, KnowsTheLastPartOfALeaverInEachOfItsCommunicators) {
  const std::vector<LastCollective> parts{{.context = 0, .members = 11, .sequence = 20},
                                          {.context = 7, .members = 12, .sequence = 16}};
  PeerStatus status(3);

  status.update({.kind = StatusMessage::Kind::left, .rank = 1, .text = encode(parts)});

  EXPECT_TRUE(status.has_left(1));
  EXPECT_EQ(status.last_collective(1, 0, 11), 20U);
  EXPECT_EQ(status.last_collective(1, 7, 12), 16U);
}

// Nothing is concluded from what a rank did not tell: another group may have had the same context.
TEST(PeerStatusTest, KnowsNothingOfOtherCommunicatorsAndRanks) {
  const std::vector<LastCollective> parts{{.context = 7, .members = 12, .sequence = 16}};
  PeerStatus status(3);
  status.update({.kind = StatusMessage::Kind::left, .rank = 1, .text = encode(parts)});

  EXPECT_EQ(status.last_collective(1, 7, 13), std::nullopt);
  EXPECT_EQ(status.last_collective(1, 8, 12), std::nullopt);
  EXPECT_EQ(status.last_collective(2, 7, 12), std::nullopt);
}

TEST(PeerStatusTest, TheLatestPartsFitIntoOneText) {
  const std::vector<LastCollective> parts(max_last_collectives + 10, {.context = 1, .sequence = 5});

  const std::string text = encode(parts);

  EXPECT_LE(text.size(), longest_text);
  EXPECT_EQ(decode_last_collectives(text).size(), max_last_collectives);
}

TEST(PeerStatusTest, TakesNothingFromATextThatIsCutShort) {
  const std::string text = encode(std::vector<LastCollective>{{.context = 1, .sequence = 5}});

  EXPECT_TRUE(decode_last_collectives(text.substr(1)).empty());
  EXPECT_TRUE(decode_last_collectives("").empty());
}

// The numbers that keep the messages of a rank's communicators apart.

TEST(PortsTest, RefusesOneMoreWhenAllAreTaken) {
  Ports ports;
  for (std::size_t i = 0; i < Ports::count; ++i) EXPECT_EQ(ports.take(), i);

  EXPECT_EQ(ports.take(), std::nullopt);

  ports.release(1234);
  EXPECT_EQ(ports.take(), 1234);
  EXPECT_EQ(ports.take(), std::nullopt);
}

TEST(PortsTest, GivesWhatWasFreeLongest) {
  Ports ports;
  for (std::size_t i = 0; i < Ports::count; ++i) {
    const auto port = ports.take();
    EXPECT_EQ(port, i);
    if (port.has_value()) ports.release(*port);
  }
  EXPECT_EQ(ports.take(), 0);
}

}  // namespace
}  // namespace rondo::transport::core_parts_test
