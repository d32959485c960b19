#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "links/fifo.hpp"
#include "links/registered_memory.hpp"
#include "message/link.hpp"

// The common part of the links over UCX and over libfabric. Both libraries match tagged messages,
// and report the end of each; neither cancels a send, nor a message that is coming in.

namespace rondo::transport {

/// Error numbers of these links, besides Transfer's; all others are the library's own.
enum : std::int32_t {
  error_unknown_peer = 100'000,
  error_message_too_long,
  error_bad_address,
  error_other_library,
  error_peer_lost,
  error_link_lost,
  error_peer_closed,
  error_cancelled,
};

/// Null for what the library has to explain.
[[nodiscard]] inline const char* engine_error_text(std::int32_t error) noexcept {
  switch (error) {
    case error_unknown_peer:
      return "the link knows no way to the rank: it has no address";
    case error_peer_lost:
      return "the connection to the peer is lost";
    case error_link_lost:
      return "the link is closed after an earlier error";
    case error_peer_closed:
      return "the connection to the peer was closed to cancel a message that it did not fetch";
    case error_cancelled:
      return "it was cancelled";
    case Transfer::truncated:
      return "the message is longer than its receive";
    case Transfer::no_memory:
      return "there is no memory for its messages";
    default:
      return nullptr;
  }
}

/// How long messages that a link cancels may take to end by themselves, because the link can let go
/// of their memory only with the connection to their peer, which others need. The peer needs
/// processor time for its part: 100 ms were too short on few cores with other work, where
/// connections were closed although the peer was about to answer.
///
/// An operation that is given up cancels many messages, maybe to many peers that do not answer:
/// those that follow each other share one patience, and have a little each for what needs no peer.
class CancelPatience {
 public:
  using Clock = std::chrono::steady_clock;

  /// The deadline of a message that is cancelled now.
  [[nodiscard]] Clock::time_point deadline() noexcept {
    constexpr std::chrono::milliseconds patience{500};
    constexpr std::chrono::milliseconds little{1};
    constexpr std::chrono::seconds lull{1};
    const auto now = Clock::now();
    if (now > ends_ + lull) ends_ = now + patience;
    return std::max(ends_, now + little);
  }

 private:
  Clock::time_point ends_;  // of the cancels that follow each other closely
};

/// The link's record of one message, from its post to the library's last report of it. `Own` is
/// the plug-in's part, and the first: libfabric gives its address back.
template <typename Own>
struct EngineMessage {
  enum class Kind : std::uint8_t { send, recv };
  /// - queued: the library has not accepted it yet.
  /// - abandoned: its caller has been told the end, its memory is out of the library's reach, and
  ///   only the record must not be used again before the library has reported it, if it ever does.
  enum class State : std::uint8_t { unused, queued, posted, abandoned };

  Own own{};
  Transfer* transfer = nullptr;  ///< null once the caller has been told the end
  std::byte* data = nullptr;     ///< a send's is only read
  std::size_t bytes = 0;
  std::uint64_t tag = 0;
  std::uint64_t ignored = 0;  ///< bits of the tag that a receive does not compare
  EngineMessage* next = nullptr;
  std::int32_t peer = 0;
  Kind kind = Kind::send;
  State state = State::unused;
  bool cancelled = false;
  bool discards = false;  ///< a receive whose messages are dropped; posted again and again
};

/// A link whose messages a library matches; message/link.hpp has the contract.
///
/// - A post hands its message to the library at once, or queues it when the library cannot accept
///   it; then progress() tries again, sends to each peer in their order.
/// - When a peer fails, so do all messages to and from it, now and later.
/// - Discarded messages are received by receives that begin again and again, one for each peer and
///   tag, until a receive for such a tag is posted: the peer's sends end like others.
/// - Messages are given up one by one or with their peer. One that is queued is dropped, and a
///   receive that has no message yet is cancelled by the library. Any other may take a
///   CancelPatience to end by itself. Then the connection to its peer is closed, which puts the
///   memory out of the library's reach, costs what else was under way with this peer, and leaves
///   all other peers alone. Where that is impossible the link ends, and with it every peer.
///
/// `Traits` has the types Own, of a message; Route, of a peer; Registration, which owns registered
/// memory; Entry, which exists while the library may be called; and the constants `try_again`, with
/// which submit() refuses for now, and `receives_late`: are messages that a peer sent before it
/// failed still received?
///
/// `Derived` has:
/// - connect_to(peer, address): keeps the address. 0 or an error, as of all below.
/// - open(peer): makes the connection unless there is one.
/// - map(data, bytes, error): registers memory, if that is needed.
/// - submit(message): hands it to the library, which may report its end at once, by ended().
/// - cancel_posted(message): asks the library to end it.
/// - drop(message): lets go of what submit() has taken for it.
/// - poll(): lets the library move. True if anything did.
/// - close(rank): closes the connection. False when that is impossible.
/// - quit(): from now on the library touches no memory.
/// - descriptor(): see arm(). library_text(error): what the library says about an error.
template <typename Derived, typename Traits>
class LinkEngine : public Link {
 public:
  void post_send(int rank, std::uint64_t tag, std::span<const std::byte> data,
                 Transfer& transfer) noexcept final {
    [[maybe_unused]] const typename Traits::Entry entry{};
    // A receive writes through the same pointer of Message; a send never does.
    auto* const memory = const_cast<std::byte*>(data.data());
    Message* const message =
        start(Kind::send, rank, wire_tag(rank_, tag), {memory, data.size()}, transfer);
    if (message != nullptr) post(*message);
  }

  void post_recv(int rank, std::uint64_t tag, std::span<std::byte> data,
                 Transfer& transfer) noexcept final {
    [[maybe_unused]] const typename Traits::Entry entry{};
    if (is_rank(rank)) stop_discarding(peer_of(rank), wire_tag(rank, tag));
    // Ranks with equal devices send nothing longer, so a longer receive needs no more.
    const auto memory = data.first(std::min(data.size(), longest_));
    Message* const message = start(Kind::recv, rank, wire_tag(rank, tag), memory, transfer);
    if (message != nullptr) post(*message);
  }

  bool progress() noexcept final {
    if (error_ != 0) return false;
    [[maybe_unused]] const typename Traits::Entry entry{};
    const bool moved = self().poll();
    return retry_all() || moved;
  }

  void cancel(Transfer& transfer) noexcept final {
    if (!transfer.pending()) return;
    [[maybe_unused]] const typename Traits::Entry entry{};
    Message& message = *static_cast<Message*>(transfer.handle);
    const std::int32_t rank = message.peer;
    withdraw(message);
    if (!transfer.pending()) return;
    const auto deadline = patience_.deadline();
    while (transfer.pending() && Clock::now() < deadline) progress();
    if (transfer.pending() && !close_peer(rank, error_peer_closed)) {
      fail_everything(error_link_lost);
    }
  }

  void discard(int rank, std::uint64_t tag, std::uint64_t mask) noexcept final {
    [[maybe_unused]] const typename Traits::Entry entry{};
    constexpr std::uint64_t all = (std::uint64_t{1} << link_tag_bits) - 1;
    Transfer unused{};
    Message* const message = start(Kind::recv, rank, wire_tag(rank, tag & mask), trash_, unused);
    if (message == nullptr) return;
    message->transfer = nullptr;
    message->ignored = all & ~mask;
    try {
      peer_of(rank).discarding.push_back(message);
    } catch (const std::bad_alloc&) {
      return release(*message);
    }
    message->discards = true;
    post(*message);
  }

  // Messages that wait here may become acceptable to the library without an event.
  [[nodiscard]] std::optional<int> arm() noexcept final {
    if (error_ != 0 || !listed_.empty()) return std::nullopt;
    [[maybe_unused]] const typename Traits::Entry entry{};
    return self().descriptor();
  }

  [[nodiscard]] std::string error_text(const Transfer& transfer) const final {
    return text_of(transfer.error);
  }

 protected:
  using Clock = std::chrono::steady_clock;
  using Message = EngineMessage<typename Traits::Own>;
  using Kind = typename Message::Kind;
  using State = typename Message::State;
  using Registration = typename Traits::Registration;

  /// Messages that the library cannot accept yet, and that must stay in order.
  struct Lane {
    Fifo<Message> waiting;
    bool is_listed = false;  ///< among those that progress() tries again
  };
  struct Peer {
    typename Traits::Route route{};
    std::int32_t error = 0;   ///< with which all that follows fails
    bool has_failed = false;  ///< fail_peer() has ended its messages
    Lane sends;
    std::vector<Message*> discarding;  ///< the receives that do
  };

  explicit LinkEngine(const LinkOptions& options)
      : rank_(options.rank), peers_(static_cast<std::size_t>(options.size)) {
    listed_.reserve(peers_.size() + 1);
  }

  [[nodiscard]] Peer& peer_of(std::int32_t rank) noexcept {
    return peers_[static_cast<std::size_t>(rank)];
  }

  /// The registration of memory that was added, as one; null if there is none.
  [[nodiscard]] const Registration* registered(const Message& message) noexcept {
    const auto join = [this](const void* base, std::size_t bytes) {
      std::int32_t error = 0;
      return self().map(base, bytes, error);
    };
    try {
      return memory_.find(message.data, message.bytes, join);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  /// The library refers to the message no more.
  void ended(Message& message, std::int32_t error, std::size_t bytes) noexcept {
    if (message.state == State::abandoned) return release(message);
    end(message, error, bytes);
  }

  /// Tells the caller how its transfer went; the library may still refer to the record.
  static void answer(Message& message, std::int32_t error, std::size_t bytes) noexcept {
    if (message.transfer == nullptr) return;
    std::exchange(message.transfer, nullptr)->end(error, bytes);
  }

  /// The memory is out of the library's reach, which may still report the message.
  void abandon(Message& message, std::int32_t error) noexcept {
    let_go(message, error, 0);
    message.state = State::abandoned;
  }

  /// Ends a message as far as this rank can alone.
  void withdraw(Message& message) noexcept {
    const bool was_cancelled = std::exchange(message.cancelled, true);
    if (message.state == State::queued) {
      lane_of(message).waiting.extract([&](const Message& other) { return &other == &message; });
      end(message, error_cancelled, 0);
    } else if (message.state == State::posted && !was_cancelled) {
      self().cancel_posted(message);
    }
  }

  /// Ends what is under way with one peer, but for posted sends; everything later fails at once.
  void fail_peer(std::int32_t rank, std::int32_t error) noexcept {
    Peer& peer = peer_of(rank);
    if (peer.error == 0) peer.error = error;
    if (std::exchange(peer.has_failed, true)) return;
    messages_.for_each([&](Message& message) {
      const bool is_recv = message.kind == Kind::recv;
      if (message.peer == rank && (is_recv || message.state == State::queued)) withdraw(message);
    });
  }

  /// The same for all that is posted. False when the connection cannot be closed.
  bool close_peer(std::int32_t rank, std::int32_t error) noexcept {
    fail_peer(rank, error);
    if (!self().close(rank)) return false;
    // The library reports most of what has ended with the connection, but not all: a send that the
    // peer should have fetched, or a message of which only the beginning has come.
    settle(rank);
    messages_.for_each([&](Message& message) {
      if (message.peer == rank && message.state == State::posted) {
        abandon(message, peer_of(rank).error);
      }
    });
    return true;
  }

  /// Takes the reports of what has ended with a peer already.
  void settle(std::int32_t rank) noexcept {
    constexpr int rounds = 100;
    for (int round = 0; round < rounds && has_posted(rank) && self().poll(); ++round) {
    }
  }
  [[nodiscard]] bool has_posted(std::int32_t rank, std::optional<Kind> kind = {}) noexcept {
    bool found = false;
    messages_.for_each([&](const Message& message) {
      const bool fits = message.peer == rank && message.kind == kind.value_or(message.kind);
      found = found || (fits && message.state == State::posted);
    });
    return found;
  }

  void fail_everything(std::int32_t error) noexcept {
    if (error_ != 0) return;
    error_ = error;
    self().quit();
    for (Lane* const lane : listed_) lane->waiting = {};
    listed_.clear();
    messages_.for_each([&](Message& message) {
      if (message.state == State::queued || message.state == State::posted) {
        abandon(message, error);
      }
    });
  }

  [[nodiscard]] std::string text_of(std::int32_t error) const {
    const char* const text = engine_error_text(error);
    return text != nullptr ? text : static_cast<const Derived&>(*this).library_text(error);
  }

  std::int32_t rank_;
  std::int32_t error_ = 0;                                         ///< once the link has ended
  std::size_t longest_ = std::numeric_limits<std::size_t>::max();  ///< message
  /// Receives name their sender by the plug-in's Route, not by the upper 16 bits of the tag.
  bool is_directed_ = false;
  std::size_t sends_ = 0;    ///< begun, and not reported complete
  std::vector<Peer> peers_;  ///< by rank
  Pool<Message> messages_;
  RegisteredMemory<Registration> memory_;

 private:
  enum class Submitted : std::uint8_t { yes, later, failed };

  [[nodiscard]] Derived& self() noexcept { return static_cast<Derived&>(*this); }

  [[nodiscard]] std::string try_connect(int rank, const std::string& address) final {
    [[maybe_unused]] const typename Traits::Entry entry{};
    std::int32_t error = is_rank(rank) ? error_ : error_unknown_peer;
    if (error == 0) error = self().connect_to(peer_of(rank), address);
    return error == 0 ? std::string() : text_of(error);
  }

  [[nodiscard]] std::string try_add_memory(std::span<std::byte> memory) final {
    std::int32_t error = 0;
    Registration registration = self().map(memory.data(), memory.size(), error);
    if (registration) memory_.add(memory.data(), memory.size(), std::move(registration));
    return error == 0 ? std::string() : text_of(error);
  }

  [[nodiscard]] bool is_rank(int rank) const noexcept {
    return rank >= 0 && static_cast<std::size_t>(rank) < peers_.size();
  }
  [[nodiscard]] std::uint64_t wire_tag(int sender, std::uint64_t tag) const noexcept {
    return is_directed_ ? tag : static_cast<std::uint64_t>(sender) << link_tag_bits | tag;
  }
  // Receives of all peers share one: the library matches them in the order posted.
  [[nodiscard]] Lane& lane_of(const Message& message) noexcept {
    return message.kind == Kind::send ? peer_of(message.peer).sends : recvs_;
  }

  // Why no message of `bytes` goes to or comes from `rank`; 0 if nothing stands against it.
  [[nodiscard]] std::int32_t why_impossible(Kind kind, int rank, std::size_t bytes) noexcept {
    if (error_ != 0) return error_;
    if (!is_rank(rank)) return error_unknown_peer;
    Peer& peer = peer_of(rank);
    if (peer.error == 0) {
      const std::int32_t error = self().open(peer);
      if (error != 0 && peer.error == 0) return error;
    }
    // No connection can be opened to a peer that is gone, but its messages may have come.
    if (peer.error != 0 && (kind == Kind::send || !Traits::receives_late)) return peer.error;
    return bytes > longest_ ? error_message_too_long : 0;
  }

  // A message in flight for `transfer`; null when that has failed.
  [[nodiscard]] Message* start(Kind kind, int rank, std::uint64_t tag, std::span<std::byte> data,
                               Transfer& transfer) noexcept {
    std::int32_t error = why_impossible(kind, rank, data.size());
    Message* message = nullptr;
    try {
      if (error == 0) message = &messages_.acquire();
    } catch (const std::bad_alloc&) {
      error = Transfer::no_memory;
    }
    if (message == nullptr) {
      transfer.end(error, 0);
      return nullptr;
    }
    message->transfer = &transfer;
    message->data = data.data();
    message->bytes = data.size();
    message->tag = tag;
    message->ignored = 0;
    message->peer = rank;
    message->kind = kind;
    message->cancelled = false;
    if (kind == Kind::send) ++sends_;
    transfer.begin(message);
    return message;
  }

  void post(Message& message) noexcept {
    if (lane_of(message).waiting.empty() && submit(message) != Submitted::later) return;
    queue(message);
  }

  void queue(Message& message) noexcept {
    Lane& lane = lane_of(message);
    message.state = State::queued;
    lane.waiting.push(message);
    if (!std::exchange(lane.is_listed, true)) listed_.push_back(&lane);
  }

  // The library may report the end within the call.
  Submitted submit(Message& message) noexcept {
    message.state = State::posted;
    const std::int32_t rank = message.peer;
    const std::int32_t error = self().submit(message);
    if (error == 0) return Submitted::yes;
    if (error == Traits::try_again) return Submitted::later;
    end(message, error, 0);
    fail_peer(rank, error);
    return Submitted::failed;
  }

  // Submits what the library could not accept before.
  bool retry_all() noexcept {
    bool moved = false;
    for (std::size_t i = 0; i < listed_.size();) {
      Lane& lane = *listed_[i];
      moved = retry(lane) || moved;
      if (!lane.waiting.empty()) {
        ++i;
        continue;
      }
      lane.is_listed = false;
      listed_[i] = listed_.back();
      listed_.pop_back();
    }
    return moved;
  }

  // As many as there are now: a receive that discards may end at once, and waits again.
  bool retry(Lane& lane) noexcept {
    bool moved = false;
    for (std::size_t left = lane.waiting.size(); left > 0 && !lane.waiting.empty(); --left) {
      Message& message = lane.waiting.pop();
      if (submit(message) == Submitted::later) {
        message.state = State::queued;
        lane.waiting.push_front(message);
        break;
      }
      moved = true;
    }
    return moved;
  }

  void let_go(Message& message, std::int32_t error, std::size_t bytes) noexcept {
    if (message.kind == Kind::send) --sends_;
    if (std::exchange(message.discards, false)) {
      std::erase(peer_of(message.peer).discarding, &message);
    }
    self().drop(message);
    answer(message, error, bytes);
  }

  // A receive that discards begins again, in the next progress(). A cancelled message fails as its
  // peer has, if it has.
  void end(Message& message, std::int32_t error, std::size_t bytes) noexcept {
    const bool received = error == 0 || error == Transfer::truncated;
    if (message.discards && received && !message.cancelled && error_ == 0) {
      self().drop(message);
      return queue(message);
    }
    const std::int32_t of_peer = peer_of(message.peer).error;
    let_go(message, message.cancelled && !received && of_peer != 0 ? of_peer : error, bytes);
    release(message);
  }

  void release(Message& message) noexcept {
    message.state = State::unused;
    messages_.release(message);
  }

  // From the last one on: withdraw() may end it at once, which takes it from the list.
  void stop_discarding(Peer& peer, std::uint64_t tag) noexcept {
    for (std::size_t i = peer.discarding.size(); i-- > 0;) {
      Message& message = *peer.discarding[i];
      if (((message.tag ^ tag) & ~message.ignored) == 0) withdraw(message);
    }
  }

  Lane recvs_;
  std::vector<Lane*> listed_;  // as large as it can get from the start
  CancelPatience patience_;
  std::array<std::byte, 64> trash_{};  // where discarded messages begin
};

}  // namespace rondo::transport
