// Delays that are injected: nothing arrives before its time, nothing is lost or reordered.

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/world_lock.hpp"
#include "message/link.hpp"

namespace rondo::transport::delayed_link_test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Sends to nowhere, at once, and remembers what and when.
class RecordingLink final : public Link {
 public:
  struct Sent {
    std::uint64_t tag;
    Clock::time_point when;
  };
  explicit RecordingLink(std::vector<Sent>& sent) : sent_(&sent) {}

  void post_send(int /*peer*/, std::uint64_t tag, std::span<const std::byte> data,
                 Transfer& transfer) override {
    sent_->push_back({tag, Clock::now()});
    transfer.end(0, data.size());
    if (on_send) on_send();
  }
  void post_recv(int, std::uint64_t, std::span<std::byte>, Transfer&) override {}
  bool progress() override { return false; }
  void cancel(Transfer&) override {}
  std::optional<int> arm() override { return 7; }
  std::string address() const override { return "here"; }
  std::string route() const override { return "nowhere"; }
  std::string error_text(const Transfer&) const override { return {}; }

  std::function<void()> on_send = {};

 private:
  std::vector<Sent>* sent_;
};

class DelayedLinkTest : public testing::Test {
 protected:
  std::unique_ptr<Link> delayed(std::chrono::nanoseconds latency, double bandwidth) {
    return open_delayed_link(std::make_unique<RecordingLink>(sent_), latency, bandwidth, lock_);
  }
  void progress_until_done(Link& link, const Transfer& transfer) {
    for (bool done = false; !done;) {
      const std::lock_guard entry(lock_);
      link.progress();
      done = transfer.done();
    }
  }

  WorldLock lock_{true};
  std::vector<RecordingLink::Sent> sent_;
  std::vector<std::byte> message_{1'000'000};
};

TEST_F(DelayedLinkTest, NothingLeavesBeforeItsTime) {
  const auto link = delayed(3ms, 0);
  Transfer transfer;
  const auto begin = Clock::now();

  {
    const std::lock_guard entry(lock_);
    link->post_send(1, 5, message_, transfer);
    EXPECT_TRUE(transfer.pending());
    EXPECT_FALSE(link->arm());
  }
  progress_until_done(*link, transfer);

  const std::lock_guard entry(lock_);
  ASSERT_EQ(sent_.size(), 1U);
  EXPECT_GE(sent_[0].when - begin, 3ms);
  EXPECT_TRUE(transfer.done());
  EXPECT_EQ(link->arm(), 7);
}

TEST_F(DelayedLinkTest, MessagesShareOneWire) {
  const auto link = delayed(0ns, 1e9);  // a millisecond each
  std::vector<Transfer> transfers(3);
  const auto begin = Clock::now();

  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const std::lock_guard entry(lock_);
    link->post_send(static_cast<int>(i), i, message_, transfers[i]);
  }
  progress_until_done(*link, transfers.back());

  const std::lock_guard entry(lock_);
  ASSERT_EQ(sent_.size(), 3U);
  for (std::size_t i = 0; i < sent_.size(); ++i) {
    EXPECT_EQ(sent_[i].tag, i);
    EXPECT_GE(sent_[i].when - begin, (i + 1) * 1ms);
  }
}

TEST_F(DelayedLinkTest, AMessageLeavesWhileItsRankComputes) {
  auto real = std::make_unique<RecordingLink>(sent_);
  std::promise<void> left;
  real->on_send = [&] { left.set_value(); };
  const auto link = open_delayed_link(std::move(real), 1ms, 0, lock_);
  Transfer transfer;

  {
    const std::lock_guard entry(lock_);
    link->post_send(1, 5, message_, transfer);
  }
  left.get_future().wait();  // and no progress

  const std::lock_guard entry(lock_);
  EXPECT_TRUE(transfer.done());
  EXPECT_EQ(transfer.bytes, message_.size());
  EXPECT_EQ(link->arm(), 7);
}

// The first leaves too soon for anybody but its rank.
TEST_F(DelayedLinkTest, ALongMessageBehindAShortOneLeavesWhileItsRankComputes) {
  auto real = std::make_unique<RecordingLink>(sent_);
  std::promise<void> left;
  real->on_send = [&] {
    if (sent_.size() == 2) left.set_value();
  };
  const auto link = open_delayed_link(std::move(real), 1us, 1e9, lock_);
  std::vector<Transfer> transfers(2);
  {
    const std::lock_guard entry(lock_);
    link->post_send(1, 1, std::span(message_).first(8), transfers[0]);
    link->post_send(1, 2, message_, transfers[1]);
  }
  left.get_future().wait();  // and no progress

  const std::lock_guard entry(lock_);
  EXPECT_TRUE(transfers[1].done());
}

TEST_F(DelayedLinkTest, WhatWasCancelledIsNotSent) {
  auto link = delayed(1ms, 0);
  Transfer first;
  Transfer second;
  {
    const std::lock_guard entry(lock_);
    link->post_send(1, 1, message_, first);
    link->post_send(1, 2, message_, second);
    link->cancel(first);
    EXPECT_TRUE(first.failed());
  }
  link.reset();  // sends the rest

  ASSERT_EQ(sent_.size(), 1U);
  EXPECT_EQ(sent_[0].tag, 2U);
}

TEST_F(DelayedLinkTest, ItsRouteSaysThatItIsInjected) {
  EXPECT_THAT(delayed(2us, 6e9)->route(),
              testing::StrEq("nowhere (injected: 2 us latency, 6 GB/s)"));
}

}  // namespace
}  // namespace rondo::transport::delayed_link_test
