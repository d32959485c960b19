// The features that only the libfabric link has, over tcp on loopback; link_kinds_test.cpp has what
// all links promise.

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>
#include <rondo/transport/links.hpp>

#include "links/plugin.hpp"
#include "support/expect_error.hpp"
#include "support/open_links.hpp"

namespace rondo::transport::ofi_test {
namespace {

using test::Bytes;
using test::pattern;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::size_t mebibyte = 1U << 20U;

std::unique_ptr<Link> open_ofi(int rank, int size, const std::string& provider = "tcp",
                               const std::string& device = "lo") {
  return open_plugin("ofi", {.rank = rank, .size = size, .provider = provider, .device = device});
}

std::string failure_of(const std::string& provider, const std::string& device) {
  return test::expect_error(Errc::link_unavailable,
                            [&] { (void)open_ofi(0, 2, provider, device); });
}

/// Links of `size` ranks that know each other.
test::OpenLinks open_all(int size) { return {"ofi", "tcp", "lo", size}; }

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

TEST(OfiLinkTest, CarriesLargeMessages) { open_all(2).exchange(0, 1, 7, pattern(64 * mebibyte)); }

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
class OfiSizesTest : public testing::TestWithParam<std::size_t> {};

TEST_P(OfiSizesTest, SendsTheRestWhenItIsClosed) {
  test::OpenLinks links = open_all(2);
  const Bytes data = pattern(GetParam());
  Bytes received(data.size());
  Transfer recv;
  Transfer send;
  links.link(1).post_recv(0, 7, received, recv);
  links.link(0).post_send(1, 7, data, send);

  std::thread closer([&] { links.close(0); });
  while (recv.pending()) links.link(1).progress();
  closer.join();

  EXPECT_TRUE(recv.done());
  EXPECT_TRUE(received == data);
}

INSTANTIATE_TEST_SUITE_P(, OfiSizesTest, testing::Values(2, 64, 65, 10'007, 50'000, mebibyte),
                         testing::PrintToStringParamName());

TEST(OfiLinkTest, FailsWhatIsUnderWayToALinkThatIsGone) {
  test::OpenLinks links = open_all(2);
  const Bytes data = pattern(1'000);
  Bytes received(data.size());
  links.exchange(0, 1, 7, data);

  Transfer send;
  Transfer recv;
  links.close(1);
  links.link(0).post_recv(1, 7, received, recv);
  // Data that go into the socket at first may seem to have been sent.
  const bool failed = links.progress_until([&] {
    if (!send.pending()) links.link(0).post_send(1, 7, data, send);
    return !recv.pending();
  });

  EXPECT_TRUE(failed);
  EXPECT_TRUE(recv.failed());
}

// ofi_rxm does not notice that nobody will take a large message; who does, cancels it.
TEST(OfiLinkTest, GivesUpALargeSendToALinkThatIsGone) {
  test::OpenLinks links = open_all(2);
  const Bytes data = pattern(mebibyte);
  Transfer send;
  links.link(0).post_send(1, 7, data, send);
  links.progress(1000);

  links.close(1);
  for (int i = 0; i < 1000; ++i) links.link(0).progress();
  links.link(0).cancel(send);

  EXPECT_TRUE(send.failed());
}

// Its sender has begun, and stops. libfabric 1.17 crashes when the connection or the endpoint is
// closed then, so the link stops.
TEST(OfiLinkTest, TouchesNothingOfALargeReceiveThatIsGivenUpWhileItComesIn) {
  test::OpenLinks links = open_all(3);
  const Bytes data(128 * mebibyte, std::byte{1});
  Bytes received(data.size());
  std::byte other{};
  Transfer send;
  Transfer recv;
  Transfer of_third;
  links.link(1).post_recv(0, 7, received, recv);
  links.link(1).post_recv(2, 9, std::span(&other, 1), of_third);
  links.link(0).post_send(1, 7, data, send);
  ASSERT_TRUE(links.progress_until([&] { return received.front() == std::byte{1}; }));

  links.link(1).cancel(recv);
  std::ranges::fill(received, std::byte{0xEE});
  links.progress(10'000);

  EXPECT_TRUE(recv.failed());
  EXPECT_EQ(std::ranges::count(received, std::byte{0xEE}), std::ssize(received));
  EXPECT_TRUE(of_third.failed());
  EXPECT_THAT(links.link(1).error_text(of_third), HasSubstr("closed after an earlier error"));
  links.link(0).cancel(send);
}

// Three ranks that know each other. Rank 0 has a message under way that rank 1 does not fetch.
class OfiCancelledSendTest : public testing::Test, protected test::OpenLinks {
 protected:
  OfiCancelledSendTest() : OpenLinks("ofi", "tcp", "lo", 3) {
    for (const auto& [from, to] : {std::pair(0, 1), std::pair(0, 2), std::pair(1, 2)}) {
      send_both_ways(from, to, 1);
    }
    link(0).post_send(1, 7, data_, send_);
    progress(1000);
  }
  void send_both_ways(int a, int b, std::size_t bytes) {
    exchange(a, b, 9, pattern(bytes));
    exchange(b, a, 9, pattern(bytes));
  }

  Bytes data_ = pattern(mebibyte);
  Transfer send_;
};

TEST_F(OfiCancelledSendTest, HarmsNoOtherPeer) {
  link(0).cancel(send_);

  EXPECT_FALSE(send_.pending());
  for (const std::size_t bytes : {std::size_t{1}, mebibyte}) {
    send_both_ways(0, 2, bytes);
    send_both_ways(1, 2, bytes);
  }
}

TEST_F(OfiCancelledSendTest, HarmsNoMessageThatIsUnderWayToAnotherPeer) {
  const Bytes other = pattern(mebibyte, 3);
  Bytes received(other.size());
  Transfer send;
  Transfer recv;
  link(0).post_send(2, 7, other, send);
  progress(1000);

  link(0).cancel(send_);
  link(2).post_recv(0, 7, received, recv);

  ASSERT_TRUE(finish(recv, send));
  EXPECT_TRUE(recv.done() && send.done());
  EXPECT_TRUE(received == other);
}

TEST_F(OfiCancelledSendTest, IsNotReadAnyMoreByAPeerThatFetchesItLate) {
  link(0).cancel(send_);
  std::ranges::fill(data_, std::byte{0xEE});
  Bytes received(data_.size());
  Transfer recv;
  link(1).post_recv(0, 7, received, recv);
  progress(10'000);

  EXPECT_FALSE(recv.done());
  EXPECT_EQ(std::ranges::count(received, std::byte{0xEE}), 0);
}

// So that nothing need be closed when both sides give up the same communicator.
TEST_F(OfiCancelledSendTest, EndsLikeOthersWhenItsPeerDiscardsIt) {
  link(1).discard(0, 7, 0xFF);

  ASSERT_TRUE(finish(send_));
  EXPECT_TRUE(send_.done());
  send_both_ways(0, 1, mebibyte);
}

TEST_F(OfiCancelledSendTest, FailsWhatFollowsToItsPeerAndSaysWhy) {
  link(0).cancel(send_);
  Transfer next;

  link(0).post_send(1, 7, data_, next);

  ASSERT_TRUE(next.failed());
  EXPECT_THAT(link(0).error_text(next), HasSubstr("closed to cancel a message"));
}

}  // namespace
}  // namespace rondo::transport::ofi_test
