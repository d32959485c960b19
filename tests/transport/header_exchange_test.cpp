// A header carries the first short message to the same member, and the receive of that message
// finds it; all others travel by themselves.

#include "message/header_exchange.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "message/channel.hpp"
#include "support/memory_link.hpp"

namespace rondo::transport::header_exchange_test {
namespace {

using test::MemoryFabric;
using testing::Each;

constexpr std::size_t longest = HeaderExchange::most_carried;
constexpr std::uint64_t sequence = 7;
constexpr Header header{.sequence = sequence, .fingerprint = {.count = 3}};

/// One operation of two ranks, each of which is the other's next and previous one.
class HeaderExchangeTest : public testing::Test {
 protected:
  HeaderExchangeTest() {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      std::vector<Channel::Route> routes;
      for (int to = 0; to < 2; ++to) {
        routes.push_back({.world_rank = to, .link = &fabric_.link(static_cast<int>(rank))});
      }
      channels_.push_back(std::make_unique<Channel>(std::move(routes), 0, counters_));
      channels_[rank]->use_headers(1 - rank, 1 - rank);
      channels_[rank]->carry_with(headers_[rank]);
    }
  }

  /// The calls that a communicator makes when the operation is posted.
  void begin(std::size_t rank,
             HeaderExchange::Carrying carrying = HeaderExchange::Carrying::allowed) {
    headers_[rank].begin(header, carrying);
    channels_[rank]->recv_header(headers_[rank]);
  }
  void begin_both(HeaderExchange::Carrying carrying = HeaderExchange::Carrying::allowed) {
    begin(0, carrying);
    begin(1, carrying);
  }
  /// The call that it makes after the first step.
  void send_header(std::size_t rank) { channels_[rank]->send_header(headers_[rank]); }
  /// And before each step.
  void progress(std::size_t rank) {
    fabric_.link(static_cast<int>(rank)).progress();
    if (headers_[rank].compared() || !headers_[rank].received.done()) return;
    channels_[rank]->accept_header(headers_[rank]);
    fabric_.link(static_cast<int>(rank)).progress();
  }
  void send(std::size_t rank, std::span<const std::byte> data, Message& message) {
    message.send(*channels_[rank], 1 - rank, sequence, 0, data);
  }
  void receive(std::size_t rank, std::span<std::byte> into, Message& message) {
    message.receive(*channels_[rank], 1 - rank, sequence, 0, into);
  }

  MemoryFabric fabric_{2, {.eager_bytes = 4 * longest}};
  Counters counters_;
  std::array<HeaderExchange, 2> headers_;
  std::vector<std::unique_ptr<Channel>> channels_;
};

/// The same with a short message of so many bytes, from rank 0 to rank 1.
class ShortMessageTest : public HeaderExchangeTest,
                         public testing::WithParamInterface<std::size_t> {
 protected:
  std::vector<std::byte> data_ = std::vector<std::byte>(GetParam(), std::byte{5});
  std::vector<std::byte> got_ = std::vector<std::byte>(GetParam());
  Message out_;
  Message in_;
};

INSTANTIATE_TEST_SUITE_P(Bytes, ShortMessageTest, testing::Values(0U, 1U, 4U, longest));

TEST_P(ShortMessageTest, IsOneMessageWithTheFirstShortOne) {
  begin_both();

  receive(1, got_, in_);
  send(0, data_, out_);
  send_header(0);
  const bool before = in_.ended();
  progress(1);

  EXPECT_EQ(fabric_.sent(), 1U);
  EXPECT_TRUE(out_.ended());
  EXPECT_FALSE(before);
  EXPECT_TRUE(in_.ended());
  EXPECT_EQ(in_.bytes(), GetParam());
  EXPECT_EQ(got_, data_);
}

TEST_P(ShortMessageTest, KeepsTheMessageForAReceiveThatIsPostedLater) {
  begin_both();

  send(0, data_, out_);
  send_header(0);
  progress(1);
  receive(1, got_, in_);

  EXPECT_TRUE(in_.ended());
  EXPECT_EQ(got_, data_);
  EXPECT_EQ(fabric_.pending(), 1U) << "the other rank's receive of a header";
}

TEST_P(ShortMessageTest, LeavesAMessageAloneThatComesAfterIt) {
  begin_both();

  receive(1, got_, in_);
  send_header(0);
  progress(1);
  send(0, data_, out_);
  progress(1);

  EXPECT_EQ(fabric_.sent(), 2U);
  EXPECT_TRUE(in_.ended());
  EXPECT_EQ(got_, data_);
}

TEST_P(ShortMessageTest, CarriesNothingWhereRanksDoNotKnowTheLengths) {
  begin_both(HeaderExchange::Carrying::refused);

  receive(1, got_, in_);
  send(0, data_, out_);
  fabric_.link(1).progress();

  EXPECT_EQ(fabric_.sent(), 2U);
  EXPECT_TRUE(in_.ended()) << "before the header is compared";
  EXPECT_EQ(got_, data_);
}

TEST_F(HeaderExchangeTest, FailsAReceiveThatIsTooShortForWhatWasCarried) {
  const std::vector<std::byte> data(8, std::byte{5});
  std::vector<std::byte> got(4);
  Message out;
  Message in;
  begin_both();

  receive(1, got, in);
  send(0, data, out);
  send_header(0);
  progress(1);

  EXPECT_THROW(static_cast<void>(in.ended()), LinkFailure);
  EXPECT_THAT(got, Each(std::byte{0}));
}

TEST_F(HeaderExchangeTest, ForgetsAReceiveThatIsGivenUp) {
  const std::vector<std::byte> data(8, std::byte{5});
  std::vector<std::byte> got(8);
  Message out;
  begin_both();
  {
    Message in;
    receive(1, got, in);
  }

  send(0, data, out);
  send_header(0);
  progress(1);

  EXPECT_THAT(got, Each(std::byte{0}));
}

}  // namespace
}  // namespace rondo::transport::header_exchange_test
