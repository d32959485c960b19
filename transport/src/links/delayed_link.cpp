// How a slower wire is imitated: a send waits in a queue until the wire would have carried it, and
// only then goes to the real link. Receives go there at once.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "links/link.hpp"

namespace rondo::transport {
namespace {

class DelayedLink final : public Link {
 public:
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
  [[nodiscard]] bool rings_doorbell() const noexcept override {
    return waiting_.empty() && link_->rings_doorbell();
  }
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

DelayedLink::DelayedLink(std::unique_ptr<Link> link, std::chrono::nanoseconds latency,
                         double bytes_per_second)
    : link_(std::move(link)), latency_(latency), bytes_per_second_(bytes_per_second) {}

DelayedLink::~DelayedLink() {
  while (!waiting_.empty()) progress();
}

// A message occupies the wire after all earlier ones, and arrives the latency later.
void DelayedLink::post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                            Transfer& transfer) {
  const double seconds =
      bytes_per_second_ > 0 ? static_cast<double>(data.size()) / bytes_per_second_ : 0;
  const auto on_wire =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  wire_is_free_ = std::max(wire_is_free_, Clock::now()) + on_wire;
  transfer.begin(nullptr);
  waiting_.push_back({wire_is_free_ + latency_, peer, tag, data, &transfer});
}

bool DelayedLink::progress() {
  bool moved = false;
  while (!waiting_.empty() && waiting_.front().leaves <= Clock::now()) {
    const Waiting message = waiting_.front();
    waiting_.pop_front();
    link_->post_send(message.peer, message.tag, message.data, *message.transfer);
    moved = true;
  }
  return link_->progress() || moved;
}

void DelayedLink::cancel(Transfer& transfer) {
  const auto waits = std::ranges::find(waiting_, &transfer, &Waiting::transfer);
  if (waits == waiting_.end()) return link_->cancel(transfer);
  waiting_.erase(waits);
  transfer.state = TransferState::failed;
}

std::optional<int> DelayedLink::arm() {
  if (!waiting_.empty()) return std::nullopt;
  return link_->arm();
}

std::string DelayedLink::try_connect(int rank, const std::string& address) {
  link_->connect(rank, address);
  return {};
}

std::string DelayedLink::try_add_memory(std::span<std::byte> memory) {
  link_->add_memory(memory);
  return {};
}

std::string DelayedLink::route() const {
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), " (injected: %.3g us latency, ",
                static_cast<double>(latency_.count()) / 1e3);
  std::string route = link_->route() + text.data();
  if (bytes_per_second_ <= 0) return route + "bandwidth not limited)";
  std::snprintf(text.data(), text.size(), "%.4g GB/s)", bytes_per_second_ / 1e9);
  return route + text.data();
}

}  // namespace

std::unique_ptr<Link> open_delayed_link(std::unique_ptr<Link> link,
                                        std::chrono::nanoseconds latency, double bytes_per_second) {
  return std::make_unique<DelayedLink>(std::move(link), latency, bytes_per_second);
}

}  // namespace rondo::transport
