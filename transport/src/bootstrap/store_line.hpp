#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/connection.hpp"
#include "bootstrap/messages.hpp"
#include "bootstrap/service_thread.hpp"

namespace rondo::transport::rendezvous {

/// A rank's end of its connection to the store: what its own threads ask for, and what the
/// housekeeping thread does about it.
class StoreLine final : public ServiceTask {
 public:
  /// `host` is rank 0's.
  StoreLine(int rank, int size, Connection connection, std::string host);

  // From any thread. The service_thread is to be woken after post_blob(), watch() and post_news().

  /// Begins a round of allgather. Throws Error(rendezvous_failed) when there can be none.
  void post_blob(std::string_view mine);
  /// The parts of the round begun. Throws Error(rendezvous_failed) as soon as it has failed.
  [[nodiscard]] std::vector<std::string> wait_for_blobs(std::chrono::milliseconds limit);
  void watch(std::function<void(const News&)> hear);
  void post_news(const News& news);
  /// As news, unless that was posted already.
  void post_left();

  // On the housekeeping thread.
  void list(std::vector<pollfd>& entries) override;
  [[nodiscard]] Clock::time_point due() const override { return Clock::time_point::max(); }
  void attend(std::span<const pollfd> entries, Clock::time_point now) override;
  void on_failure(std::string_view why) noexcept override;
  void finish() override;
  [[nodiscard]] bool finished() const override { return closed_; }

 private:
  void send_posted();
  void take(const Frame& frame);
  void take(News news);
  void close(const std::string& why);
  void deliver();
  [[noreturn]] void throw_failure() const;

  const int rank_;
  const std::size_t size_;
  const std::string host_;

  Connection connection_;  // this and the next two: the housekeeping thread's
  bool closed_ = false;
  bool finishing_ = false;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Frame> posted_;
  bool left_ = false;
  std::uint64_t round_ = 0;  ///< of the next allgather
  std::optional<std::vector<std::string>> parts_;
  std::string failure_;  ///< why no allgather can succeed any more
  bool store_left_ = false;
  std::deque<News> unheard_;
  std::function<void(const News&)> hear_;
};

}  // namespace rondo::transport::rendezvous
