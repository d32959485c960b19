#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <rdma/fabric.h>

#include "links/cancel_patience.hpp"
#include "links/fifo.hpp"
#include "links/ofi/endpoint.hpp"
#include "links/registered_memory.hpp"
#include "message/link.hpp"

namespace rondo::transport::ofi {

/// Registered memory, where the provider wants local buffers registered (FI_MR_LOCAL); elsewhere
/// nothing is done here.
///
/// A buffer in memory that was added costs a look-up; any other buffer is registered for its one
/// message.
class OfiMemory {
 public:
  /// `endpoint` is lent, and outlives it.
  explicit OfiMemory(const Endpoint& endpoint) noexcept
      : endpoint_(&endpoint), needed_(endpoint.wants(FI_MR_LOCAL)) {}

  /// 0 or an error.
  [[nodiscard]] int add(const void* base, std::size_t bytes);
  void clear() noexcept { memory_.clear(); }

  /// A buffer's registration for one message: `once` is the caller's to drop().
  struct Lease {
    void* descriptor = nullptr;
    fid_mr* once = nullptr;
  };
  /// 0 or an error.
  [[nodiscard]] int lease(const void* data, std::size_t bytes, Lease& lease);
  static void drop(Lease& lease) noexcept;

 private:
  int register_memory(const void* base, std::size_t bytes, fid_mr*& registration);

  const Endpoint* endpoint_;
  RegisteredMemory<Owned<fid_mr>> memory_;
  std::uint64_t next_key_ = 1;
  bool needed_;
};

/// The link's record of one message, from post to libfabric's last report of it.
struct OfiMessage {
  enum class Kind : std::uint8_t { send, recv };
  /// abandoned: its caller has been told the end, its memory is out of libfabric's reach, and only
  /// the context must not be used again before libfabric has reported it, if it ever does.
  enum class State : std::uint8_t { unused, queued, posted, abandoned };

  fi_context2 context{};         // first: libfabric gives its address back
  Transfer* transfer = nullptr;  ///< null once the caller has been told the end
  void* data = nullptr;          ///< a send's is only read
  std::size_t bytes = 0;
  std::uint64_t tag = 0;
  std::uint64_t ignored = 0;  ///< bits of the tag that a receive does not compare
  OfiMemory::Lease lease;
  OfiMessage* next = nullptr;
  std::int32_t peer = 0;
  Kind kind = Kind::send;
  State state = State::unused;
  bool cancelled = false;
  bool discards = false;  ///< a receive whose messages are dropped; posted again and again
};
static_assert(std::is_standard_layout_v<OfiMessage>);

/// Messages are used again; memory grows to the most that were in flight at once.
class MessagePool {
 public:
  /// Throws std::bad_alloc.
  [[nodiscard]] OfiMessage& acquire();
  void release(OfiMessage& message) noexcept;
  [[nodiscard]] bool owns(const void* message) const noexcept;

  /// Calls `visit` with each message that is in use; it may release it.
  template <typename Visit>
  void for_each(Visit visit) {
    for (const auto& block : blocks_) {
      for (std::size_t i = 0; i < block_size; ++i) {
        if (block[i].state != OfiMessage::State::unused) visit(block[i]);
      }
    }
  }

 private:
  static constexpr std::size_t block_size = 64;

  std::vector<std::unique_ptr<OfiMessage[]>> blocks_;
  OfiMessage* free_ = nullptr;
};

/// Another rank, as this one reaches it. Peers have no connection of their own here: libfabric
/// makes one when it is needed.
struct OfiPeer {
  fi_addr_t address = FI_ADDR_NOTAVAIL;
  std::int32_t error = 0;    ///< of the connection; all that follows fails with it
  Fifo<OfiMessage> waiting;  ///< sends that libfabric cannot accept yet
  bool is_listed = false;    ///< among the link's peers with waiting sends
  bool is_closed = false;    ///< this rank has closed the connection

  /// Makes its address known. Returns 0 or an error.
  [[nodiscard]] int connect(const Endpoint& endpoint, std::string_view blob);
};

/// The address for a peer's connect(): the provider's name, a zero byte, the endpoint's name.
[[nodiscard]] std::string address_blob(const Endpoint& endpoint);

/// Tagged messages over a reliable datagram endpoint of libfabric; message/link.hpp has the
/// contract.
///
/// - A post hands its message to libfabric at once, or queues it when libfabric cannot accept it;
///   then progress() tries again, sends to each peer in their order.
/// - A message that is longer than the provider's longest fails: its receiver could not take
///   it in parts, because a receive may be longer than its message.
/// - A send of up to the provider's inject size is done at once: libfabric has copied it.
/// - When a message of a peer fails, so do all others to and from it, now and later: their order
///   could not be kept. Messages that were cancelled or longer than their receive do not count.
///   libfabric may not report the end of long sends over ofi_rxm: they end when they are cancelled.
/// - Discarded messages are received by receives that begin again and again, one for each peer and
///   tag: the peer's sends end like others.
/// - libfabric cancels no send. One that is cancelled gets a moment to end by itself; then the
///   connection to its peer is closed (ofi_rxm), or the endpoint where there is no connection to
///   close. Nothing of it is read after that. After a receive that is coming in over TCP, the link
///   stops.
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
  [[nodiscard]] std::string error_text(const Transfer& transfer) const override;

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

  // Giving up.
  bool cancel_alone(OfiMessage& message, const Transfer& transfer) noexcept;
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
  std::int32_t error_ = 0;  // once the endpoint is closed
  bool is_left_ = false;    // libfabric is not called any more
  CancelPatience patience_;
};

}  // namespace rondo::transport::ofi
