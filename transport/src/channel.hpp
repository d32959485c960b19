#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <rondo/transport/counters.hpp>

#include "links/link.hpp"

namespace rondo::transport {

/// What a message is for; kinds never match each other.
enum class MessageKind : std::uint8_t { collective, header, point_to_point, signal };

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
  };
  /// `counters` is lent, and counts what is sent (headers apart).
  Channel(std::vector<Route> routes, std::uint16_t context, Counters& counters)
      : routes_(std::move(routes)), counters_(&counters), context_(context) {}

  /// A message of collective operation `sequence`. An empty message is sent, too.
  void send(std::size_t member, std::uint64_t sequence, std::size_t step,
            std::span<const std::byte> data, Transfer& transfer) const {
    count(routes_[member], data.size());
    post(member, tag_of(sequence, step), data, transfer);
  }
  void recv(std::size_t member, std::uint64_t sequence, std::size_t step, std::span<std::byte> data,
            Transfer& transfer) const {
    const Route& from = routes_[member];
    from.link->post_recv(from.world_rank, tag_of(sequence, step), data, transfer);
  }

  /// Messages of any kind; `label` has 30 bits.
  void send_labelled(std::size_t member, MessageKind kind, std::uint32_t label,
                     std::span<const std::byte> data, Transfer& transfer) const {
    if (kind != MessageKind::header) count(routes_[member], data.size());
    post(member, tag_of(kind, label), data, transfer);
  }
  void recv_labelled(std::size_t member, MessageKind kind, std::uint32_t label,
                     std::span<std::byte> data, Transfer& transfer) const {
    const Route& from = routes_[member];
    from.link->post_recv(from.world_rank, tag_of(kind, label), data, transfer);
  }

  /// Gives up a transfer to or from `member`, unless it has ended.
  void cancel(std::size_t member, Transfer& transfer) const {
    if (transfer.pending()) routes_[member].link->cancel(transfer);
  }

  /// Nobody asks any more for what the members send: links may throw it away.
  void discard() const {
    constexpr std::uint64_t all_contexts = 0xFFFF;
    for (const Route& from : routes_) {
      if (from.link == nullptr) continue;
      from.link->discard(from.world_rank, std::uint64_t{context_} << context_shift,
                         all_contexts << context_shift);
    }
  }

  [[nodiscard]] Link& link(std::size_t member) const noexcept { return *routes_[member].link; }

 private:
  static constexpr unsigned kind_shift = 30;
  static constexpr unsigned context_shift = 32;
  static constexpr unsigned sequence_shift = 16;
  static constexpr std::uint64_t sequence_mask = 0x3FFF;
  static constexpr std::uint64_t step_mask = 0xFFFF;

  void post(std::size_t member, std::uint64_t tag, std::span<const std::byte> data,
            Transfer& transfer) const {
    const Route& to = routes_[member];
    to.link->post_send(to.world_rank, tag, data, transfer);
  }
  void count(const Route& to, std::size_t bytes) const noexcept {
    counters_->sent_messages += 1;
    counters_->sent_bytes += bytes;
    if (!to.leaves_node) return;
    counters_->fabric_messages += 1;
    counters_->fabric_bytes += bytes;
  }

  [[nodiscard]] std::uint64_t tag_of(MessageKind kind, std::uint64_t label) const noexcept {
    return std::uint64_t{context_} << context_shift |
           static_cast<std::uint64_t>(kind) << kind_shift | label;
  }
  [[nodiscard]] std::uint64_t tag_of(std::uint64_t sequence, std::size_t step) const noexcept {
    return tag_of(MessageKind::collective,
                  (sequence & sequence_mask) << sequence_shift | (step & step_mask));
  }

  std::vector<Route> routes_;
  Counters* counters_;
  std::uint16_t context_;
};

}  // namespace rondo::transport
