// How a slower wire is imitated: a send waits in a queue until the wire would have carried it, and
// only then goes to the real link. Receives go there at once.

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "core/blocked_signals.hpp"
#include "links/link.hpp"

namespace rondo::transport {
namespace {

// What leaves sooner is left to the rank alone: to wake the carrier takes nearly as long.
constexpr auto least_carried = std::chrono::microseconds(20);

// Sends that are on its way wait in `waiting_` for their time. The rank gives them to the real link
// when it makes progress, and a thread, the carrier, those that are due while the rank computes: a
// wire does not wait for its sender. `mutex_` guards the real link and both lists. What the real
// link knows of a send is a transfer of the list's own, so that the rank's changes only on its
// thread.
// Sends that are on its way wait in `waiting_` for their time. The rank gives them to the real link
// when it makes progress, and a thread, the carrier, those that are due while the rank computes: a
// wire does not wait for its sender. `mutex_` guards the real link and both lists. What the real
// link knows of a send is a transfer of the list's own, so that the rank's changes only on its
// thread.
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
    const std::lock_guard lock(mutex_);
    link_->post_recv(peer, tag, data, transfer);
  }
  bool progress() override;
  void send_now() override {
    const std::lock_guard lock(mutex_);
    link_->send_now();
  }
  void cancel(Transfer& transfer) override;
  void discard(int peer, std::uint64_t tag, std::uint64_t mask) override {
    const std::lock_guard lock(mutex_);
    link_->discard(peer, tag, mask);
  }
  /// Nothing while messages wait for their time.
  [[nodiscard]] std::optional<int> arm() override;
  [[nodiscard]] bool rings_doorbell() const noexcept override;
  [[nodiscard]] std::string address() const override { return link_->address(); }
  [[nodiscard]] std::string route() const override;
  [[nodiscard]] std::string error_text(const Transfer& transfer) const override {
    const std::lock_guard lock(mutex_);
    return link_->error_text(transfer);
  }

 private:
  [[nodiscard]] std::string try_connect(int rank, const std::string& address) override;
  [[nodiscard]] std::string try_add_memory(std::span<std::byte> memory) override;

  using Clock = std::chrono::steady_clock;
  struct Send {
    Clock::time_point leaves{};
    int peer = 0;
    std::uint64_t tag = 0;
    std::span<const std::byte> data = {};
    Transfer* transfer = nullptr;  // the rank's
    Transfer carried = {};         // the real link's
    bool is_seen = false;          // by the rank, after it was given to the real link
  };
  using Sends = std::list<Send>;

  [[nodiscard]] bool is_any_unseen() const;
  void start_carrier();
  void carry();
  bool give_due();
  bool end_given();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Sends waiting_;  // in the order in which they leave
  Sends given_;    // to the real link, which may refer to them
  Sends unused_;
  Clock::time_point wire_is_free_{};
  bool closes_ = false;
  std::unique_ptr<Link> link_;
  std::chrono::nanoseconds latency_;
  double bytes_per_second_;
  bool has_tried_to_start_ = false;
  std::thread carrier_;  // from the first send on that takes long
};

DelayedLink::DelayedLink(std::unique_ptr<Link> link, std::chrono::nanoseconds latency,
                         double bytes_per_second)
    : link_(std::move(link)), latency_(latency), bytes_per_second_(bytes_per_second) {}

DelayedLink::~DelayedLink() {
  {
    const std::lock_guard lock(mutex_);
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
  transfer.begin(nullptr);
  bool is_carried = false;
  {
    const std::lock_guard lock(mutex_);
    wire_is_free_ = std::max(wire_is_free_, now) + on_wire;
    if (unused_.empty()) unused_.emplace_back();
    waiting_.splice(waiting_.end(), unused_, unused_.begin());
    Send& send = waiting_.back();
    send.leaves = wire_is_free_ + latency_;
    send.peer = peer;
    send.tag = tag;
    send.data = data;
    send.transfer = &transfer;
    send.is_seen = false;
    is_carried = send.leaves - now >= least_carried;
  }
  if (!is_carried) return;
  start_carrier();
  changed_.notify_one();
}

// Where no thread can be made, what is due leaves when the rank makes progress.
void DelayedLink::start_carrier() {
  if (has_tried_to_start_) return;
  has_tried_to_start_ = true;
  const BlockedSignals blocked;
  try {
    carrier_ = std::thread([this] { carry(); });
  } catch (const std::system_error&) {
  }
}

bool DelayedLink::progress() {
  const std::lock_guard lock(mutex_);
  const bool gave = give_due();
  const bool moved = link_->progress();
  return end_given() || gave || moved;
}

// To the real link, what is due.
bool DelayedLink::give_due() {
  bool gave = false;
  while (!waiting_.empty() && waiting_.front().leaves <= Clock::now()) {
    given_.splice(given_.end(), waiting_, waiting_.begin());
    Send& send = given_.back();
    link_->post_send(send.peer, send.tag, send.data, send.carried);
    gave = true;
  }
  return gave;
}

// Tells the rank what has become of what the real link was given.
bool DelayedLink::end_given() {
  bool moved = false;
  for (auto send = given_.begin(); send != given_.end();) {
    moved = moved || !send->is_seen;
    send->is_seen = true;
    const auto next = std::next(send);
    if (!send->carried.pending()) {
      send->transfer->end(send->carried.error, send->carried.bytes);
      unused_.splice(unused_.end(), given_, send);
      moved = true;
    }
    send = next;
  }
  return moved;
}

// Until the link closes; then nothing waits any more.
void DelayedLink::carry() {
  ::prctl(PR_SET_TIMERSLACK, 1UL);  // or it would wake up to 50 us too late
  std::unique_lock lock(mutex_);
  while (!closes_) {
    if (waiting_.empty()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, waiting_.front().leaves);
      give_due();
    }
  }
}

void DelayedLink::cancel(Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  const auto is_of = [&](const Send& send) { return send.transfer == &transfer; };
  if (const auto waits = std::ranges::find_if(waiting_, is_of); waits != waiting_.end()) {
    unused_.splice(unused_.end(), waiting_, waits);
    transfer.state = TransferState::failed;
  } else if (const auto given = std::ranges::find_if(given_, is_of); given != given_.end()) {
    link_->cancel(given->carried);
    transfer.state = given->carried.state;
    unused_.splice(unused_.end(), given_, given);
  } else {
    link_->cancel(transfer);  // a receive
  }
}

// The real link wakes the rank for nothing that it was given while the rank did not look.
bool DelayedLink::is_any_unseen() const {
  return !waiting_.empty() ||
         std::ranges::any_of(given_, [](const Send& send) { return !send.is_seen; });
}

bool DelayedLink::rings_doorbell() const noexcept {
  const std::lock_guard lock(mutex_);
  return !is_any_unseen() && link_->rings_doorbell();
}

std::optional<int> DelayedLink::arm() {
  const std::lock_guard lock(mutex_);
  if (is_any_unseen()) return std::nullopt;
  return link_->arm();
}

std::string DelayedLink::try_connect(int rank, const std::string& address) {
  const std::lock_guard lock(mutex_);
  link_->connect(rank, address);
  return {};
}

std::string DelayedLink::try_add_memory(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
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
