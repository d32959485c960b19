#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "links/link.hpp"

namespace rondo::transport {

/// Another link, slowed down for experiments: every message to others leaves this rank as if it
/// went over one wire of the given speed, and arrives the latency later.
///
/// The delay is put before the real sending, so a send completes late, too. Messages to one peer
/// stay in order.
class DelayedLink final : public Link {
 public:
  /// `bytes_per_second` = 0: no limit.
  DelayedLink(std::unique_ptr<Link> link, std::chrono::nanoseconds latency,
              double bytes_per_second);
  /// Sends what still waits for its time.
  ~DelayedLink() override;

  void post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                 Transfer& transfer) override;
  void post_recv(int peer, std::uint64_t tag, std::span<std::byte> data,
                 Transfer& transfer) override {
    link_->post_recv(peer, tag, data, transfer);
  }
  bool progress() override;
  void cancel(Transfer& transfer) override;
  void discard(int peer, std::uint64_t tag, std::uint64_t mask) override {
    link_->discard(peer, tag, mask);
  }
  /// Nothing while messages wait for their time.
  [[nodiscard]] std::optional<int> arm() override;
  [[nodiscard]] std::string address() const override { return link_->address(); }
  [[nodiscard]] std::string route() const override;
  [[nodiscard]] std::string error_text(const Transfer& transfer) const override {
    return link_->error_text(transfer);
  }

 private:
  [[nodiscard]] std::string try_connect(int rank, const std::string& address) override;
  [[nodiscard]] std::string try_add_memory(std::span<std::byte> memory) override;

  using Clock = std::chrono::steady_clock;
  struct Waiting {
    Clock::time_point leaves;
    int peer;
    std::uint64_t tag;
    std::span<const std::byte> data;
    Transfer* transfer;
  };

  std::unique_ptr<Link> link_;
  std::chrono::nanoseconds latency_;
  double bytes_per_second_;
  Clock::time_point wire_is_free_{};
  std::deque<Waiting> waiting_;
};

}  // namespace rondo::transport
