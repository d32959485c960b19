// A store on loopback, the ranks that join it, and what tests of the bootstrap need besides.

#pragma once

#include <poll.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>

#include "bootstrap/auth.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/store.hpp"

namespace rondo::transport::stores {

namespace bootstrap = rondo::transport::bootstrap;
using bootstrap::StoreClient;

/// Calls `body(rank)` on a thread per rank, and waits for all.
inline void on_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&body, r] { body(r); });
}

/// The text of the Error(bootstrap_failed) that `call` throws.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::bootstrap_failed);
    return error.what();
  }
  return "no error";
}

inline bootstrap::Credentials credentials(int rank, int size) {
  return {.self = {.job = std::string(32, 'a'),
                   .rank = static_cast<std::uint32_t>(rank),
                   .size = static_cast<std::uint32_t>(size),
                   .version = "1.2.3",
                   .host = "host" + std::to_string(rank),
                   .process = static_cast<std::uint64_t>(rank) + 1},
          .secret = "a secret of all ranks"};
}

/// The side channels of a job over a store at a free port of 127.0.0.1.
class StoreJob {
 public:
  explicit StoreJob(int size, std::chrono::milliseconds deadline = std::chrono::seconds(60))
      : StoreJob(size, listen(), deadline) {}
  StoreJob(int size, shm::Descriptor listener,
           std::chrono::milliseconds deadline = std::chrono::seconds(60))
      : size_(size),
        deadline_(deadline),
        endpoint_(endpoint_of(listener)),
        channels_(static_cast<std::size_t>(size)) {
    channels_[0] = StoreClient::serve(credentials_of(0), std::move(listener));
  }

  [[nodiscard]] static shm::Descriptor listen() {
    return bootstrap::listen_at({.host = "127.0.0.1", .port = 0});
  }
  [[nodiscard]] static bootstrap::Endpoint endpoint_of(const shm::Descriptor& listener) {
    return {.host = "127.0.0.1", .port = bootstrap::own_address(listener.get()).port()};
  }

  [[nodiscard]] bootstrap::Credentials credentials_of(int rank) const {
    auto own = credentials(rank, size_);
    own.bootstrap_deadline = deadline_;
    return own;
  }

  [[nodiscard]] const bootstrap::Endpoint& endpoint() const { return endpoint_; }
  [[nodiscard]] int size() const { return size_; }

  void join(int rank) {
    channels_[static_cast<std::size_t>(rank)] = StoreClient::join(credentials_of(rank), endpoint_);
  }
  void join_all() {
    for (int rank = 1; rank < size_; ++rank) join(rank);
  }

  [[nodiscard]] std::unique_ptr<StoreClient>& channel(int rank) {
    return channels_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] const bootstrap::StoreStatistics& statistics() const {
    return channels_[0]->server()->statistics();
  }

 private:
  int size_;
  std::chrono::milliseconds deadline_;
  bootstrap::Endpoint endpoint_;
  std::vector<std::unique_ptr<StoreClient>> channels_;
};

/// A rank's part of the handshake, step by step, over a connection that the test moves.
class StepwiseRank {
 public:
  explicit StepwiseRank(const bootstrap::Endpoint& endpoint,
                        std::size_t longest = bootstrap::handshake_cap)
      : connection_(bootstrap::connect_until(bootstrap::resolve(endpoint).front(),
                                             bootstrap::Clock::now() + std::chrono::seconds(10)),
                    longest) {}

  void answer(const bootstrap::Credentials& credentials) {
    const auto challenge = next();
    ASSERT_TRUE(challenge);
    const auto answer = handshake_.answer(*challenge, credentials.self, credentials.secret);
    ASSERT_TRUE(answer);
    connection_.send(*answer);
  }
  [[nodiscard]] std::optional<bootstrap::Frame> next() {
    while (true) {
      if (auto frame = connection_.next()) return frame;
      if (connection_.ended() ||
          !bootstrap::wait_until_ready(connection_.descriptor(), POLLIN,
                                       bootstrap::Clock::now() + std::chrono::seconds(60))) {
        return std::nullopt;
      }
      connection_.exchange();
    }
  }
  [[nodiscard]] bootstrap::Connection& connection() { return connection_; }

 private:
  bootstrap::Connection connection_;
  bootstrap::RankHandshake handshake_;
};

/// Keeps the messages that a rank receives. To outlive its channel: declare it before the job.
class StatusLog {
 public:
  void watch(SideChannel& channel) {
    channel.watch([this](const StatusMessage& message) {
      const std::scoped_lock lock(mutex_);
      messages_.push_back(message);
      changed_.notify_all();
    });
  }

  /// All messages, once there are `count` of them.
  [[nodiscard]] std::vector<StatusMessage> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return messages_.size() >= count; });
    return messages_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<StatusMessage> messages_;
};

}  // namespace rondo::transport::stores
