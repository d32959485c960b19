#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/transport/error.hpp>

namespace rondo::transport {

class WorldLock;

namespace shm {
class RankMemory;
}

enum class TransferState : std::uint8_t { idle, pending, done, failed };

/// One message in flight over a Link. It lives where its operation lives: the link refers to it,
/// and to the message's memory, until it is done, failed or cancelled.
struct Transfer {
  /// The error numbers that links have in common; their others are their own.
  static constexpr std::int32_t truncated = -1;  ///< longer than the memory of its receive
  /// This rank lacks memory of the link's. No library's own number: UCX has -1 to -100, libfabric
  /// positive ones.
  static constexpr std::int32_t no_memory = -1001;

  Transfer() noexcept = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer() = default;

  [[nodiscard]] bool idle() const noexcept { return state == TransferState::idle; }
  [[nodiscard]] bool pending() const noexcept { return state == TransferState::pending; }
  [[nodiscard]] bool done() const noexcept { return state == TransferState::done; }
  [[nodiscard]] bool failed() const noexcept { return state == TransferState::failed; }

  /// For links: the message is in flight; `link_data` is the link's own.
  void begin(void* link_data) noexcept {
    state = TransferState::pending;
    error = 0;
    bytes = 0;
    handle = link_data;
    context = nullptr;
  }
  /// For links: nothing refers to it any more. It is done when `why` is 0.
  void end(std::int32_t why, std::uint64_t moved) noexcept {
    state = why == 0 ? TransferState::done : TransferState::failed;
    error = why;
    bytes = why == 0 ? moved : 0;
    handle = nullptr;
    context = nullptr;
  }

  TransferState state = TransferState::idle;
  std::int32_t error = 0;   ///< when failed: for Link::error_text()
  std::uint64_t bytes = 0;  ///< when done: as many as were sent or received
  void* handle = nullptr;   ///< the link's own
  void* context = nullptr;  ///< the link's own
};

/// Tags have 48 bits; links need the others to tell senders apart.
inline constexpr unsigned link_tag_bits = 48;

/// How long the destructor of a link may take to send what is on its way.
inline constexpr std::chrono::milliseconds link_close_timeout{2'000};

/// How a link between nodes is to be opened.
struct LinkOptions {
  int rank = 0;  ///< in the World: 0 <= rank < size <= 65536
  int size = 1;
  std::string provider;  ///< a UCX_TLS list, a libfabric provider; "" chooses by preference
  /// A network interface ("eth0") or RDMA port ("mlx5_0:1", of libfabric "mlx5_0"); for ucx and ofi
  /// several, with commas between; "" leaves it to the link.
  std::string device;
  int peers = 0;  ///< ranks that are likely to be talked to; a hint
  /// tcp keeps no more of one peer's messages that no receive awaits when these take so many bytes.
  std::size_t most_unexpected = std::size_t{1} << 30U;
};

/// The only interface to a wire: tagged messages between this rank and others.
///
/// - **Matching.** A message goes to the receive that names its sender and its tag; several with
///   the same sender and tag match in the order posted. A message may come before its receive
///   is posted, and none is lost for it.
/// - **Completion.** A posted transfer is pending until progress() (or the post itself) has made
///   it done or failed. A send is done when its memory may be written again; a receive, when the
///   message is there. A message longer than its receive's memory makes the receive fail.
/// - **Waiting.** Nothing here waits but the destructor, which sends what is on its way for at most
///   link_close_timeout; and cancel(), for a moment.
/// - **Threads.** Belongs to the World's thread, or to the one that holds its lock.
class Link {
 public:
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  virtual void post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                         Transfer& transfer) = 0;
  virtual void post_recv(int peer, std::uint64_t tag, std::span<std::byte> data,
                         Transfer& transfer) = 0;

  /// Moves what can be moved. True if anything did.
  virtual bool progress() = 0;

  /// Sends now what was posted and is held back to leave with what follows, as far as that does
  /// not wait. For links that hold nothing back there is nothing to do.
  virtual void send_now() {}

  /// After it the link does not refer to `transfer` or its memory any more. A send that the peer
  /// is already receiving may cost the connection.
  virtual void cancel(Transfer& transfer) = 0;

  /// Nothing is received here any more of what `peer` sends with a tag that equals `tag` in the
  /// bits of `mask`: it is thrown away when it comes, and also if it has come, so that the peer
  /// need not cancel it. A link whose sends can be cancelled without harm has nothing to do.
  virtual void discard(int /*peer*/, std::uint64_t /*tag*/, std::uint64_t /*mask*/) {}

  /// Why this rank takes nothing more of `peer` although it awaits something; empty if it does.
  [[nodiscard]] virtual std::string held_back(int /*peer*/) const { return {}; }

  /// A descriptor that becomes readable when progress() would move something; nothing when it
  /// would already, or when the link cannot tell.
  [[nodiscard]] virtual std::optional<int> arm() = 0;

  /// True when it has no descriptor because peers ring this rank's doorbell
  /// (memory/control_block.hpp) whenever progress() would move something.
  [[nodiscard]] virtual bool rings_doorbell() const noexcept { return false; }

  /// The address that others need to reach this rank.
  [[nodiscard]] virtual std::string address() const = 0;

  /// Makes `rank` known; the connection is made when it is first used. Throws
  /// Error(link_unavailable).
  void connect(int rank, const std::string& address) {
    throw_unless_empty(try_connect(rank, address),
                       "cannot use the address of rank " + std::to_string(rank));
  }

  /// Memory that will be sent from and received into often. Throws Error(link_unavailable).
  void add_memory(std::span<std::byte> memory) {
    throw_unless_empty(try_add_memory(memory),
                       "cannot register " + std::to_string(memory.size()) +
                           " bytes (is the limit of locked memory, `ulimit -l`, too low?)");
  }

  /// Says for people what the link uses: "ucx: tcp over eth0".
  [[nodiscard]] virtual std::string route() const = 0;
  /// Why a transfer failed.
  [[nodiscard]] virtual std::string error_text(const Transfer& transfer) const = 0;

 private:
  // These do the work of connect() and add_memory(); they return why they cannot, or nothing. The
  // Error is thrown in librondo-transport, because plug-ins do not contain its class.
  [[nodiscard]] virtual std::string try_connect(int /*rank*/, const std::string& /*address*/) {
    return {};
  }
  [[nodiscard]] virtual std::string try_add_memory(std::span<std::byte> /*memory*/) { return {}; }

  void throw_unless_empty(const std::string& why, const std::string& what) const {
    if (why.empty()) return;
    throw Error(Errc::link_unavailable, route() + ": " + what + ": " + why);
  }
};

/// Opens this rank's link to the ranks whose memory it has mapped; once per World.
///
/// `memories` has one entry per rank of the World, null for those out of reach; they outlive the
/// link. Ranks that are threads of one process may pass the same objects. With `may_sleep`, a
/// rank that sleeps while it waits is woken by what others do for it.
///
/// Peers may open theirs at any time; what was sent and done can be received even after the
/// sender has closed its link. Throws Error(out_of_memory).
[[nodiscard]] std::unique_ptr<Link> open_shm_link(int rank, std::vector<shm::RankMemory*> memories,
                                                  bool may_sleep);

/// Another link, slowed down for experiments: every message to others leaves this rank as if it
/// went over one wire of the given speed, and arrives the latency later. `bytes_per_second` = 0: no
/// limit.
///
/// The delay is put before the real sending, so a send completes late, too. A message that is on
/// its way for 20 us or longer leaves in time also while the rank computes. For that a thread of
/// the link's takes `lock`, which is shared(), lent, and held wherever the link is called, but not
/// where it is closed. Messages to one peer stay in order.
[[nodiscard]] std::unique_ptr<Link> open_delayed_link(std::unique_ptr<Link> link,
                                                      std::chrono::nanoseconds latency,
                                                      double bytes_per_second, WorldLock& lock);

/// The route of such a link over one with `route`: "tcp: ... (injected: 5 us latency, 1 GB/s)".
[[nodiscard]] std::string route_with_delays(const std::string& route,
                                            std::chrono::nanoseconds latency,
                                            double bytes_per_second);

}  // namespace rondo::transport
