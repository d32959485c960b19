// A store on loopback, and the ranks that come to it.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>

#include "bootstrap/store_client.hpp"
#include "bootstrap/tcp.hpp"

namespace rondo::transport::test {

namespace rendezvous = rondo::transport::rendezvous;
using rendezvous::News;
using rendezvous::SideChannel;
using rendezvous::StoreClient;

/// Calls `body(rank)` on a thread per rank, and waits for all.
inline void on_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&body, r] { body(r); });
}

/// What `call` complains of.
inline std::string complaint_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::rendezvous_failed);
    return error.what();
  }
  return "no complaint";
}

inline rendezvous::Credentials credentials(int rank, int size) {
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
    channels_[0] = StoreClient::serve(place(0), std::move(listener));
  }

  [[nodiscard]] static shm::Descriptor listen() {
    return rendezvous::listen_at({.host = "127.0.0.1", .port = 0});
  }
  [[nodiscard]] static rendezvous::Endpoint endpoint_of(const shm::Descriptor& listener) {
    return {.host = "127.0.0.1", .port = rendezvous::own_address(listener.get()).port()};
  }

  [[nodiscard]] rendezvous::Credentials place(int rank) const {
    auto place = credentials(rank, size_);
    place.rendezvous_deadline = deadline_;
    return place;
  }

  [[nodiscard]] const rendezvous::Endpoint& endpoint() const { return endpoint_; }
  [[nodiscard]] int size() const { return size_; }

  void join(int rank) {
    channels_[static_cast<std::size_t>(rank)] = StoreClient::join(place(rank), endpoint_);
  }
  void join_all() {
    for (int rank = 1; rank < size_; ++rank) join(rank);
  }

  [[nodiscard]] std::unique_ptr<StoreClient>& channel(int rank) {
    return channels_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] const rendezvous::StoreStatistics& statistics() const {
    return channels_[0]->server()->statistics();
  }

 private:
  int size_;
  std::chrono::milliseconds deadline_;
  rendezvous::Endpoint endpoint_;
  std::vector<std::unique_ptr<StoreClient>> channels_;
};

/// Collects what a rank hears. To outlive its channel: declare it before the job.
class Ear {
 public:
  void watch(SideChannel& channel) {
    channel.watch([this](const News& news) {
      const std::scoped_lock lock(mutex_);
      heard_.push_back(news);
      changed_.notify_all();
    });
  }

  /// The first `count` news, once there are so many.
  [[nodiscard]] std::vector<News> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return heard_.size() >= count; });
    return heard_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<News> heard_;
};

}  // namespace rondo::transport::test
