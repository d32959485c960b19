// Every link keeps the promises of link_suite.cpp: the one inside a node, whose own are in
// shm_link_test.cpp; the ofi plug-in over tcp, whose own are in ofi_test.cpp; and the ucx plug-in,
// over tcp and within shared memory, whose own are here. A plug-in that is not built is missing
// from the list of tests.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>
#include <rondo/transport/links.hpp>

#include "link_fixture.hpp"
#include "links/plugin.hpp"
#include "memory/memory.hpp"
#include "message/link.hpp"

namespace rondo::transport::link_kinds_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The ranks' memory outlives their links: it is kept until the next test.
std::vector<std::unique_ptr<Link>> open_all(int size) {
  static std::vector<std::shared_ptr<shm::RankMemory>> owners;
  owners.clear();
  std::vector<shm::RankMemory*> memories;
  for (int rank = 0; rank < size; ++rank) {
    owners.push_back(shm::RankMemory::create(shm::Reserve::of(size), 1));
    memories.push_back(owners.back().get());
  }
  std::vector<std::unique_ptr<Link>> links;
  for (int rank = 0; rank < size; ++rank) links.push_back(open_shm_link(rank, memories, true));
  return links;
}

// Whoever waits sleeps on the rank's doorbell, and learns from the World who has left.
INSTANTIATE_TEST_SUITE_P(
    Shm, LinkTest,
    testing::Values(LinkBackend{
        .name = "shm", .open = open_all, .arms = false, .notices_closing = false}),
    link_backend_name);

// Opens and connects links of all kinds but shared memory.
std::vector<std::unique_ptr<Link>> connected(const std::string& name, const std::string& provider,
                                             const std::string& device, int size) {
  std::vector<std::unique_ptr<Link>> links;
  for (int rank = 0; rank < size; ++rank) {
    links.push_back(open_plugin(
        name,
        {.rank = rank, .size = size, .provider = provider, .device = device, .peers = size - 1}));
  }
  for (int rank = 0; rank < size; ++rank) {
    for (int peer = 0; peer < size; ++peer) {
      const auto to = static_cast<std::size_t>(peer);
      if (peer != rank) links[static_cast<std::size_t>(rank)]->connect(peer, links[to]->address());
    }
  }
  return links;
}

INSTANTIATE_TEST_SUITE_P(Tcp, LinkTest,
                         testing::Values(LinkBackend{
                             .name = "tcp",
                             .open = [](int size) { return connected("tcp", "", "lo", size); }}),
                         link_backend_name);

#ifdef RONDO_TEST_OFI

std::vector<std::unique_ptr<Link>> connected_by_ofi(int size) {
  std::vector<std::unique_ptr<Link>> links;
  for (int rank = 0; rank < size; ++rank) {
    links.push_back(open_plugin(
        "ofi", {.rank = rank, .size = size, .provider = "tcp", .device = "lo", .peers = size - 1}));
  }
  for (const auto& link : links) {
    for (int peer = 0; peer < size; ++peer) {
      link->connect(peer, links[static_cast<std::size_t>(peer)]->address());
    }
  }
  return links;
}

// Receives of ofi_rxm belong to no connection: only a send notices that its peer has gone.
INSTANTIATE_TEST_SUITE_P(
    OfiTcp, LinkTest,
    testing::Values(LinkBackend{
        .name = "tcp", .open = connected_by_ofi, .arms = true, .notices_closing = false}),
    link_backend_name);

#endif

#ifdef RONDO_TEST_UCX

LinkOptions options_for(int rank, int size, const std::string& provider) {
  LinkOptions options;
  options.rank = rank;
  options.size = size;
  options.provider = provider;
  options.device = provider == "tcp" ? "lo" : "";
  return options;
}

std::vector<std::unique_ptr<Link>> connected(int size, const std::string& provider) {
  return connected("ucx", provider, provider == "tcp" ? "lo" : "", size);
}

INSTANTIATE_TEST_SUITE_P(UcxTcp, LinkTest,
                         testing::Values(LinkBackend{
                             .name = "tcp",
                             .open = [](int size) { return connected(size, "tcp"); }}),
                         link_backend_name);

// Shared memory cannot tell when a peer is gone; between nodes it is never taken.
INSTANTIATE_TEST_SUITE_P(UcxPosix, LinkTest,
                         testing::Values(LinkBackend{
                             .name = "posix",
                             .open = [](int size) { return connected(size, "posix,self"); },
                             .arms = true,
                             .notices_closing = false}),
                         link_backend_name);

std::string failure_of(const LinkOptions& options) {
  try {
    (void)open_plugin("ucx", options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::link_unavailable);
    return error.what();
  }
  ADD_FAILURE() << "could be opened";
  return {};
}

TEST(LinkUcxTest, SaysWhichTransportIsUnusable) {
  EXPECT_THAT(failure_of(options_for(0, 1, "pigeon")),
              AllOf(HasSubstr("pigeon"), HasSubstr("UCX")));
}

TEST(LinkUcxTest, SaysWhichInterfaceIsUnusable) {
  LinkOptions options = options_for(0, 1, "tcp");
  options.device = "nosuch0";

  EXPECT_THAT(failure_of(options), AllOf(HasSubstr("tcp over nosuch0"), HasSubstr("rondo info")));
}

TEST(LinkUcxTest, PrintsNothingWhenItCannotBeOpened) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();

  (void)failure_of(options_for(0, 1, "pigeon"));

  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(LinkUcxTest, RefusesWhatIsNotItsAddress) {
  const std::unique_ptr<Link> link = open_plugin("ucx", options_for(0, 2, "tcp"));
  std::string cut = link->address();
  cut.pop_back();
  std::string changed = link->address();
  changed.back() = static_cast<char>(~changed.back());

  for (const std::string& address : {std::string(), std::string("nonsense"), cut, changed}) {
    EXPECT_THROW(link->connect(1, address), Error);
  }
  EXPECT_THROW(link->connect(2, link->address()), Error) << "there are two ranks";
}

TEST(LinkUcxTest, FailsMessagesToRanksItDoesNotKnow) {
  const std::unique_ptr<Link> link = open_plugin("ucx", options_for(0, 2, "tcp"));
  Transfer sending;
  Transfer receiving;

  link->post_send(1, 1, {}, sending);
  link->post_recv(1, 1, {}, receiving);

  EXPECT_TRUE(sending.failed());
  EXPECT_TRUE(receiving.failed());
  EXPECT_THAT(link->error_text(sending), HasSubstr("no way to the rank"));
}

TEST(LinkUcxTest, FailsMessagesToAPeerThatHasGone) {
  auto links = connected(2, "tcp");
  Transfer sending;
  Transfer receiving;
  std::array<std::byte, 4> data{};
  links[1]->post_recv(0, 1, data, receiving);
  links[0]->post_send(1, 1, data, sending);
  while (sending.pending() || receiving.pending()) {
    for (const auto& link : links) link->progress();
  }

  links[1].reset();
  do {
    links[0]->progress();
    links[0]->post_send(1, 1, data, sending);
  } while (sending.done());

  EXPECT_TRUE(sending.failed());
  EXPECT_NE(links[0]->error_text(sending), "");
}

// Its peer takes part meanwhile.
TEST(LinkUcxTest, KeepsTheConnectionWhenAReceiveIsCancelledWhoseMessageIsComing) {
  auto links = connected(2, "tcp");
  const std::vector<std::byte> large(std::size_t{16} << 20U, std::byte{5});
  std::vector<std::byte> room(large.size());
  std::array<std::byte, 4> small{};
  Transfer sending;
  Transfer coming;
  links[1]->post_recv(0, 1, room, coming);
  links[0]->post_send(1, 1, large, sending);
  while (room.front() != large.front()) {
    for (const auto& link : links) link->progress();
  }
  ASSERT_TRUE(coming.pending());

  std::jthread peer([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) links[0]->progress();
  });
  links[1]->cancel(coming);
  peer = {};

  EXPECT_FALSE(coming.pending());
  Transfer receiving;
  links[1]->post_recv(0, 2, small, receiving);
  Transfer next;
  links[0]->post_send(1, 2, small, next);
  while (sending.pending() || receiving.pending() || next.pending()) {
    for (const auto& link : links) link->progress();
  }
  EXPECT_TRUE(sending.done() && receiving.done() && next.done()) << links[1]->error_text(receiving);
}

// Messages that have come and that come later, of all sizes; but no other tags.
TEST(LinkUcxTest, ThrowsAwayWhatIsDiscarded) {
  constexpr std::uint64_t kind = 1U << 20U;
  auto links = connected(2, "tcp");
  const std::vector<std::byte> data(std::size_t{16} << 20U, std::byte{5});
  std::vector<std::byte> room(data.size());
  std::list<Transfer> transfers;
  const auto send_all = [&](std::uint64_t tag) {
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{2}, std::size_t{10'000}, data.size()})
      links[0]->post_send(1, tag, std::span(data).first(bytes), transfers.emplace_back());
  };
  links[1]->post_recv(0, 8, room, transfers.emplace_back());
  send_all(7);
  for (int i = 0; i < 1'000; ++i) {
    for (const auto& link : links) link->progress();
  }

  links[1]->discard(0, 7, kind - 1);
  send_all(7 + kind);
  links[0]->post_send(1, 8, data, transfers.emplace_back());
  while (std::ranges::any_of(transfers, &Transfer::pending)) {
    for (const auto& link : links) link->progress();
  }

  EXPECT_TRUE(std::ranges::all_of(transfers, &Transfer::done));
  EXPECT_EQ(room, data);
}

// Until a receive names the tag again.
TEST(LinkUcxTest, ReceivesATagThatWasDiscarded) {
  auto links = connected(2, "tcp");
  const std::array<std::byte, 4> data{std::byte{3}};
  std::array<std::byte, 4> room{};
  Transfer sending;
  Transfer receiving;

  links[1]->discard(0, 7, 0xFF);
  links[1]->post_recv(0, 7, room, receiving);
  links[0]->post_send(1, 7, data, sending);
  while (sending.pending() || receiving.pending()) {
    for (const auto& link : links) link->progress();
  }

  EXPECT_TRUE(receiving.done());
  EXPECT_EQ(room, data);
}

// Within shared memory UCX has no way to give up a message that is coming in while its sender does
// nothing, so the link stops. Other transfers under way must not wait for ever.
TEST(LinkUcxTest, FailsAllTransfersWhenOneCannotBeGivenUp) {
  std::vector<std::byte> large(std::size_t{32} << 20U);
  std::vector<std::byte> room(large.size());
  std::array<std::byte, 4> small{};
  Transfer sending;
  Transfer coming;
  Transfer other;
  auto links = connected(2, "posix,self");
  links[1]->post_recv(0, 1, room, coming);
  links[1]->post_recv(0, 2, small, other);
  links[0]->post_send(1, 1, large, sending);
  for (int i = 0; i < 3; ++i) {
    for (const auto& link : links) link->progress();
  }
  ASSERT_TRUE(coming.pending());

  links[1]->cancel(coming);

  EXPECT_FALSE(coming.pending());
  EXPECT_TRUE(other.failed());
  EXPECT_NE(links[1]->error_text(other), "");
  links[0]->cancel(sending);
  EXPECT_FALSE(sending.pending());
}

TEST(LinkUcxTest, OpensInSeveralThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Link>> links(4);
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([rank, &links] {
      links[static_cast<std::size_t>(rank)] = open_plugin("ucx", options_for(rank, 4, "tcp"));
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (const auto& link : links) EXPECT_NE(link->address(), "");
}

TEST(LinkUcxTest, ListsVersionAndTransports) {
  for (const LinkFacts& plugin : links()) {
    if (plugin.name != "ucx") continue;
    EXPECT_EQ(plugin.problem, "");
    EXPECT_THAT(plugin.facts.at(0), HasSubstr("version 1."));
    EXPECT_THAT(plugin.facts, testing::Contains(AllOf(HasSubstr("provider tcp"), HasSubstr("lo"))));
  }
}

#endif

}  // namespace
}  // namespace rondo::transport::link_kinds_test
