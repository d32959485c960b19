// One suite for all links: what Link promises. A link instantiates it in eight lines, see
// link_kinds_test.cpp; what it cannot do is said in its LinkBackend, not skipped.

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "link_fixture.hpp"
#include "message/link.hpp"
#include "support/allocations.hpp"

namespace rondo::transport {

// On both sides of where links change how a message travels: in a slot, with the call, in one
// packet or in several, fetched by the receiver.
constexpr std::array<std::size_t, 18> link_message_sizes = {
    0,     1,     7,      8,      56,     57,      64,      65,        1'024,
    8'192, 8'193, 50'000, 65'536, 65'537, 262'145, 524'288, 1'048'577, 4'194'304};

TEST_P(LinkTest, MovesMessagesOfAnySizeBeforeAndAfterTheirReceives) {
  open(2);
  for (const std::size_t bytes : link_message_sizes) {
    for (const bool receive_first : {true, false}) {
      const auto data = test::pattern(bytes, receive_first ? 1 : 2);
      test::Bytes received(bytes);
      Transfer sending;
      Transfer receiving;
      if (receive_first) link(1).post_recv(0, 3, received, receiving);
      link(0).post_send(1, 3, data, sending);
      if (!receive_first) {
        progress(100);
        link(1).post_recv(0, 3, received, receiving);
      }

      ASSERT_TRUE(finish(sending, receiving)) << bytes;
      ASSERT_TRUE(sending.done() && receiving.done()) << bytes;
      EXPECT_EQ(receiving.bytes, bytes);
      EXPECT_TRUE(received == data) << bytes;
    }
  }
}

// More than a ring of messages has slots, of sizes by turns. They have one tag, or a tag each: then
// their receives are posted from the last one back.
TEST_P(LinkTest, MatchesManyMessagesOfAllSizesByTagAndInTheOrderSent) {
  constexpr std::size_t count = 130;
  open(2);
  for (const bool one_tag : {true, false}) {
    std::vector<test::Bytes> sent;
    std::vector<test::Bytes> received;
    std::list<Transfer> transfers;
    for (std::size_t i = 0; i < count; ++i) {
      sent.push_back(test::pattern(link_message_sizes[i * 7 % 16], static_cast<unsigned>(i)));
      received.emplace_back(sent.back().size());
    }
    for (std::size_t i = 0; i < count; ++i) {
      link(0).post_send(1, one_tag ? 9 : i, sent[i], transfers.emplace_back());
    }
    for (std::size_t turn = 0; turn < count; ++turn) {
      const std::size_t i = one_tag ? turn : count - 1 - turn;
      link(1).post_recv(0, one_tag ? 9 : i, received[i], transfers.emplace_back());
      progress_all();
    }

    ASSERT_TRUE(finish(transfers));
    EXPECT_TRUE(std::ranges::all_of(transfers, &Transfer::done));
    EXPECT_TRUE(received == sent) << one_tag;
  }
}

TEST_P(LinkTest, MatchesReceivesOfOneTagInTheOrderPosted) {
  open(2);
  std::list<Transfer> receives;
  std::array<std::byte, 50> received{};
  for (std::byte& byte : received) {
    link(1).post_recv(0, 9, {&byte, 1}, receives.emplace_back());
  }

  for (std::size_t i = 0; i < received.size(); ++i) {
    send_text(0, 1, 9, std::string(1, static_cast<char>(i)));
  }

  ASSERT_TRUE(finish(receives));
  for (std::size_t i = 0; i < received.size(); ++i) EXPECT_EQ(received[i], std::byte(i));
}

// Another message is awaited first, so that a part of the first long one may have come when its
// receive is posted.
TEST_P(LinkTest, MatchesMessagesThatAreHalfHereInTheOrderSent) {
  open(2);
  const auto first = test::pattern(4'194'304, 1);
  const auto second = test::pattern(4'194'304, 2);
  const auto awaited = test::pattern(8, 3);
  for (int steps = 0; steps < 8; ++steps) {
    std::array<std::vector<std::byte>, 3> received = {std::vector<std::byte>(first.size()),
                                                      std::vector<std::byte>(second.size()),
                                                      std::vector<std::byte>(awaited.size())};
    std::array<Transfer, 6> transfers;
    link(1).post_recv(0, 9, received[2], transfers[0]);
    link(0).post_send(1, 3, first, transfers[1]);
    link(0).post_send(1, 3, second, transfers[2]);
    link(0).post_send(1, 9, awaited, transfers[3]);
    for (int i = 0; i < steps; ++i) {
      link(0).progress();
      link(1).progress();
    }

    link(1).post_recv(0, 3, received[0], transfers[4]);
    link(1).post_recv(0, 3, received[1], transfers[5]);

    ASSERT_TRUE(finish(transfers)) << steps;
    EXPECT_TRUE(received[0] == first) << steps;
    EXPECT_TRUE(received[1] == second) << steps;
  }
}

TEST_P(LinkTest, KeepsTagsApart) {
  open(2);
  constexpr std::uint64_t highest = (std::uint64_t{1} << link_tag_bits) - 1;
  send_text(0, 1, 1, "one");
  send_text(0, 1, 0, "none");
  send_text(0, 1, highest, "highest");
  send_text(0, 1, highest - 1, "next to it");

  EXPECT_EQ(receive_text(1, 0, highest - 1), "next to it");
  EXPECT_EQ(receive_text(1, 0, highest), "highest");
  EXPECT_EQ(receive_text(1, 0, 0), "none");
  EXPECT_EQ(receive_text(1, 0, 1), "one");
}

TEST_P(LinkTest, KeepsSendersApart) {
  open(3);
  send_text(1, 0, 7, "from 1");
  send_text(2, 0, 7, "from 2");

  EXPECT_EQ(receive_text(0, 2, 7), "from 2");
  EXPECT_EQ(receive_text(0, 1, 7), "from 1");
}

TEST_P(LinkTest, MovesManyMessagesBothWaysAtOnce) {
  open(3);
  constexpr std::size_t count = 60;
  constexpr std::size_t most = 200'000;
  std::list<Transfer> transfers;
  std::list<std::pair<std::vector<std::byte>, std::vector<std::byte>>> messages;
  for (std::uint32_t i = 0; i < count; ++i) {
    for (int rank = 0; rank < 3; ++rank) {
      const int right = (rank + 1) % 3;
      const std::size_t bytes = most * (i * 7U % count) / count;
      auto& [sent, received] =
          messages.emplace_back(test::pattern(bytes, i), std::vector<std::byte>(most));
      link(right).post_recv(rank, i % 5, received, transfers.emplace_back());
      link(rank).post_send(right, i % 5, sent, transfers.emplace_back());
    }
  }

  ASSERT_TRUE(finish(transfers));

  for (const Transfer& transfer : transfers) EXPECT_TRUE(transfer.done());
  for (const auto& [sent, received] : messages) {
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), received.begin())) << sent.size();
  }
}

TEST_P(LinkTest, SaysHowLongAShorterMessageWas) {
  open(2);
  send_text(0, 1, 3, "short");
  std::string text(100, '?');
  Transfer transfer;

  link(1).post_recv(0, 3, writable_bytes_of(text), transfer);

  ASSERT_TRUE(finish(transfer));
  EXPECT_EQ(transfer.bytes, 5);
  EXPECT_EQ(text, "short" + std::string(95, '?'));
}

TEST_P(LinkTest, FailsAReceiveThatIsTooShortAndNoOther) {
  open(2);
  for (const std::size_t bytes : link_message_sizes) {
    if (bytes < 2) continue;
    const auto data = test::pattern(bytes, 3);
    test::Bytes part(bytes, std::byte{0x55});
    test::Bytes whole(bytes);
    std::array<Transfer, 4> transfers;
    link(1).post_recv(0, 3, std::span(part).first(bytes / 2), transfers[0]);
    link(1).post_recv(0, 3, whole, transfers[1]);
    link(0).post_send(1, 3, data, transfers[2]);
    link(0).post_send(1, 3, data, transfers[3]);

    ASSERT_TRUE(finish(transfers)) << bytes;
    EXPECT_TRUE(transfers[0].failed()) << bytes;
    EXPECT_EQ(transfers[0].error, Transfer::truncated) << bytes;
    EXPECT_NE(link(1).error_text(transfers[0]), "");
    EXPECT_EQ(std::ranges::count(std::span(part).subspan(bytes / 2), std::byte{0x55}),
              std::ssize(part) - static_cast<std::ptrdiff_t>(bytes / 2));
    EXPECT_TRUE(transfers[1].done() && transfers[3].done()) << bytes;
    EXPECT_TRUE(whole == data) << bytes;
  }
}

TEST_P(LinkTest, CancelsAReceive) {
  open(2);
  std::string first(10, '?');
  Transfer transfer;
  link(1).post_recv(0, 3, writable_bytes_of(first), transfer);
  progress_all();

  link(1).cancel(transfer);

  EXPECT_FALSE(transfer.pending());
  send_text(0, 1, 3, "later");
  EXPECT_EQ(receive_text(1, 0, 3), "later");
  EXPECT_EQ(first, std::string(10, '?'));
}

TEST_P(LinkTest, CancelsOneOfSeveralReceives) {
  open(2);
  std::array<std::byte, 3> received{};
  std::array<Transfer, 3> transfers;
  for (std::size_t i = 0; i < 3; ++i) {
    link(1).post_recv(0, 3, std::span(received).subspan(i, 1), transfers[i]);
  }

  link(1).cancel(transfers[1]);
  send_text(0, 1, 3, "a");
  send_text(0, 1, 3, "b");

  ASSERT_TRUE(finish(transfers[0], transfers[2]));
  EXPECT_THAT(received, testing::ElementsAre(std::byte{'a'}, std::byte{0}, std::byte{'b'}));
}

// Whether the message, or the connection, survives that is the link's affair.
TEST_P(LinkTest, LetsGoOfTheMemoryOfACancelledSend) {
  for (const std::size_t bytes : {2U, 65U, 10'007U, 50'000U, 1'048'577U, 4'000'000U}) {
    open(2);
    send_text(0, 1, 1, "hello");
    ASSERT_EQ(receive_text(1, 0, 1), "hello");
    auto data = std::make_unique<test::Bytes>(bytes);
    auto transfer = std::make_unique<Transfer>();
    link(0).post_send(1, 3, *data, *transfer);
    progress(100);

    link(0).cancel(*transfer);
    EXPECT_FALSE(transfer->pending()) << bytes;
    transfer.reset();
    data.reset();
    progress(1'000);
  }
}

// Messages that have come and that come later, of all sizes; but no other tags.
TEST_P(LinkTest, ThrowsAwayWhatIsDiscarded) {
  if (!GetParam().discards) return;
  constexpr std::uint64_t kind = 1U << 20U;
  open(2);
  const auto data = test::pattern(std::size_t{16} << 20U);
  test::Bytes room(data.size());
  std::list<Transfer> transfers;
  const auto send_all = [&](std::uint64_t tag) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{2}, std::size_t{10'000},
                                    std::size_t{1} << 20U, data.size()}) {
      link(0).post_send(1, tag, std::span(data).first(bytes), transfers.emplace_back());
    }
  };
  link(1).post_recv(0, 8, room, transfers.emplace_back());
  send_all(7);
  progress(1'000);
  link(1).discard(0, 7, kind - 1);
  send_all(7 + kind);
  link(0).post_send(1, 8, data, transfers.emplace_back());

  ASSERT_TRUE(finish(transfers));
  EXPECT_TRUE(std::ranges::all_of(transfers, &Transfer::done));
  EXPECT_TRUE(room == data);
}

// The number is in use again. It was lost over libfabric: the receive that discards took it.
TEST_P(LinkTest, ReceivesATagThatWasDiscarded) {
  open(2);
  const auto data = test::pattern(4);
  link(1).discard(0, 7, 0xFF);
  exchange(0, 1, 7, data);
}

TEST_P(LinkTest, WakesWhoeverWaitsOnItsDescriptor) {
  open(2);
  send_text(0, 1, 1, "hello");
  ASSERT_EQ(receive_text(1, 0, 1), "hello");
  std::string text(64, '?');
  Transfer receiving;
  link(1).post_recv(0, 3, writable_bytes_of(text), receiving);
  std::optional<int> armed;
  progress_until([&] {
    armed = progress_all() ? std::nullopt : link(1).arm();
    return armed.has_value() || !GetParam().arms;
  });
  if (!GetParam().arms) {
    EXPECT_EQ(armed, std::nullopt);
    return;
  }
  ASSERT_TRUE(armed.has_value());

  Transfer sending;
  const std::string message = "wake up";
  link(0).post_send(1, 3, bytes_of(message), sending);
  pollfd waiting{.fd = *armed, .events = POLLIN, .revents = 0};
  int ready = 0;
  for (int i = 0; ready == 0 && i < 20'000; ++i) {
    link(0).progress();
    ready = ::poll(&waiting, 1, 1);
  }
  EXPECT_EQ(ready, 1);
  ASSERT_TRUE(finish(receiving));
  EXPECT_TRUE(receiving.done());
}

TEST_P(LinkTest, DoesNotArmWhatHasSomethingToDo) {
  open(2);
  const std::string message = "waiting";
  Transfer sending;
  link(0).post_send(1, 3, bytes_of(message), sending);
  ASSERT_TRUE(finish(sending));
  std::string text(64, '?');
  Transfer receiving;
  link(1).post_recv(0, 3, writable_bytes_of(text), receiving);

  // Either there is a way to sleep that ends at once, or arm() refuses until the message is there.
  ASSERT_TRUE(progress_until([&] {
    if (receiving.done()) return true;
    const std::optional<int> armed = link(1).arm();
    if (!armed) return false;
    pollfd waiting{.fd = *armed, .events = POLLIN, .revents = 0};
    return ::poll(&waiting, 1, 10'000) != 1 || receiving.done();
  }));

  EXPECT_TRUE(receiving.done());
}

TEST_P(LinkTest, DeliversWhatAPeerSentBeforeItClosed) {
  open(2);
  send_text(0, 1, 3, "last words");
  close(0);
  progress(1'000);

  EXPECT_EQ(receive_text(1, 0, 3), "last words");
}

TEST_P(LinkTest, NoticesAPeerThatCloses) {
  open(2);
  send_text(0, 1, 1, "hello");
  ASSERT_EQ(receive_text(1, 0, 1), "hello");
  std::string text(64, '?');
  Transfer transfer;
  link(1).post_recv(0, 3, writable_bytes_of(text), transfer);

  close(0);

  if (GetParam().notices_closing) {
    ASSERT_TRUE(finish(transfer));
    EXPECT_TRUE(transfer.failed());
    EXPECT_NE(link(1).error_text(transfer), "");
    return;
  }
  progress(1'000);
  EXPECT_TRUE(transfer.pending());
  link(1).cancel(transfer);
  EXPECT_FALSE(transfer.pending());
}

TEST_P(LinkTest, KeepsOtherPeersWhenOneCloses) {
  open(3);
  for (const int peer : {1, 2}) {
    send_text(0, peer, 1, "hello");
    ASSERT_EQ(receive_text(peer, 0, 1), "hello");
  }

  close(1);
  progress(1'000);

  send_text(2, 0, 4, "still here");
  EXPECT_EQ(receive_text(0, 2, 4), "still here");
  send_text(0, 2, 5, "me too");
  EXPECT_EQ(receive_text(2, 0, 5), "me too");
}

TEST_P(LinkTest, ClosesWhileMessagesArePending) {
  open(2);
  const auto data = test::pattern(3'000'000, 8);
  std::string text(64, '?');
  Transfer sending;
  Transfer receiving;
  link(0).post_send(1, 3, data, sending);
  link(0).post_recv(1, 3, writable_bytes_of(text), receiving);
  progress(100);

  close(1);
  link(0).cancel(sending);
  link(0).cancel(receiving);

  EXPECT_FALSE(sending.pending());
  EXPECT_FALSE(receiving.pending());
}

// It grows: the longer message lies in two pieces.
TEST_P(LinkTest, MovesMessagesFromAndToRegisteredMemory) {
  open(2);
  constexpr std::size_t page = 4'096;
  std::vector<std::byte> memory(2'000'000 + 2 * page);
  void* start = memory.data();
  std::size_t room = memory.size();
  ASSERT_NE(std::align(page, 2'000'000, start, room), nullptr);
  const std::span<std::byte> registered(static_cast<std::byte*>(start), room / page * page);
  link(0).add_memory(registered.first(100 * page));
  link(0).add_memory(registered.subspan(100 * page));
  std::vector<std::byte> received(1'500'000);

  for (const std::size_t bytes : {std::size_t{100}, std::size_t{1'500'000}}) {
    const auto data = test::pattern(bytes, 6);
    std::memcpy(registered.data() + 1'000, data.data(), bytes);
    std::array<Transfer, 2> there;
    std::array<Transfer, 2> back;
    link(1).post_recv(0, 1, received, there[1]);
    link(0).post_send(1, 1, registered.subspan(1'000, bytes), there[0]);
    ASSERT_TRUE(finish(there));
    std::memset(registered.data(), 0, registered.size());
    link(0).post_recv(1, 2, registered.subspan(500, bytes), back[1]);
    link(1).post_send(0, 2, std::span(received).first(bytes), back[0]);
    ASSERT_TRUE(finish(back));

    EXPECT_TRUE(there[0].done() && there[1].done() && back[0].done() && back[1].done());
    EXPECT_EQ(std::memcmp(registered.data() + 500, data.data(), bytes), 0);
  }
}

TEST_P(LinkTest, AllocatesNothingForAMessage) {
  open(2);
  std::array<std::byte, 1'000> sent{};
  std::array<std::byte, 1'000> received{};
  Transfer sending;
  Transfer receiving;
  const auto move_one = [&] {
    link(1).post_recv(0, 1, received, receiving);
    link(0).post_send(1, 1, sent, sending);
    return finish(sending, receiving);
  };
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(move_one());

  // The least of ten rounds: a fabric's library may allocate now and then for itself.
  std::size_t least = 100;
  for (int round = 0; round < 10; ++round) {
    const std::size_t before = test::allocations_of_this_thread();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(move_one());
    least = std::min(least, test::allocations_of_this_thread() - before);
  }

  EXPECT_EQ(least, 0U);
}

TEST_P(LinkTest, SaysWhatItTook) {
  open(2);

  EXPECT_NE(link(0).route(), "");
}

}  // namespace rondo::transport
