#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "links/link.hpp"
#include "links/ofi/endpoint.hpp"
#include "links/ofi/message.hpp"

namespace rondo::transport::ofi {

/// Tagged messages over a reliable datagram endpoint of libfabric; links/link.hpp has the
/// contract.
///
/// - A post hands its message to libfabric at once, or queues it when libfabric cannot accept it;
///   then progress() tries again, sends to each peer in their order.
/// - A send of up to the provider's inject size is done at once: libfabric has copied it.
/// - When a message of a peer fails, so do all others to and from it, now and later: their order
///   could not be kept. Those that were cancelled or longer than their receive do not count.
/// - What is discarded is received by receives that begin again and again, one for each peer and
///   tag: the peer's sends end like others.
/// - libfabric cancels no send. One that is cancelled gets a moment to end by itself; then the
///   connection to its peer is closed (ofi_rxm), or the endpoint where there is no connection to
///   close. Nothing of it is read after that.
class OfiLink final : public Link {
 public:
  explicit OfiLink(const LinkOptions& options);
  OfiLink(const OfiLink&) = delete;
  OfiLink& operator=(const OfiLink&) = delete;
  ~OfiLink() override;

  void post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                 Transfer& transfer) noexcept override;
  void post_recv(int peer, std::uint64_t tag, std::span<std::byte> data,
                 Transfer& transfer) noexcept override;
  bool progress() noexcept override;
  void cancel(Transfer& transfer) noexcept override;
  void discard(int peer, std::uint64_t tag, std::uint64_t mask) noexcept override;
  [[nodiscard]] std::optional<int> arm() noexcept override;

  [[nodiscard]] std::string address() const override { return address_; }
  [[nodiscard]] std::string route() const override { return route_; }
  [[nodiscard]] std::string error_text(const Transfer& transfer) const override {
    return ofi::error_text(transfer.error);
  }

 private:
  [[nodiscard]] std::string try_connect(int rank, const std::string& address) override;
  [[nodiscard]] std::string try_add_memory(std::span<std::byte> memory) override;
  [[nodiscard]] std::int32_t connect_to(int rank, const std::string& address);

  using Clock = std::chrono::steady_clock;
  enum class Submitted : std::uint8_t { yes, later, failed };

  // Posting.
  [[nodiscard]] OfiMessage* start(OfiMessage::Kind kind, int peer, std::uint64_t tag, void* data,
                                  std::size_t bytes, Transfer& transfer) noexcept;
  [[nodiscard]] std::int32_t why_impossible(int peer, std::size_t bytes) const noexcept;
  void post(OfiMessage& recv) noexcept;
  Submitted submit(OfiMessage& message) noexcept;
  std::int64_t submit_send(OfiMessage& message) noexcept;
  std::int64_t inject(OfiMessage& message) noexcept;
  std::int64_t submit_recv(OfiMessage& message) noexcept;

  int lease(OfiMessage& message) noexcept;

  // Progress.
  bool read_completions() noexcept;
  void complete(void* context, std::size_t received) noexcept;
  void read_error() noexcept;
  void fail(OfiMessage& message, std::int32_t error) noexcept;
  bool retry_all() noexcept;
  bool retry(Fifo<OfiMessage>& queue) noexcept;
  static void answer(OfiMessage& message, std::int32_t error, std::size_t bytes) noexcept;
  void end(OfiMessage& message, std::int32_t error, std::size_t bytes) noexcept;

  // Giving up, in cancel.cpp.
  bool cancel_alone(OfiMessage& message, const Transfer& transfer) noexcept;
  [[nodiscard]] Clock::time_point cancel_deadline() noexcept;
  bool close_connection(std::int32_t rank) noexcept;
  [[nodiscard]] bool has_posted(std::int32_t rank) noexcept;
  void abandon(OfiMessage& message, std::int32_t error) noexcept;
  void unqueue(OfiMessage& message) noexcept;
  void fail_peer(std::int32_t rank, std::int32_t error) noexcept;
  void fail_everything(std::int32_t error) noexcept;
  void release_memory() noexcept;

  Endpoint endpoint_;
  OfiMemory memory_;
  MessagePool messages_;
  std::vector<OfiPeer> peers_;        // by rank
  std::vector<std::int32_t> listed_;  // ranks with waiting sends; as large as peers_ from the start
  Fifo<OfiMessage> waiting_recvs_;
  std::string route_;
  std::string address_;
  std::array<std::byte, 64> trash_{};  // where discarded messages begin
  std::size_t sends_ = 0;              // begun, and not reported complete
  std::size_t inject_bytes_;
  std::size_t longest_;
  std::int32_t rank_;
  std::int32_t error_ = 0;         // once the endpoint is closed
  Clock::time_point cancel_ends_;  // of the cancels that follow each other closely
};

}  // namespace rondo::transport::ofi
