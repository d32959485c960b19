#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rondo/transport/world.hpp>

#include "message/header_exchange.hpp"
#include "message/link.hpp"

namespace rondo::transport {

/// The purpose of a message; messages of different kinds never match each other.
enum class MessageKind : std::uint8_t { collective, header, point_to_point, signal };

/// The numbers by which a rank tells its communicators' messages apart. Each member of a
/// communicator has a number of its own for it, told to the others when it is made: so a number is
/// free again as soon as its own rank has ended the communicator, and no other rank need agree.
class Ports {
 public:
  static constexpr std::size_t count = std::size_t{1} << 16U;

  /// One that is free: the one that was free longest, because a message that was not received
  /// may still lie there. Nothing when all are taken.
  [[nodiscard]] std::optional<std::uint16_t> take() {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint16_t port = next_++;
      if (taken_[port]) continue;
      taken_[port] = true;
      return port;
    }
    return std::nullopt;
  }
  void release(std::uint16_t port) noexcept { taken_[port] = false; }

 private:
  std::bitset<count> taken_;
  std::uint16_t next_ = 0;
};

/// A communicator's messages: which link reaches which member, and tags that keep communicators,
/// kinds and operations apart.
///
/// Ranks of one node are reached by the shm link, others by the World's fabric. `step` tells the
/// messages of one operation between two members apart; equal steps match in order. Channels of one
/// port that are used at the same time have lanes of their own, so that their messages never match.
class Channel {
 public:
  /// How one member is reached.
  struct Route {
    int world_rank = 0;
    Link* link = nullptr;      ///< null for this rank itself
    bool leaves_node = false;  ///< is the member on another node?
    std::uint16_t port = 0;    ///< the member's for this communicator
  };
  /// `port` is this rank's. `counters` is lent, and counts what is sent (headers apart).
  Channel(std::vector<Route> routes, std::uint16_t port, Counters& counters)
      : routes_(std::move(routes)), counters_(&counters), port_(port) {}

  static constexpr std::size_t lanes = 16;
  static constexpr std::size_t steps = 0x1000;  ///< of each lane
  /// The lane of what this channel carries, the same on all members; before the first message.
  void use_lane(std::size_t lane) noexcept { first_step_ = lane * steps; }

  /// The members whose headers come to this rank, and to which its own go; before the first.
  void use_headers(std::size_t previous, std::size_t next) noexcept {
    previous_ = previous;
    next_ = next;
  }
  /// Posts the receive of the previous member's header.
  void recv_header(HeaderExchange& headers) const {
    recv_labelled(previous_, MessageKind::header, label_of(headers), headers.place(),
                  headers.received);
  }
  /// Sends this rank's header, with what it carries, unless it has left.
  void send_header(HeaderExchange& headers) const {
    if (headers.has_left()) return;
    send_labelled(next_, MessageKind::header, label_of(headers), headers.leave(), headers.sent);
  }
  /// The headers of the operation whose messages follow: one of these may go with its own header,
  /// and one come with the previous member's. Lent until the next call.
  void carry_with(HeaderExchange& headers) noexcept { headers_ = &headers; }
  /// The previous member's header has been compared: what was kept back for it goes on.
  void accept_header(HeaderExchange& headers) const {
    const HeaderExchange::Held held = headers.note_compared();
    if (held.transfer == nullptr) return;
    const Route& from = routes_[previous_];
    from.link->post_recv(from.world_rank, held.tag, held.into, *held.transfer);
  }

  /// A message of collective operation `sequence`. An empty message is sent, too. Between two
  /// members messages are sent in the order in which their receives are posted.
  void send(std::size_t member, std::uint64_t sequence, std::size_t step,
            std::span<const std::byte> data, Transfer& transfer) const {
    const Route& to = routes_[member];
    const std::uint64_t tag = tag_of(to.port, sequence, first_step_ + step);
    count(to, data.size());
    if (headers_ != nullptr && member == next_) {
      if (headers_->carry(tag, data, transfer)) return;
      send_header(*headers_);  // first, because the receive may have been kept back for it
    }
    to.link->post_send(to.world_rank, tag, data, transfer);
  }
  void recv(std::size_t member, std::uint64_t sequence, std::size_t step, std::span<std::byte> data,
            Transfer& transfer) const {
    const Route& from = routes_[member];
    const std::uint64_t tag = tag_of(port_, sequence, first_step_ + step);
    const bool held =
        headers_ != nullptr && member == previous_ && headers_->hold(tag, data, transfer);
    if (!held) from.link->post_recv(from.world_rank, tag, data, transfer);
  }

  /// Messages of any kind; `label` has 30 bits.
  void send_labelled(std::size_t member, MessageKind kind, std::uint32_t label,
                     std::span<const std::byte> data, Transfer& transfer) const {
    const Route& to = routes_[member];
    if (kind != MessageKind::header) count(to, data.size());
    to.link->post_send(to.world_rank, tag_of(to.port, kind, label), data, transfer);
  }
  void recv_labelled(std::size_t member, MessageKind kind, std::uint32_t label,
                     std::span<std::byte> data, Transfer& transfer) const {
    const Route& from = routes_[member];
    from.link->post_recv(from.world_rank, tag_of(port_, kind, label), data, transfer);
  }

  /// Gives up a transfer to or from `member`, unless it has ended.
  void cancel(std::size_t member, Transfer& transfer) const {
    if (!transfer.pending()) return;
    if (headers_ != nullptr && headers_->forget(transfer)) return;
    routes_[member].link->cancel(transfer);
  }

  /// Receives nothing from the members any more: links may throw away what they send. Members that
  /// have ended are skipped, because none of them waits. `has_ended` is called with World ranks.
  template <typename HasEnded>
  void discard(HasEnded has_ended) const {
    constexpr std::uint64_t whole_port = 0xFFFF;
    for (const Route& from : routes_) {
      if (from.link == nullptr || has_ended(from.world_rank)) continue;
      from.link->discard(from.world_rank, std::uint64_t{port_} << port_shift,
                         whole_port << port_shift);
    }
  }

  [[nodiscard]] Link& link(std::size_t member) const noexcept { return *routes_[member].link; }

 private:
  // Enough of the sequence that those in flight cannot be confused.
  [[nodiscard]] static std::uint32_t label_of(const HeaderExchange& headers) noexcept {
    return static_cast<std::uint32_t>(headers.sequence() & 0x3FFF'FFFFU);
  }

  static constexpr unsigned kind_shift = 30;
  static constexpr unsigned port_shift = 32;
  static constexpr unsigned sequence_shift = 16;
  static constexpr std::uint64_t sequence_mask = 0x3FFF;
  static constexpr std::uint64_t step_mask = 0xFFFF;

  void count(const Route& to, std::size_t bytes) const noexcept {
    counters_->sent_messages += 1;
    counters_->sent_bytes += bytes;
    if (!to.leaves_node) return;
    counters_->fabric_messages += 1;
    counters_->fabric_bytes += bytes;
  }

  // The tag of a message to the rank that has `port`.
  [[nodiscard]] static std::uint64_t tag_of(std::uint16_t port, MessageKind kind,
                                            std::uint64_t label) noexcept {
    return std::uint64_t{port} << port_shift | static_cast<std::uint64_t>(kind) << kind_shift |
           label;
  }
  [[nodiscard]] static std::uint64_t tag_of(std::uint16_t port, std::uint64_t sequence,
                                            std::size_t step) noexcept {
    return tag_of(port, MessageKind::collective,
                  (sequence & sequence_mask) << sequence_shift | (step & step_mask));
  }

  std::vector<Route> routes_;
  Counters* counters_;
  std::uint16_t port_;
  std::size_t first_step_ = 0;
  HeaderExchange* headers_ = nullptr;
  std::size_t previous_ = 0;
  std::size_t next_ = 0;
};

/// A message to or from a member could not be moved. Thrown by a step of an operation; the
/// communicator makes an Error of it that names the rank, its host and the operation.
class LinkFailure : public std::exception {
 public:
  /// `error` is that of the transfer.
  LinkFailure(std::size_t member, std::string what, std::int32_t error)
      : member_(member), what_(std::move(what)), error_(error) {}
  [[nodiscard]] std::size_t member() const noexcept { return member_; }
  /// The message was longer than the memory of its receive: ranks differ, none is lost.
  [[nodiscard]] bool truncated() const noexcept { return error_ == Transfer::truncated; }
  /// This rank lacks memory: the peer is not at fault.
  [[nodiscard]] bool lacks_memory() const noexcept { return error_ == Transfer::no_memory; }
  [[nodiscard]] std::int32_t error() const noexcept { return error_; }
  [[nodiscard]] const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::size_t member_;
  std::string what_;
  std::int32_t error_;
};

/// Throws LinkFailure when `transfer`, to or from `member`, has failed.
inline void throw_if_failed(const Channel& channel, std::size_t member, const Transfer& transfer) {
  if (!transfer.failed()) return;
  throw LinkFailure(member, channel.link(member).error_text(transfer), transfer.error);
}

/// One message of an operation, to or from a member. Lives in its operation, and is cancelled with
/// it: after the destructor no link refers to it or its memory.
///
/// It is used again and again: send or receive, poll ended() until true, then the next.
class Message {
 public:
  Message() = default;
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  ~Message() {
    if (channel_ != nullptr) channel_->cancel(member_, transfer_);
  }

  void send(const Channel& channel, std::size_t member, std::uint64_t sequence, std::size_t step,
            std::span<const std::byte> data) {
    address(channel, member);
    channel.send(member, sequence, step, data, transfer_);
  }
  void receive(const Channel& channel, std::size_t member, std::uint64_t sequence, std::size_t step,
               std::span<std::byte> into) {
    address(channel, member);
    channel.recv(member, sequence, step, into, transfer_);
  }

  /// Is nothing under way (any more)? Throws LinkFailure when it has failed.
  [[nodiscard]] bool ended() const {
    if (transfer_.failed()) throw_if_failed(*channel_, member_, transfer_);
    return !transfer_.pending();
  }
  /// When it has ended: as many as were sent or received.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return transfer_.bytes; }
  /// Is it under way, to or from `member`?
  [[nodiscard]] bool waits_for(std::size_t member) const noexcept {
    return transfer_.pending() && member_ == member;
  }

 private:
  void address(const Channel& channel, std::size_t member) noexcept {
    channel_ = &channel;
    member_ = member;
  }

  Transfer transfer_;
  const Channel* channel_ = nullptr;
  std::size_t member_ = 0;
};

/// Is any of `messages` under way, to or from `member`?
template <typename Messages>
[[nodiscard]] bool any_waits_for(const Messages& messages, std::size_t member) noexcept {
  return std::ranges::any_of(
      messages, [member](const Message& message) { return message.waits_for(member); });
}

/// Is none of `messages` under way? Throws LinkFailure when one has failed.
template <typename Messages>
[[nodiscard]] bool all_ended(const Messages& messages) {
  return std::ranges::all_of(messages, [](const Message& message) { return message.ended(); });
}

/// Counts in `ended` those of the messages numbered below `posted` that have ended, the oldest
/// first. Message k is window[k % size]. True when it counted any.
template <typename Window>
bool count_ended(const Window& window, std::size_t size, std::size_t posted, std::size_t& ended) {
  const std::size_t before = ended;
  while (ended < posted && window[ended % size].ended()) ended += 1;
  return ended > before;
}

}  // namespace rondo::transport
