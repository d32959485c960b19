// How a slower wire is imitated: a send waits in a queue until the wire would have carried it, and
// only then goes to the real link. Receives go there at once.
//
// A wire does not wait for its sender. So what is due leaves when the rank makes progress, but also
// while it computes: a thread, the carrier, takes the World's lock then, as another thread of the
// rank would. It sends, and receives nothing.

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <rondo/transport/blocked_signals.hpp>

#include "base/world_lock.hpp"
#include "message/link.hpp"

namespace rondo::transport {
namespace {

// Messages that leave sooner are left to the rank alone: waking the carrier takes nearly as long.
constexpr auto least_carried = std::chrono::microseconds(20);

class DelayedLink final : public Link {
 public:
  DelayedLink(std::unique_ptr<Link> link, std::chrono::nanoseconds latency, double bytes_per_second,
              WorldLock& lock);
  /// Sends what still waits for its time.
  ~DelayedLink() override;

  void post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                 Transfer& transfer) override;
  void post_recv(int peer, std::uint64_t tag, std::span<std::byte> data,
                 Transfer& transfer) override {
    link_->post_recv(peer, tag, data, transfer);
  }
  bool progress() override;
  void send_now() override { link_->send_now(); }
  void cancel(Transfer& transfer) override;
  void discard(int peer, std::uint64_t tag, std::uint64_t mask) override {
    link_->discard(peer, tag, mask);
  }
  [[nodiscard]] std::string held_back(int peer) const override { return link_->held_back(peer); }
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

  bool give_due();
  void start_carrier();
  void carry();
  void wake_carrier_at(std::optional<Clock::time_point> due);

  std::unique_ptr<Link> link_;
  std::chrono::nanoseconds latency_;
  double bytes_per_second_;
  WorldLock* lock_;
  Clock::time_point wire_is_free_{};
  std::deque<Waiting> waiting_;
  bool carrier_knows_ = false;  // that something waits

  std::mutex mutex_;  // of what follows; nothing else is locked within it
  std::condition_variable changed_;
  std::optional<Clock::time_point> due_;  // when the carrier looks next
  bool closes_ = false;
  bool has_tried_to_start_ = false;
  std::thread carrier_;  // from the first send on that takes long
};

DelayedLink::DelayedLink(std::unique_ptr<Link> link, std::chrono::nanoseconds latency,
                         double bytes_per_second, WorldLock& lock)
    : link_(std::move(link)),
      latency_(latency),
      bytes_per_second_(bytes_per_second),
      lock_(&lock) {}

// The lock is free: the carrier may still want it.
DelayedLink::~DelayedLink() {
  {
    const std::lock_guard own(mutex_);
    closes_ = true;
  }
  changed_.notify_one();
  if (carrier_.joinable()) carrier_.join();
  while (!waiting_.empty()) progress();
}

// A message occupies the wire after all earlier ones, and arrives the latency later.
void DelayedLink::post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                            Transfer& transfer) {
  const double seconds =
      bytes_per_second_ > 0 ? static_cast<double>(data.size()) / bytes_per_second_ : 0;
  const auto on_wire =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const auto now = Clock::now();
  wire_is_free_ = std::max(wire_is_free_, now) + on_wire;
  const auto leaves = wire_is_free_ + latency_;
  transfer.begin(nullptr);
  waiting_.push_back({leaves, peer, tag, data, &transfer});
  if (leaves - now < least_carried) return;
  start_carrier();
  // It may know of nothing though something waits: of what leaves too soon it is not told.
  if (!carrier_knows_) wake_carrier_at(waiting_.front().leaves);
}

bool DelayedLink::progress() {
  const bool gave = give_due();
  return link_->progress() || gave;
}

// To the real link, what is due.
bool DelayedLink::give_due() {
  bool gave = false;
  while (!waiting_.empty() && waiting_.front().leaves <= Clock::now()) {
    const Waiting message = waiting_.front();
    waiting_.pop_front();
    link_->post_send(message.peer, message.tag, message.data, *message.transfer);
    gave = true;
  }
  return gave;
}

// Where no thread can be made, what is due leaves when the rank makes progress.
void DelayedLink::start_carrier() {
  if (std::exchange(has_tried_to_start_, true)) return;
  const BlockedSignals blocked;
  try {
    carrier_ = std::thread([this] { carry(); });
  } catch (const std::system_error&) {
    return;
  }
}

void DelayedLink::wake_carrier_at(std::optional<Clock::time_point> due) {
  carrier_knows_ = due.has_value();
  {
    const std::lock_guard own(mutex_);
    due_ = due;
  }
  changed_.notify_one();
}

// Runs until the link closes. Skips messages that the rank itself has sent in the meantime.
void DelayedLink::carry() {
  ::prctl(PR_SET_TIMERSLACK, 1UL);  // or it would wake up to 50 us too late
  std::unique_lock own(mutex_);
  while (!closes_) {
    if (!due_) {
      changed_.wait(own);
      continue;
    }
    if (Clock::now() < *due_) {
      changed_.wait_until(own, *due_);
      continue;
    }
    own.unlock();
    {
      const std::lock_guard entry(*lock_);
      if (give_due()) link_->send_now();
      wake_carrier_at(waiting_.empty() ? std::nullopt : std::optional(waiting_.front().leaves));
    }
    own.lock();
  }
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
  return route_with_delays(link_->route(), latency_, bytes_per_second_);
}

}  // namespace

std::string route_with_delays(const std::string& route, std::chrono::nanoseconds latency,
                              double bytes_per_second) {
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), " (injected: %.3g us latency, ",
                static_cast<double>(latency.count()) / 1e3);
  const std::string slow = route + text.data();
  if (bytes_per_second <= 0) return slow + "bandwidth not limited)";
  std::snprintf(text.data(), text.size(), "%.4g GB/s)", bytes_per_second / 1e9);
  return slow + text.data();
}

std::unique_ptr<Link> open_delayed_link(std::unique_ptr<Link> link,
                                        std::chrono::nanoseconds latency, double bytes_per_second,
                                        WorldLock& lock) {
  return std::make_unique<DelayedLink>(std::move(link), latency, bytes_per_second, lock);
}

}  // namespace rondo::transport
