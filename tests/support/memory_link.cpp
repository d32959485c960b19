#include "support/memory_link.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>

namespace rondo::test {
namespace {

constexpr std::int32_t cut_error = 1;
constexpr std::int32_t too_long_error = transport::Transfer::truncated;

}  // namespace

/// One rank's end of a MemoryFabric.
class MemoryLink final : public transport::Link {
 public:
  MemoryLink(MemoryFabric& fabric, int rank) : fabric_(&fabric), rank_(rank) {}

  void post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                 transport::Transfer& transfer) override {
    fabric_->send(rank_, peer, tag, data, transfer);
  }
  void post_recv(int peer, std::uint64_t tag, std::span<std::byte> data,
                 transport::Transfer& transfer) override {
    fabric_->receive(peer, rank_, tag, data, transfer);
  }
  bool progress() override { return fabric_->progress(rank_); }
  void cancel(transport::Transfer& transfer) override { fabric_->cancel(rank_, transfer); }
  std::optional<int> arm() override { return std::nullopt; }
  [[nodiscard]] std::string address() const override { return std::to_string(rank_); }
  [[nodiscard]] std::string route() const override { return "memory"; }
  [[nodiscard]] std::string error_text(const transport::Transfer& transfer) const override {
    if (transfer.error == too_long_error) return "the message is longer than its receive";
    return "the wire is cut";
  }

 private:
  MemoryFabric* fabric_;
  int rank_;
};

MemoryFabric::MemoryFabric(int ranks, MemoryScript script)
    : script_(std::move(script)),
      ranks_(ranks),
      wires_(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks)),
      endings_(static_cast<std::size_t>(ranks)) {
  for (int rank = 0; rank < ranks; ++rank) {
    links_.push_back(std::make_unique<MemoryLink>(*this, rank));
  }
}

MemoryFabric::~MemoryFabric() = default;

transport::Link& MemoryFabric::link(int rank) { return *links_[static_cast<std::size_t>(rank)]; }

MemoryFabric::Wire& MemoryFabric::wire(int from, int to) {
  return wires_[static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) +
                static_cast<std::size_t>(to)];
}

void MemoryFabric::cut(int a, int b) {
  const std::scoped_lock lock(mutex_);
  cut_locked(a, b);
}

void MemoryFabric::cut_after(int a, int b, std::uint64_t messages) {
  const std::scoped_lock lock(mutex_);
  wire(a, b).cut_at = wire(a, b).messages + messages;
}

std::size_t MemoryFabric::pending() const {
  const std::scoped_lock lock(mutex_);
  const auto sends = static_cast<std::size_t>(std::ranges::count_if(
      messages_, [](const Message& message) { return message.transfer != nullptr; }));
  return sends + receives_.size();
}

std::uint64_t MemoryFabric::sent() const {
  const std::scoped_lock lock(mutex_);
  std::uint64_t sum = 0;
  for (const Wire& wire : wires_) sum += wire.messages;
  return sum;
}

void MemoryFabric::cut_locked(int a, int b) {
  wire(a, b).cut = wire(b, a).cut = true;
  const auto between = [a, b](int from, int to) {
    return (from == a && to == b) || (from == b && to == a);
  };
  std::erase_if(messages_, [&](const Message& message) {
    if (!between(message.from, message.to)) return false;
    end(message.from, message.transfer, cut_error, 0);
    return true;
  });
  std::erase_if(receives_, [&](const Receive& receive) {
    if (!between(receive.from, receive.to)) return false;
    end(receive.to, receive.transfer, cut_error, 0);
    return true;
  });
}

void MemoryFabric::end(int rank, transport::Transfer* transfer, std::int32_t error,
                       std::uint64_t bytes) {
  if (transfer == nullptr) return;
  endings_[static_cast<std::size_t>(rank)].push_back({transfer, error, bytes});
}

void MemoryFabric::send(int from, int to, std::uint64_t tag, std::span<const std::byte> data,
                        transport::Transfer& transfer) {
  const std::scoped_lock lock(mutex_);
  transfer.begin(nullptr);
  Wire& way = wire(from, to);
  if (way.messages == way.cut_at) cut_locked(from, to);
  if (way.cut) {
    end(from, &transfer, cut_error, 0);
    return;
  }
  const int delay = script_.delay ? script_.delay(from, to, way.messages) : 0;
  way.messages += 1;
  Message& message = messages_.emplace_back(
      Message{.from = from, .to = to, .tag = tag, .data = data, .delay = delay});
  if (data.size() > script_.eager_bytes) {
    message.transfer = &transfer;
    return;
  }
  message.copy.assign(data.begin(), data.end());
  message.data = message.copy;
  transfer.end(0, data.size());
}

void MemoryFabric::receive(int from, int to, std::uint64_t tag, std::span<std::byte> into,
                           transport::Transfer& transfer) {
  const std::scoped_lock lock(mutex_);
  transfer.begin(nullptr);
  if (wire(from, to).cut) {
    end(to, &transfer, cut_error, 0);
    return;
  }
  receives_.push_back({from, to, tag, into, &transfer});
}

// The oldest message with the receive's sender and tag, once it can be seen.
std::list<MemoryFabric::Message>::iterator MemoryFabric::match(const Receive& receive) {
  const auto found = std::ranges::find_if(messages_, [&](const Message& message) {
    return message.from == receive.from && message.to == receive.to && message.tag == receive.tag;
  });
  return found != messages_.end() && found->delay > 0 ? messages_.end() : found;
}

bool MemoryFabric::deliver(int rank) {
  bool moved = false;
  for (auto receive = receives_.begin(); receive != receives_.end();) {
    const auto message = receive->to == rank ? match(*receive) : messages_.end();
    if (message == messages_.end()) {
      ++receive;
      continue;
    }
    const bool fits = message->data.size() <= receive->into.size();
    if (fits && !message->data.empty()) {
      std::memcpy(receive->into.data(), message->data.data(), message->data.size());
    }
    end(rank, receive->transfer, fits ? 0 : too_long_error, message->data.size());
    end(message->from, message->transfer, 0, message->data.size());
    messages_.erase(message);
    receive = receives_.erase(receive);
    moved = true;
  }
  return moved;
}

bool MemoryFabric::progress(int rank) {
  const std::scoped_lock lock(mutex_);
  bool moved = false;
  for (Message& message : messages_) {
    if (message.to != rank || message.delay == 0) continue;
    message.delay -= 1;
    moved = true;
  }
  moved = deliver(rank) || moved;
  for (const Ending& ending : endings_[static_cast<std::size_t>(rank)]) {
    ending.transfer->end(ending.error, ending.bytes);
    moved = true;
  }
  endings_[static_cast<std::size_t>(rank)].clear();
  return moved;
}

void MemoryFabric::cancel(int rank, transport::Transfer& transfer) {
  const std::scoped_lock lock(mutex_);
  const auto is_it = [&transfer](const auto& entry) { return entry.transfer == &transfer; };
  std::erase_if(messages_, is_it);
  std::erase_if(receives_, is_it);
  std::erase_if(endings_[static_cast<std::size_t>(rank)], is_it);
  transfer.state = transport::TransferState::idle;
}

}  // namespace rondo::test
