// One more wire to a peer: how a long message is divided among several, and one of them.
//
// All stripes of a message are equally long, because only networks of equal speed are joined. Both
// sides compute them from the length of the message, so that a rail carries bytes alone. The calls
// move as much as those of the first connection, for the same reason.

#include "links/tcp/rail.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/cache_line.hpp"
#include "base/tcp_socket.hpp"

namespace rondo::transport::tcp {
namespace {

// Below it the calls cost more than the wire saves.
constexpr std::size_t least_stripe = std::size_t{64} << 10U;

std::optional<std::size_t> amount(ssize_t moved) noexcept {
  if (moved > 0) return static_cast<std::size_t>(moved);
  if (moved == 0) {
    errno = 0;
    return std::nullopt;
  }
  return would_wait(errno) ? std::optional<std::size_t>(0) : std::nullopt;
}

}  // namespace

Stripe stripe_of(std::size_t bytes, std::size_t rails, std::size_t rail) noexcept {
  if (rails == 1) return {.end = bytes};
  const std::size_t even = (bytes + rails - 1) / rails;
  const std::size_t whole = round_up(even, cache_line_bytes);
  return {.begin = std::min(bytes, rail * whole), .end = std::min(bytes, (rail + 1) * whole)};
}

std::size_t rails_for(std::size_t bytes, std::size_t open) noexcept {
  return std::clamp<std::size_t>(bytes / least_stripe, 1, open);
}

void Rail::connect(const SocketAddress& to) noexcept {
  socket_ = start_connecting(to);
  state_ = socket_.valid() ? State::connecting : State::lost;
  since_ = Clock::now();
}

// After its request has gone a connection is not given up: the peer, which may be computing for
// long, would take it for open then.
bool Rail::continue_connecting(const ConnectRequest& request) noexcept {
  const bool connects = state_ == State::connecting;
  const HandshakeStep step =
      connects ? send_request(socket_.get(), request) : receive_answer(socket_.get());
  const bool in_time = !connects || Clock::now() - since_ < handshake_limit;
  if (step == HandshakeStep::waits && in_time) return false;
  if (step != HandshakeStep::done) {
    close();
  } else {
    state_ = connects ? State::handshake : State::open;
  }
  return true;
}

void Rail::admit(shm::Descriptor socket) noexcept {
  if (!send_answer(socket.get())) return;
  socket_ = std::move(socket);
  watched = 0;
  state_ = State::open;
}

void Rail::close() noexcept {
  socket_ = {};
  watched = 0;
  state_ = State::lost;
}

std::optional<std::size_t> Rail::write(std::span<const std::byte> rest) noexcept {
  const std::size_t part = std::min(rest.size(), most_at_once);
  const auto moved = amount(::send(socket_.get(), rest.data(), part, MSG_NOSIGNAL));
  sent += moved.value_or(0);
  return moved;
}

std::optional<std::size_t> Rail::read(std::byte* data, std::size_t bytes) noexcept {
  const std::size_t part = std::min(bytes - received, most_at_once);
  // With MSG_TRUNC and no memory TCP throws away what it would have copied.
  const auto moved = amount(data == nullptr ? ::recv(socket_.get(), nullptr, part, MSG_TRUNC)
                                            : ::recv(socket_.get(), data + received, part, 0));
  received += moved.value_or(0);
  return moved;
}

}  // namespace rondo::transport::tcp
