#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "links/link_v1.h"
#include "links/ofi/endpoint.hpp"
#include "links/ofi/memory.hpp"
#include "links/ofi/message.hpp"
#include "links/ofi/peer.hpp"

namespace rondo::transport::ofi {

/// Tagged messages over a reliable datagram endpoint of libfabric; links/link.hpp has the
/// contract.
///
/// - A post hands its message to libfabric at once, or queues it when libfabric cannot take it;
///   then progress() tries again, sends to each peer in their order.
/// - A send of up to the provider's inject size is done at once: libfabric has copied it.
/// - When a message of a peer fails, so do all others to and from it, now and later: their order
///   could not be kept. Those that were cancelled or longer than their receive do not count.
/// - What is discarded is received by receives that begin again and again, one for each peer and
///   tag: the peer's sends end like others.
/// - libfabric takes no send back. One that is cancelled gets a moment to end by itself; then the
///   connection to its peer is closed (ofi_rxm), or the endpoint where there is no connection to
///   close. Nothing of it is read after that.
class Link {
 public:
  explicit Link(const rondo_link_options& options);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link();

  [[nodiscard]] const std::string& route() const noexcept { return route_; }
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  [[nodiscard]] int connect(std::int32_t rank, std::string_view address);

  void post_send(std::int32_t peer, std::uint64_t tag, const void* data, std::size_t bytes,
                 rondo_transfer& transfer) noexcept;
  void post_recv(std::int32_t peer, std::uint64_t tag, void* data, std::size_t bytes,
                 rondo_transfer& transfer) noexcept;
  bool progress() noexcept;
  void cancel(rondo_transfer& transfer) noexcept;
  void discard(std::int32_t peer, std::uint64_t tag, std::uint64_t mask) noexcept;

  /// -1 when the link cannot tell, or has something to do.
  [[nodiscard]] int arm() noexcept;

  [[nodiscard]] Memory& memory() noexcept { return memory_; }

  /// Progress until every send has left or `timeout_ms` are over.
  void drain(int timeout_ms) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Taken : std::uint8_t { yes, later, failed };

  [[nodiscard]] Message* start(Message::Kind kind, std::int32_t peer, std::uint64_t tag, void* data,
                               std::size_t bytes, rondo_transfer& transfer) noexcept;
  [[nodiscard]] std::int32_t obstacle(std::int32_t peer, std::size_t bytes) const noexcept;
  void post(Message& recv) noexcept;
  Taken hand_over(Message& message) noexcept;
  std::int64_t hand_over_send(Message& message) noexcept;
  std::int64_t inject(Message& message) noexcept;
  std::int64_t hand_over_recv(Message& message) noexcept;

  int lease(Message& message) noexcept;

  bool read_completions() noexcept;
  void complete(void* context, std::size_t received) noexcept;
  void read_error() noexcept;
  void fail(Message& message, std::int32_t error) noexcept;
  bool retry_all() noexcept;
  bool retry(MessageQueue& queue) noexcept;
  static void answer(Message& message, std::int32_t error, std::size_t bytes) noexcept;
  void end(Message& message, std::int32_t error, std::size_t bytes) noexcept;

  bool take_back(Message& message, const rondo_transfer& transfer) noexcept;
  [[nodiscard]] Clock::time_point patience() noexcept;
  bool cut(std::int32_t rank) noexcept;
  [[nodiscard]] bool has_posted(std::int32_t rank) noexcept;
  void abandon(Message& message, std::int32_t error) noexcept;
  void unqueue(Message& message) noexcept;
  void lose_peer(std::int32_t rank, std::int32_t error) noexcept;
  void lose_everything(std::int32_t error) noexcept;
  void release_memory() noexcept;

  Endpoint endpoint_;
  Memory memory_;
  MessagePool messages_;
  std::vector<Peer> peers_;           // by rank
  std::vector<std::int32_t> listed_;  // ranks with waiting sends; as large as peers_ from the start
  MessageQueue waiting_recvs_;
  std::string route_;
  std::string address_;
  std::array<std::byte, 64> trash_{};  // where discarded messages begin
  std::size_t sends_ = 0;              // begun, and not reported complete
  std::size_t inject_bytes_;
  std::size_t longest_;
  std::int32_t rank_;
  std::int32_t error_ = 0;           // once the endpoint is closed
  Clock::time_point patience_ends_;  // of the cancels that follow each other closely
};

}  // namespace rondo::transport::ofi
