// Every link keeps the promises of link_suite.cpp: the one inside a node, whose own are in
// shm_link_test.cpp; the ofi plug-in over tcp, whose own are in ofi_test.cpp; and the ucx plug-in,
// over tcp and within shared memory, whose own are here. A plug-in that is not built is missing
// from the list of tests.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
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
#include "support/expect_error.hpp"

namespace rondo::transport::link_kinds_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The ranks' memory outlives their links: it is kept until the next test.
test::OpenLinks open_all(int size) {
  static std::vector<std::shared_ptr<shm::RankMemory>> owners;
  owners.clear();
  std::vector<shm::RankMemory*> memories;
  for (int rank = 0; rank < size; ++rank) {
    owners.push_back(shm::RankMemory::create(shm::Reserve::of(size), 1));
    memories.push_back(owners.back().get());
  }
  test::OpenLinks::All links;
  for (int rank = 0; rank < size; ++rank) links.push_back(open_shm_link(rank, memories, true));
  return test::OpenLinks(std::move(links));
}

// Whoever waits sleeps on the rank's doorbell, and learns from the World who has left.
INSTANTIATE_TEST_SUITE_P(Shm, LinkTest,
                         testing::Values(LinkBackend{.name = "shm",
                                                     .open = open_all,
                                                     .arms = false,
                                                     .notices_closing = false,
                                                     .discards = false}),
                         link_backend_name);

INSTANTIATE_TEST_SUITE_P(
    Tcp, LinkTest,
    testing::Values(LinkBackend{
        .name = "tcp", .open = [](int size) { return test::OpenLinks("tcp", "", "lo", size); }}),
    link_backend_name);

#ifdef RONDO_TEST_OFI

// Receives of ofi_rxm belong to no connection: only a send notices that its peer has gone.
INSTANTIATE_TEST_SUITE_P(OfiTcp, LinkTest,
                         testing::Values(LinkBackend{
                             .name = "tcp",
                             .open =
                                 [](int size) { return test::OpenLinks("ofi", "tcp", "lo", size); },
                             .notices_closing = false}),
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

test::OpenLinks connected(int size, const std::string& provider) {
  return {"ucx", provider, provider == "tcp" ? "lo" : "", size};
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
                             .notices_closing = false,
                             .discards = false}),
                         link_backend_name);

std::string failure_of(const LinkOptions& options) {
  return test::expect_error(Errc::link_unavailable, [&] { (void)open_plugin("ucx", options); });
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
  test::OpenLinks links = connected(2, "tcp");
  const test::Bytes data(4);
  links.exchange(0, 1, 1, data);

  Transfer sending;
  links.close(1);
  do {
    links.link(0).progress();
    links.link(0).post_send(1, 1, data, sending);
  } while (sending.done());

  EXPECT_TRUE(sending.failed());
  EXPECT_NE(links.link(0).error_text(sending), "");
}

// Its peer takes part meanwhile.
TEST(LinkUcxTest, KeepsTheConnectionWhenAReceiveIsCancelledWhoseMessageIsComing) {
  test::OpenLinks links = connected(2, "tcp");
  const std::vector<std::byte> large(std::size_t{16} << 20U, std::byte{5});
  std::vector<std::byte> room(large.size());
  std::array<std::byte, 4> small{};
  Transfer sending;
  Transfer coming;
  links.link(1).post_recv(0, 1, room, coming);
  links.link(0).post_send(1, 1, large, sending);
  ASSERT_TRUE(links.progress_until([&] { return room.front() == large.front(); }));
  ASSERT_TRUE(coming.pending());

  std::jthread peer([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) links.link(0).progress();
  });
  links.link(1).cancel(coming);
  peer = {};

  EXPECT_FALSE(coming.pending());
  Transfer receiving;
  links.link(1).post_recv(0, 2, small, receiving);
  Transfer next;
  links.link(0).post_send(1, 2, small, next);
  ASSERT_TRUE(links.finish(sending, receiving, next));
  EXPECT_TRUE(sending.done() && receiving.done() && next.done())
      << links.link(1).error_text(receiving);
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
  test::OpenLinks links = connected(2, "posix,self");
  links.link(1).post_recv(0, 1, room, coming);
  links.link(1).post_recv(0, 2, small, other);
  links.link(0).post_send(1, 1, large, sending);
  links.progress(3);
  ASSERT_TRUE(coming.pending());

  links.link(1).cancel(coming);

  EXPECT_FALSE(coming.pending());
  EXPECT_TRUE(other.failed());
  EXPECT_NE(links.link(1).error_text(other), "");
  links.link(0).cancel(sending);
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
