#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <rondo/transport/world.hpp>

#include "links/link.hpp"

namespace rondo::transport {

/// What a message is for; kinds never match each other.
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
/// messages of one operation between two members apart; equal steps match in order.
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

  /// A message of collective operation `sequence`. An empty message is sent, too.
  void send(std::size_t member, std::uint64_t sequence, std::size_t step,
            std::span<const std::byte> data, Transfer& transfer) const {
    const Route& to = routes_[member];
    count(to, data.size());
    to.link->post_send(to.world_rank, tag_of(to.port, sequence, step), data, transfer);
  }
  void recv(std::size_t member, std::uint64_t sequence, std::size_t step, std::span<std::byte> data,
            Transfer& transfer) const {
    const Route& from = routes_[member];
    from.link->post_recv(from.world_rank, tag_of(port_, sequence, step), data, transfer);
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
    if (transfer.pending()) routes_[member].link->cancel(transfer);
  }

  /// What the members send is not received any more: links may throw it away.
  void discard() const {
    constexpr std::uint64_t whole_port = 0xFFFF;
    for (const Route& from : routes_) {
      if (from.link == nullptr) continue;
      from.link->discard(from.world_rank, std::uint64_t{port_} << port_shift,
                         whole_port << port_shift);
    }
  }

  [[nodiscard]] Link& link(std::size_t member) const noexcept { return *routes_[member].link; }

 private:
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

  // Of a message to the rank that has `port`.
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
};

}  // namespace rondo::transport
