#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "links/fifo.hpp"
#include "links/tcp/endpoint.hpp"
#include "memory/memory.hpp"
#include "message/link.hpp"

namespace rondo::transport::tcp {

/// Why a transfer failed: one of these, or a positive error number of the system.
enum class Failure : std::int32_t {
  none = 0,
  truncated = Transfer::truncated,
  cancelled = -2,
  unknown_peer = -3,
  closed = -4,   ///< the peer has closed its link, or died
  refused = -5,  ///< it did not take the connection
  no_memory = Transfer::no_memory,
  link_closed = -7,  ///< this rank has closed its link
  given_up = -8,     ///< this rank has given up a long message that had begun
};
[[nodiscard]] inline Failure failure_of(int error_number) noexcept {
  return static_cast<Failure>(error_number);
}

/// The header of each message; its bytes follow.
struct Header {
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
};

/// A posted send or receive.
struct Message {
  enum class Kind : std::uint8_t { send, receive };

  Transfer* transfer = nullptr;  ///< null once it has been cancelled
  Kind kind = Kind::send;
  int peer = 0;
  Header header{};                ///< a receive's has the bytes of its memory
  std::byte* data = nullptr;      ///< a send's is only read
  std::size_t sent = 0;           ///< of the header and of what follows it, together
  std::vector<std::byte> kept{};  ///< a copy of what was left, when it was cancelled half sent
  Message* next = nullptr;

  /// The bytes behind the header that have not been sent.
  [[nodiscard]] std::span<const std::byte> rest() const noexcept;
};

/// A message that came before its receive.
struct Unexpected {
  std::uint64_t tag = 0;
  std::vector<std::byte> data{};
  Unexpected* next = nullptr;
};

/// The pools that all peers of a link share.
struct Pools {
  Pool<Message> messages;
  Pool<Unexpected> unexpected;
};

/// Ends what its poster waits for, and gives it back to its pool.
void end(Pools& pools, Message& message, Failure failure, std::size_t bytes) noexcept;

/// Another rank: the connection to it, and the messages both ways.
///
/// Sends are written in the order posted, as far as the socket takes them; a send is done when the
/// kernel has all of it. The socket is read only while a receive is posted, or a message is
/// half here: what nobody awaits stays with the kernel, which holds the sender up. A message goes
/// from the kernel straight to where its receive wants it. One that comes while a receive of
/// another tag is awaited is kept, until those kept have so many bytes that no more are taken: then
/// receives for them must be posted first.
class Peer {
 public:
  enum class State : std::uint8_t {
    unknown,     ///< has no address
    apart,       ///< no connection has been made
    connecting,  ///< this rank makes one
    handshake,   ///< has made it, and waits for the answer
    yielding,    ///< the peer makes one, too, and that one counts
    open,
    failed,
  };

  void know(const Destination& destination) noexcept;
  void keep_at_most(std::size_t bytes) noexcept { most_kept_ = bytes; }
  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] Failure failure() const noexcept { return failure_; }
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }

  /// Begins to make a connection.
  void connect(Pools& pools) noexcept;
  /// Goes on with it. `request` says which rank this is; `yields`: the peer's own connection counts
  /// when both make one. True if anything changed.
  bool continue_connecting(Pools& pools, ConnectRequest request, bool yields) noexcept;
  /// Makes one more connection when the peer has refused one and, a moment later, none of its own
  /// has come: it may have had no descriptor for it.
  void connect_again(Pools& pools, std::chrono::steady_clock::time_point now) noexcept;
  /// Takes the connection that the peer has made, and gives up an own attempt.
  void admit(Pools& pools, shm::Descriptor socket) noexcept;

  /// Would receive() read now, and send() write?
  [[nodiscard]] bool reads() const noexcept {
    return state_ == State::open && awaits() && !held_back_;
  }
  [[nodiscard]] bool writes() const noexcept { return state_ == State::open && !outgoing_.empty(); }

  void post_send(Message& message) noexcept { outgoing_.push(message); }
  void post_receive(Pools& pools, Message& message) noexcept;
  /// Ends a message, which is not used any more then. A send that has begun goes on from a copy of
  /// its rest; when that is long, the connection ends.
  void cancel(Pools& pools, Message& message) noexcept;
  /// Throws away what has come and what will come with these tags, until a receive is posted that
  /// one of them fits.
  void discard(Pools& pools, std::uint64_t tag, std::uint64_t mask);

  /// Write and read what is possible now. True if anything moved.
  bool send(Pools& pools) noexcept;
  bool receive(Pools& pools) noexcept;

  /// Ends everything if the other host has not answered for seconds although it should have.
  void give_up_if_cut_off(Pools& pools) noexcept;

  /// Is there anything to be written, and anything to be read for?
  [[nodiscard]] bool has_outgoing() const noexcept { return !outgoing_.empty(); }
  [[nodiscard]] bool awaits() const noexcept { return !posted_.empty() || arriving_.active; }
  /// Is what comes next one message too many that no receive awaits?
  [[nodiscard]] bool is_held_back() const noexcept { return held_back_; }
  [[nodiscard]] std::size_t kept_bytes() const noexcept { return kept_; }
  /// Tells the other side that nothing more comes; it acknowledges that, and what came before.
  void finish_sending() const noexcept;
  /// Has the other side not yet acknowledged all that was written?
  [[nodiscard]] bool has_unacknowledged() const noexcept;

  /// Ends everything, now and later.
  void fail(Pools& pools, Failure failure) noexcept;

  std::uint32_t watched = 0;  ///< the link's: events for which its socket is watched
  bool listed = false;        ///< the link's: among those that progress() visits

 private:
  static constexpr std::size_t buffer_bytes = 65536;

  // The message whose header has been read: it goes to a receive, aside, or nowhere.
  struct Arriving {
    bool active = false;
    Header header{};
    std::size_t moved = 0;  // of its bytes
    Message* receive = nullptr;
    Unexpected* aside = nullptr;

    [[nodiscard]] std::byte* data() const noexcept;  // null: it goes nowhere
    [[nodiscard]] std::size_t left() const noexcept { return header.bytes - moved; }
  };
  struct Tags {
    std::uint64_t tag = 0;
    std::uint64_t mask = 0;
    [[nodiscard]] bool fit(std::uint64_t other) const noexcept { return (other & mask) == tag; }
  };

  void open(shm::Descriptor socket, Pools& pools) noexcept;
  void join_arriving(Pools& pools, Message& message) noexcept;
  void fail_sends(Pools& pools, Failure failure) noexcept;
  void account_sent(Pools& pools, std::size_t bytes) noexcept;
  bool parse(Pools& pools) noexcept;
  bool begin_arriving(Pools& pools) noexcept;
  void release(Pools& pools, Unexpected& aside) noexcept;
  void end_arriving(Pools& pools) noexcept;
  [[nodiscard]] bool is_discarded(std::uint64_t tag) const noexcept;

  Destination destination_{};
  State state_ = State::unknown;
  std::chrono::steady_clock::time_point refused_at_;  // since when the state is `yielding`
  Failure failure_ = Failure::none;
  shm::Descriptor socket_;

  Fifo<Message> outgoing_;  // the first may be half written
  Fifo<Message> posted_;    // receives without a message
  Fifo<Unexpected> unexpected_;
  std::size_t kept_ = 0;  // bytes that these take, and the one that is arriving
  std::size_t most_kept_ = 0;
  bool held_back_ = false;
  std::vector<Tags> discarded_;
  Arriving arriving_;
  std::unique_ptr<std::array<std::byte, buffer_bytes>> buffer_;  // what was read and not parsed
  std::size_t parsed_ = 0;
  std::size_t filled_ = 0;
};

}  // namespace rondo::transport::tcp
