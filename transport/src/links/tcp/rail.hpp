#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "links/tcp/endpoint.hpp"
#include "memory/memory.hpp"

namespace rondo::transport::tcp {

/// One call reads or writes at most so much. With more, what is under way in both directions falls
/// out of the caches: calls of 512 KiB halved the speed of an allreduce of 1 MiB between two
/// network namespaces of one machine.
inline constexpr std::size_t most_at_once = std::size_t{64} << 10U;

/// The bytes of a message that go over one rail.
struct Stripe {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
};

/// The stripe of `rail`, when `bytes` are divided among `rails`: all are equal, up to a cache line.
[[nodiscard]] Stripe stripe_of(std::size_t bytes, std::size_t rails, std::size_t rail) noexcept;

/// On how many of `open` rails a message of so many bytes is divided.
[[nodiscard]] std::size_t rails_for(std::size_t bytes, std::size_t open) noexcept;

/// A further connection to a peer, by another interface. It carries stripes of messages, one after
/// the other, and nothing else: the stream of the first connection says what they belong to.
class Rail {
 public:
  enum class State : std::uint8_t {
    apart,
    connecting,
    handshake,  ///< this side has made it, and waits for the answer
    open,
    lost,  ///< could not be made, or has failed
  };

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] bool is_being_made() const noexcept {
    return state_ == State::connecting || state_ == State::handshake;
  }
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }

  /// Begins to make the connection.
  void connect(const SocketAddress& to) noexcept;
  /// Goes on with it; gives it up where nothing answers for seconds. True if anything changed.
  bool continue_connecting(const ConnectRequest& request) noexcept;
  /// Takes the connection that the peer has made.
  void admit(shm::Descriptor socket) noexcept;
  void close() noexcept;

  /// Writes of `rest`, which has not been written; nothing when the connection has failed, with
  /// errno. Else how much.
  [[nodiscard]] std::optional<std::size_t> write(std::span<const std::byte> rest) noexcept;
  /// Reads into what is left of `data`; throws `bytes` away instead when `data` is null. Nothing
  /// when the connection has failed, with errno, or 0 there if the peer has closed it.
  [[nodiscard]] std::optional<std::size_t> read(std::byte* data, std::size_t bytes) noexcept;

  /// Bytes of the message that is being written, and of the one that is being read.
  std::size_t sent = 0;
  std::size_t received = 0;
  std::uint32_t watched = 0;  ///< the link's: events for which its socket is watched

 private:
  using Clock = std::chrono::steady_clock;

  State state_ = State::apart;
  shm::Descriptor socket_;
  Clock::time_point since_;
};

}  // namespace rondo::transport::tcp
