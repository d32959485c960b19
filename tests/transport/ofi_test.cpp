// The features that only the libfabric link has, over tcp on loopback; link_kinds_test.cpp has what
// all links promise.

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/links.hpp>

#include "links/plugin.hpp"
#include "support/world.hpp"

namespace rondo::transport::ofi_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::size_t mebibyte = 1U << 20U;

std::unique_ptr<Link> open_ofi(int rank, int size, const std::string& provider = "tcp",
                               const std::string& device = "lo") {
  return open_plugin("ofi", {.rank = rank, .size = size, .provider = provider, .device = device});
}

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed = 1) {
  std::vector<std::byte> data(bytes);
  for (std::byte& byte : data) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(seed >> 56U);
  }
  return data;
}

std::string failure_of(const std::string& provider, const std::string& device) {
  try {
    (void)open_ofi(0, 2, provider, device);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::link_unavailable);
    return error.what();
  }
  ADD_FAILURE() << provider << " over " << device << " could be opened";
  return {};
}

/// Links of `size` ranks that know each other, all moved by this thread.
class Links {
 public:
  explicit Links(int size) {
    for (int rank = 0; rank < size; ++rank) links_.push_back(open_ofi(rank, size));
    for (const auto& link : links_) {
      for (int peer = 0; peer < size; ++peer) {
        link->connect(peer, links_[static_cast<std::size_t>(peer)]->address());
      }
    }
  }

  [[nodiscard]] Link& operator[](int rank) { return *links_[static_cast<std::size_t>(rank)]; }
  void close(int rank) { links_[static_cast<std::size_t>(rank)].reset(); }

  /// False when `transfer` is still pending after a long time.
  bool finish(const Transfer& transfer) {
    return finish([&] { return !transfer.pending(); });
  }
  template <typename Condition>
  bool finish(Condition is_done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!is_done()) {
      for (const auto& link : links_) {
        if (link != nullptr) link->progress();
      }
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  }

 private:
  std::vector<std::unique_ptr<Link>> links_;
};

TEST(OfiLinkTest, SaysWhichProviderAndInterfaceItTook) {
  EXPECT_EQ(open_ofi(0, 1)->route(), "ofi: tcp;ofi_rxm over lo");
}

TEST(OfiLinkTest, ListsProvidersWhenTheChosenOneIsMissing) {
  EXPECT_THAT(failure_of("nonesuch", ""),
              AllOf(HasSubstr("no provider \"nonesuch\""), HasSubstr("there are: "),
                    HasSubstr("tcp;ofi_rxm")));
}

TEST(OfiLinkTest, ListsInterfacesWhenTheChosenOneIsMissing) {
  EXPECT_THAT(failure_of("tcp", "nonesuch0"), AllOf(HasSubstr("no interface \"nonesuch0\""),
                                                    HasSubstr("there are: "), HasSubstr("lo")));
}

TEST(OfiLinkTest, RefusesTheSharedMemoryProvider) {
  EXPECT_THAT(failure_of("shm", ""), HasSubstr("does not leave the node"));
}

TEST(OfiLinkTest, TakesTheFirstInterfaceOfTheListThatExists) {
  EXPECT_EQ(open_ofi(0, 1, "tcp", "nonesuch0,lo")->route(), "ofi: tcp;ofi_rxm over lo");
}

TEST(OfiLinkTest, DescribesItsVersionAndProviders) {
  for (const LinkFacts& plugin : links()) {
    if (plugin.name != "ofi") continue;
    ASSERT_GE(plugin.facts.size(), 2U);
    EXPECT_THAT(plugin.facts[0], testing::AnyOf(testing::StartsWith("version 1."),
                                                testing::StartsWith("version 2.")));
    EXPECT_THAT(plugin.facts, testing::Contains(StartsWith("provider tcp;ofi_rxm over ")));
  }
}

TEST(OfiLinkTest, RefusesAddressesThatAreNone) {
  const auto link = open_ofi(0, 2);

  EXPECT_THROW(link->connect(1, "garbage"), Error);
  EXPECT_THROW(link->connect(1, std::string("tcp;ofi_rxm\0short", 17)), Error);
  EXPECT_THROW(link->connect(1, std::string("verbs;ofi_rxm\0sixteen bytes.....", 30)), Error);
  EXPECT_THROW(link->connect(2, link->address()), Error);
}

TEST(OfiLinkTest, FailsMessagesToPeersWithoutAnAddress) {
  const auto link = open_ofi(0, 2);
  Transfer transfer;

  link->post_send(1, 0, {}, transfer);

  ASSERT_TRUE(transfer.failed());
  EXPECT_THAT(link->error_text(transfer), HasSubstr("no address"));
}

// "longer than the libfabric provider can send" told neither a length nor a remedy.
TEST(OfiLinkTest, SaysHowLongAMessageMayBe) {
  constexpr std::int32_t message_too_long = 100'001;
  const auto link = open_ofi(0, 1);
  Transfer send;
  send.end(message_too_long, 0);

  EXPECT_THAT(link->error_text(send),
              testing::MatchesRegex("the message is longer than the [0-9]+ bytes that libfabric's "
                                    "tcp;ofi_rxm takes; exchange it in parts, or choose .*"));
}

TEST(OfiLinkTest, CarriesLargeMessages) {
  Links links(2);
  const std::vector<std::byte> data = pattern(64 * mebibyte);
  std::vector<std::byte> received(data.size());
  Transfer send;
  Transfer recv;

  links[1].post_recv(0, 7, received, recv);
  links[0].post_send(1, 7, data, send);

  ASSERT_TRUE(links.finish(recv));
  EXPECT_TRUE(recv.done());
  EXPECT_EQ(recv.bytes, data.size());
  EXPECT_TRUE(received == data);
  EXPECT_TRUE(links.finish(send));
}

using Handlers = std::array<void (*)(int), 6>;

Handlers handlers_of_signals() {
  constexpr std::array signals = {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT, SIGTERM};
  Handlers handlers{};
  for (std::size_t i = 0; i < signals.size(); ++i) {
    struct sigaction action{};
    ::sigaction(signals[i], nullptr, &action);
    handlers[i] = action.sa_handler;
  }
  return handlers;
}

// Before any test has loaded libfabric. A sanitizer has handlers of its own.
const Handlers handlers_at_start = handlers_of_signals();

TEST(OfiLinkTest, LeavesTheHandlersOfSignalsAlone) {
  const auto link = open_ofi(0, 1);

  EXPECT_EQ(handlers_of_signals(), handlers_at_start);
}

// Sizes on both sides of where ofi_rxm changes its protocol: copied with the call, in one packet,
// in several, taken by the receiver.
class OfiSizesTest : public testing::TestWithParam<std::size_t> {
 protected:
  [[nodiscard]] std::size_t bytes() const { return GetParam(); }
};

TEST_P(OfiSizesTest, GoesOnAfterAReceiveThatWasTooShort) {
  Links links(2);
  const std::vector<std::byte> data = pattern(bytes());
  std::vector<std::byte> received(bytes());
  Transfer sends[2];
  Transfer recvs[2];

  links[1].post_recv(0, 7, std::span(received).first(bytes() / 2), recvs[0]);
  links[1].post_recv(0, 7, received, recvs[1]);
  links[0].post_send(1, 7, data, sends[0]);
  links[0].post_send(1, 7, data, sends[1]);

  ASSERT_TRUE(links.finish(recvs[0]) && links.finish(recvs[1]));
  EXPECT_EQ(recvs[0].error, Transfer::truncated);
  EXPECT_TRUE(recvs[1].done());
  EXPECT_TRUE(received == data);
  EXPECT_TRUE(links.finish(sends[1]));
}

TEST_P(OfiSizesTest, MatchesMessagesThatCameBeforeTheirReceives) {
  Links links(2);
  const std::vector<std::byte> data[2] = {pattern(bytes(), 1), pattern(bytes(), 2)};
  std::vector<std::byte> received[2] = {std::vector<std::byte>(bytes()),
                                        std::vector<std::byte>(bytes())};
  Transfer sends[2];
  Transfer recvs[2];

  for (int i = 0; i < 2; ++i) links[0].post_send(1, 7, data[i], sends[i]);
  for (int i = 0; i < 1000; ++i) links[i % 2].progress();
  for (int i = 0; i < 2; ++i) links[1].post_recv(0, 7, received[i], recvs[i]);

  ASSERT_TRUE(links.finish(recvs[0]) && links.finish(recvs[1]));
  EXPECT_TRUE(received[0] == data[0]);
  EXPECT_TRUE(received[1] == data[1]);
  EXPECT_TRUE(links.finish(sends[1]));
}

TEST_P(OfiSizesTest, CancelsReceives) {
  Links links(2);
  std::vector<std::byte> received(bytes());
  Transfer recv;
  links[1].post_recv(0, 7, received, recv);
  links[1].progress();

  links[1].cancel(recv);

  EXPECT_TRUE(recv.failed());
}

TEST_P(OfiSizesTest, RefersToNothingOfACancelledSend) {
  Links links(2);
  auto data = std::make_unique<std::vector<std::byte>>(pattern(bytes()));
  Transfer send;
  links[0].post_send(1, 7, *data, send);
  for (int i = 0; i < 1000; ++i) links[i % 2].progress();

  links[0].cancel(send);
  data.reset();

  EXPECT_FALSE(send.pending());
  for (int i = 0; i < 1000; ++i) links[i % 2].progress();
}

TEST_P(OfiSizesTest, SendsTheRestWhenItIsClosed) {
  Links links(2);
  const std::vector<std::byte> data = pattern(bytes());
  std::vector<std::byte> received(bytes());
  Transfer recv;
  Transfer send;
  links[1].post_recv(0, 7, received, recv);
  links[0].post_send(1, 7, data, send);

  std::thread closer([&] { links.close(0); });
  while (recv.pending()) links[1].progress();
  closer.join();

  EXPECT_TRUE(recv.done());
  EXPECT_TRUE(received == data);
}

INSTANTIATE_TEST_SUITE_P(, OfiSizesTest, testing::Values(2, 64, 65, 10'007, 50'000, mebibyte),
                         testing::PrintToStringParamName());

TEST(OfiLinkTest, FailsWhatIsUnderWayToALinkThatIsGone) {
  Links links(2);
  const std::vector<std::byte> data = pattern(1'000);
  std::vector<std::byte> received(data.size());
  Transfer send;
  Transfer recv;
  links[0].post_send(1, 7, data, send);
  links[1].post_recv(0, 7, received, recv);
  ASSERT_TRUE(links.finish(recv) && links.finish(send));

  links.close(1);
  links[0].post_recv(1, 7, received, recv);
  // Data that go into the socket at first may seem to have been sent.
  const bool failed = links.finish([&] {
    if (!send.pending()) links[0].post_send(1, 7, data, send);
    return !recv.pending();
  });

  EXPECT_TRUE(failed);
  EXPECT_TRUE(recv.failed());
}

// ofi_rxm does not notice that nobody will take a large message; who does, cancels it.
TEST(OfiLinkTest, GivesUpALargeSendToALinkThatIsGone) {
  Links links(2);
  const std::vector<std::byte> data = pattern(mebibyte);
  Transfer send;
  links[0].post_send(1, 7, data, send);
  for (int i = 0; i < 1000; ++i) links[i % 2].progress();

  links.close(1);
  for (int i = 0; i < 1000; ++i) links[0].progress();
  links[0].cancel(send);

  EXPECT_TRUE(send.failed());
}

// Its sender has begun, and stops. libfabric 1.17 crashes when the connection or the endpoint is
// closed then, so the link stops.
TEST(OfiLinkTest, TouchesNothingOfALargeReceiveThatIsGivenUpWhileItComesIn) {
  Links links(3);
  const std::vector<std::byte> data(128 * mebibyte, std::byte{1});
  std::vector<std::byte> received(data.size());
  std::byte other{};
  Transfer send;
  Transfer recv;
  Transfer of_third;
  links[1].post_recv(0, 7, received, recv);
  links[1].post_recv(2, 9, std::span(&other, 1), of_third);
  links[0].post_send(1, 7, data, send);
  ASSERT_TRUE(links.finish([&] { return received.front() == std::byte{1}; }));

  links[1].cancel(recv);
  std::ranges::fill(received, std::byte{0xEE});
  for (int i = 0; i < 10'000; ++i) links[i % 3].progress();

  EXPECT_TRUE(recv.failed());
  EXPECT_EQ(std::ranges::count(received, std::byte{0xEE}), std::ssize(received));
  EXPECT_TRUE(of_third.failed());
  EXPECT_THAT(links[1].error_text(of_third), HasSubstr("closed after an earlier error"));
  links[0].cancel(send);
}

// Ranks 0, 1 and 2 of a link.
class OfiPeersTest : public testing::Test {
 protected:
  // Sends `bytes` both ways.
  bool exchange(int a, int b, std::size_t bytes) {
    return arrives(a, b, bytes) && arrives(b, a, bytes);
  }
  bool arrives(int from, int to, std::size_t bytes) {
    const std::vector<std::byte> sent = pattern(bytes);
    std::vector<std::byte> received(bytes);
    Transfer send;
    Transfer recv;
    links_[to].post_recv(from, 9, received, recv);
    links_[from].post_send(to, 9, sent, send);
    return links_.finish(recv) && links_.finish(send) && recv.done() && send.done() &&
           received == sent;
  }

  Links links_{3};
};

// They know each other, and rank 0 has a message under way that rank 1 does not fetch.
class OfiCancelledSendTest : public OfiPeersTest {
 protected:
  OfiCancelledSendTest() {
    for (const auto& [from, to] : {std::pair(0, 1), std::pair(0, 2), std::pair(1, 2)}) {
      EXPECT_TRUE(exchange(from, to, 1)) << from << " and " << to;
    }
    links_[0].post_send(1, 7, data_, send_);
    for (int i = 0; i < 1000; ++i) links_[i % 3].progress();
  }

  std::vector<std::byte> data_ = pattern(mebibyte);
  Transfer send_;
};

TEST_F(OfiCancelledSendTest, HarmsNoOtherPeer) {
  links_[0].cancel(send_);

  EXPECT_FALSE(send_.pending());
  for (const std::size_t bytes : {std::size_t{1}, mebibyte}) {
    EXPECT_TRUE(exchange(0, 2, bytes)) << bytes;
    EXPECT_TRUE(exchange(1, 2, bytes)) << bytes;
  }
}

TEST_F(OfiCancelledSendTest, HarmsNoMessageThatIsUnderWayToAnotherPeer) {
  const std::vector<std::byte> other = pattern(mebibyte, 3);
  std::vector<std::byte> received(other.size());
  Transfer send;
  Transfer recv;
  links_[0].post_send(2, 7, other, send);
  for (int i = 0; i < 1000; ++i) links_[i % 3].progress();

  links_[0].cancel(send_);
  links_[2].post_recv(0, 7, received, recv);

  ASSERT_TRUE(links_.finish(recv) && links_.finish(send));
  EXPECT_TRUE(recv.done() && send.done());
  EXPECT_TRUE(received == other);
}

TEST_F(OfiCancelledSendTest, IsNotReadAnyMoreByAPeerThatFetchesItLate) {
  links_[0].cancel(send_);
  std::ranges::fill(data_, std::byte{0xEE});
  std::vector<std::byte> received(data_.size());
  Transfer recv;
  links_[1].post_recv(0, 7, received, recv);
  for (int i = 0; i < 10'000; ++i) links_[i % 2].progress();

  EXPECT_FALSE(recv.done());
  EXPECT_EQ(std::ranges::count(received, std::byte{0xEE}), 0);
}

// So that nothing need be closed when both sides give up the same communicator.
TEST_F(OfiCancelledSendTest, EndsLikeOthersWhenItsPeerDiscardsIt) {
  links_[1].discard(0, 7, 0xFF);

  ASSERT_TRUE(links_.finish(send_));
  EXPECT_TRUE(send_.done());
  EXPECT_TRUE(exchange(0, 1, mebibyte));
}

TEST_F(OfiCancelledSendTest, IsDiscardedLikeAllThatFollowButNoOtherTags) {
  constexpr std::uint64_t kind = 1U << 20U;
  links_[1].discard(0, 7, kind - 1);
  std::vector<std::byte> received(data_.size());
  Transfer recv;
  links_[1].post_recv(0, 8, received, recv);

  for (const std::size_t bytes : {std::size_t{0}, std::size_t{2}, std::size_t{10'000}, mebibyte}) {
    Transfer send;
    links_[0].post_send(1, 7 + kind, std::span(data_).first(bytes), send);
    EXPECT_TRUE(links_.finish(send) && send.done()) << bytes;
  }
  Transfer other;
  links_[0].post_send(1, 8, data_, other);

  ASSERT_TRUE(links_.finish(recv) && links_.finish(other));
  EXPECT_TRUE(received == data_);
}

TEST_F(OfiCancelledSendTest, FailsWhatFollowsToItsPeerAndSaysWhy) {
  links_[0].cancel(send_);
  Transfer next;

  links_[0].post_send(1, 7, data_, next);

  ASSERT_TRUE(next.failed());
  EXPECT_THAT(links_[0].error_text(next), HasSubstr("closed to cancel a message"));
}

// The receive that discards took the message.
TEST(OfiLinkTest, ReceivesATagThatWasDiscarded) {
  Links links(2);
  const std::vector<std::byte> data = pattern(4);
  std::vector<std::byte> received(data.size());
  Transfer send;
  Transfer recv;

  links[1].discard(0, 7, 0xFF);
  links[1].post_recv(0, 7, received, recv);
  links[0].post_send(1, 7, data, send);

  ASSERT_TRUE(links.finish(recv) && links.finish(send));
  EXPECT_TRUE(recv.done());
  EXPECT_EQ(received, data);
}

TEST(OfiLinkTest, WakesASleeperWhenAMessageComes) {
  Links links(2);
  std::byte data{7};
  std::byte received{};
  Transfer send;
  Transfer recv;
  links[1].post_recv(0, 7, std::span(&received, 1), recv);
  links[0].post_send(1, 7, std::span(&data, 1), send);

  bool slept = false;
  ASSERT_TRUE(links.finish([&] {
    const std::optional<int> descriptor = links[1].arm();
    if (descriptor.has_value()) {
      slept = true;
      pollfd entry{.fd = *descriptor, .events = POLLIN, .revents = 0};
      ::poll(&entry, 1, 100);
    }
    return !recv.pending();
  }));

  EXPECT_TRUE(slept);
  EXPECT_EQ(received, data);
}

TEST(OfiLinkTest, LetsSixteenThreadsTalkAllToAll) {
  constexpr int size = 16;
  constexpr std::size_t bytes = 20'000;
  Links links(size);
  std::vector<std::thread> threads;
  std::vector<std::vector<std::vector<std::byte>>> received(size);

  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto& mine = received[static_cast<std::size_t>(rank)];
      mine.assign(size, std::vector<std::byte>(bytes));
      const std::vector<std::byte> data = pattern(bytes, static_cast<std::uint64_t>(rank));
      std::vector<Transfer> transfers(2UL * size);
      for (int i = 1; i < size; ++i) {
        const int peer = (rank + i) % size;
        const auto slot = static_cast<std::size_t>(peer);
        links[rank].post_recv(peer, 3, mine[slot], transfers[slot]);
        links[rank].post_send(peer, 3, data, transfers[slot + size]);
      }
      const auto is_pending = [](const Transfer& transfer) { return transfer.pending(); };
      while (std::any_of(transfers.begin(), transfers.end(), is_pending)) links[rank].progress();
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (int rank = 0; rank < size; ++rank) {
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      EXPECT_TRUE(received[static_cast<std::size_t>(rank)][static_cast<std::size_t>(peer)] ==
                  pattern(bytes, static_cast<std::uint64_t>(peer)))
          << rank << " of " << peer;
    }
  }
}

}  // namespace
}  // namespace rondo::transport::ofi_test
