// What the libfabric link does of its own, over tcp on loopback; link_ofi_test.cpp has what all
// links promise.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>

#include "links/plugin.hpp"

namespace rondo::transport {
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
  for (const PluginFacts& plugin : list_plugins()) {
    if (plugin.name != "ofi") continue;
    ASSERT_GE(plugin.facts.size(), 2U);
    EXPECT_THAT(plugin.facts[0], StartsWith("version 1."));
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

}  // namespace
}  // namespace rondo::transport
