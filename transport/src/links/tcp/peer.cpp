// One connection: how it is made, and how messages are written to it and read from it.
//
// Whichever rank sends first makes the connection, and both ranks send over it. When both make one
// at the same time, that of the lower rank counts: the lower rank refuses the other, and the higher
// rank gives its own up. A connection begins with a ConnectRequest and its answer; then each
// message is a Header and its bytes.
//
// Several short messages are written by one call, and read by one call: what is not yet the
// awaited message's lands in a buffer. The bytes of a long message are read straight into the
// memory of its receive, and the same call reads what follows into the buffer.

#include "links/tcp/peer.hpp"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/tcp_socket.hpp"

namespace rondo::transport::tcp {
namespace {

constexpr std::size_t most_messages_at_once = 16;
// One call reads or writes at most so much. With more, what is under way in both directions falls
// out of the caches: calls of 512 KiB halved the speed of an allreduce of 1 MiB between two
// network namespaces of one machine.
constexpr std::size_t most_at_once = std::size_t{64} << 10U;
// The most that is copied of a message that is cancelled half sent.
constexpr std::size_t most_copied = std::size_t{16} << 20U;

// Has something been sent again, or probed a full receiver, without an answer? The kernel alone
// would go on for a quarter of an hour. Its TCP_USER_TIMEOUT would end it sooner, but also where
// the other side answers and computes for so long that it reads nothing.
bool is_cut_off(int socket) noexcept {
  constexpr std::uint32_t longest_silence_ms = 3500;
  constexpr std::uint32_t most_probes = 2;
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  const bool unanswered = info.tcpi_retransmits > 0 || info.tcpi_probes > most_probes;
  return unanswered && info.tcpi_last_ack_recv > longest_silence_ms;
}

// The other side had it in its queue, and has closed it. Where nobody listens any more, the kernel
// refuses it instead.
bool is_closed_by_peer(int error) noexcept { return error == EPIPE || error == ECONNRESET; }

}  // namespace

void end(Pools& pools, Message& message, Failure failure, std::size_t bytes) noexcept {
  if (message.transfer != nullptr) {
    message.transfer->end(static_cast<std::int32_t>(failure), bytes);
  }
  message.kept = {};
  pools.messages.release(message);
}

// A copy ends where the message does.
std::span<const std::byte> Message::rest() const noexcept {
  const std::size_t left = header.bytes - (sent < sizeof(Header) ? 0 : sent - sizeof(Header));
  const std::byte* const end = kept.empty() ? data + header.bytes : kept.data() + kept.size();
  return {end - left, left};
}

void Peer::know(const Destination& destination) noexcept {
  destination_ = destination;
  if (state_ == State::unknown) state_ = State::apart;
}

void Peer::connect(Pools& pools) noexcept {
  socket_ = start_connecting(destination_.address);
  if (!socket_.valid()) return fail(pools, failure_of(errno));
  state_ = State::connecting;
}

bool Peer::continue_connecting(Pools& pools, ConnectRequest request, bool yields) noexcept {
  const bool connects = state_ == State::connecting;
  request.key = destination_.key;
  const HandshakeStep step =
      connects ? send_request(socket_.get(), request) : receive_answer(socket_.get());
  if (step == HandshakeStep::waits) return false;
  if (step == HandshakeStep::done && connects) {
    state_ = State::handshake;
  } else if (step == HandshakeStep::done) {
    open(std::move(socket_), pools);
  } else if (yields && (!connects || (step == HandshakeStep::failed && is_closed_by_peer(errno)))) {
    socket_ = {};
    watched = 0;
    state_ = State::yielding;
    refused_at_ = std::chrono::steady_clock::now();
  } else {
    fail(pools, connects && step == HandshakeStep::failed ? failure_of(errno) : Failure::refused);
  }
  return true;
}

void Peer::connect_again(Pools& pools, std::chrono::steady_clock::time_point now) noexcept {
  constexpr std::chrono::seconds moment{1};
  if (state_ == State::yielding && now - refused_at_ > moment) connect(pools);
}

// If the peer has gone already, an own attempt will find out.
void Peer::admit(Pools& pools, shm::Descriptor socket) noexcept {
  if (send_answer(socket.get())) open(std::move(socket), pools);
}

void Peer::open(shm::Descriptor socket, Pools& pools) noexcept {
  socket_ = std::move(socket);
  watched = 0;
  state_ = State::open;
  try {
    buffer_ = std::make_unique<std::array<std::byte, buffer_bytes>>();
  } catch (const std::bad_alloc&) {
    fail(pools, Failure::no_memory);
  }
}

// Data that has come already is received at once.
void Peer::post_receive(Pools& pools, Message& message) noexcept {
  const std::uint64_t tag = message.header.tag;
  std::erase_if(discarded_, [tag](const Tags& tags) { return tags.fit(tag); });
  Unexpected* const aside =
      unexpected_.extract([tag](const Unexpected& other) { return other.tag == tag; });
  if (aside == nullptr && arriving_.aside != nullptr && arriving_.header.tag == tag) {
    return join_arriving(pools, message);
  }
  if (aside == nullptr) {
    posted_.push(message);
  } else {
    const bool fits = aside->data.size() <= message.header.bytes;
    if (fits) std::ranges::copy(aside->data, message.data);
    end(pools, message, fits ? Failure::none : Failure::truncated, aside->data.size());
    release(pools, *aside);
  }
  parse(pools);
  if (state_ == State::failed) fail(pools, failure_);
}

void Peer::release(Pools& pools, Unexpected& aside) noexcept {
  kept_ -= sizeof(Unexpected) + aside.data.size();
  aside.data = {};
  pools.unexpected.release(aside);
}

// A message that is half here comes before all of its tag that follow it.
void Peer::join_arriving(Pools& pools, Message& message) noexcept {
  Unexpected& aside = *std::exchange(arriving_.aside, nullptr);
  if (arriving_.header.bytes <= message.header.bytes) {
    std::copy_n(aside.data.data(), arriving_.moved, message.data);
    arriving_.receive = &message;
  } else {
    end(pools, message, Failure::truncated, arriving_.header.bytes);
  }
  release(pools, aside);
}

// The peer must get the rest of a message that has begun, or it could read nothing more.
void Peer::cancel(Pools& pools, Message& message) noexcept {
  const auto same = [&](const Message& other) { return &other == &message; };
  if (message.kind == Message::Kind::receive) {
    if (arriving_.receive == &message) arriving_.receive = nullptr;
    posted_.extract(same);
    return end(pools, message, Failure::cancelled, 0);
  }
  if (message.sent == 0) {
    outgoing_.extract(same);
    return end(pools, message, Failure::cancelled, 0);
  }
  const auto rest = message.rest();
  if (rest.size() > most_copied) return fail(pools, Failure::given_up);
  try {
    message.kept.assign(rest.begin(), rest.end());
  } catch (const std::bad_alloc&) {
    return fail(pools, Failure::no_memory);
  }
  std::exchange(message.transfer, nullptr)->end(static_cast<std::int32_t>(Failure::cancelled), 0);
}

void Peer::discard(Pools& pools, std::uint64_t tag, std::uint64_t mask) {
  const Tags tags{.tag = tag & mask, .mask = mask};
  const auto fits = [&](const Unexpected& aside) { return tags.fit(aside.tag); };
  while (Unexpected* aside = unexpected_.extract(fits)) release(pools, *aside);
  discarded_.push_back(tags);
  parse(pools);
}

bool Peer::is_discarded(std::uint64_t tag) const noexcept {
  return std::ranges::any_of(discarded_, [tag](const Tags& tags) { return tags.fit(tag); });
}

// Header and bytes of as many messages as one call takes.
bool Peer::send(Pools& pools) noexcept {
  if (!writes()) return false;
  std::array<iovec, 2 * most_messages_at_once> parts{};
  std::size_t count = 0;
  std::size_t bytes = 0;
  for (Message* message = outgoing_.front(); message != nullptr; message = message->next) {
    if (count + 2 > parts.size() || bytes >= most_at_once) break;
    Header& header = message->header;
    if (const std::size_t sent = message->sent; sent < sizeof(Header)) {
      parts[count++] = {reinterpret_cast<std::byte*>(&header) + sent, sizeof(Header) - sent};
    }
    const auto rest = message->rest();
    const std::size_t part = std::min(rest.size(), most_at_once);
    // The kernel only reads it.
    if (part > 0) parts[count++] = {const_cast<std::byte*>(rest.data()), part};
    bytes += part;
    // Later messages must not overtake the rest of a message that was cut.
    if (part < rest.size()) break;
  }
  msghdr call{};
  call.msg_iov = parts.data();
  call.msg_iovlen = count;
  const ssize_t written = ::sendmsg(socket_.get(), &call, MSG_NOSIGNAL);
  if (written > 0) {
    account_sent(pools, static_cast<std::size_t>(written));
    return true;
  }
  if (would_wait(errno)) return false;
  fail_sends(pools, failure_of(errno));
  return true;
}

void Peer::account_sent(Pools& pools, std::size_t bytes) noexcept {
  while (bytes > 0) {
    Message& message = *outgoing_.front();
    const std::size_t whole = sizeof(Header) + message.header.bytes;
    const std::size_t part = std::min(bytes, whole - message.sent);
    message.sent += part;
    bytes -= part;
    if (message.sent < whole) return;
    outgoing_.pop();
    end(pools, message, Failure::none, message.header.bytes);
  }
}

std::byte* Peer::Arriving::data() const noexcept {
  if (receive != nullptr) return receive->data;
  return aside != nullptr ? aside->data.data() : nullptr;
}

bool Peer::receive(Pools& pools) noexcept {
  if (!reads()) return false;
  std::array<iovec, 2> parts{};
  std::size_t count = 0;
  std::size_t direct = 0;
  if (arriving_.active && arriving_.data() != nullptr) {
    direct = std::min(arriving_.left(), most_at_once);
    parts[count++] = {arriving_.data() + arriving_.moved, direct};
  }
  // The buffer has been parsed: at most a part of a header is left in it.
  std::memmove(buffer_->data(), buffer_->data() + parsed_, filled_ - parsed_);
  filled_ -= parsed_;
  parsed_ = 0;
  if (direct == 0 || direct == arriving_.left()) {
    parts[count++] = {buffer_->data() + filled_, buffer_->size() - filled_};
  }
  const ssize_t got = ::readv(socket_.get(), parts.data(), static_cast<int>(count));
  if (got < 0 && would_wait(errno)) return false;
  if (got <= 0) {
    fail(pools, got == 0 ? Failure::closed : failure_of(errno));
    return true;
  }
  const std::size_t first = std::min(direct, static_cast<std::size_t>(got));
  arriving_.moved += first;
  filled_ += static_cast<std::size_t>(got) - first;
  parse(pools);
  return true;
}

// Goes on as long as the buffer has something that is awaited.
bool Peer::parse(Pools& pools) noexcept {
  bool moved = false;
  while (true) {
    if (arriving_.active) {
      const std::size_t part = std::min(filled_ - parsed_, arriving_.left());
      std::byte* const into = arriving_.data();
      if (into != nullptr && part > 0) {
        std::memcpy(into + arriving_.moved, buffer_->data() + parsed_, part);
      }
      parsed_ += part;
      arriving_.moved += part;
      if (arriving_.left() > 0) return moved;
      end_arriving(pools);
      moved = true;
    }
    if (posted_.empty() || filled_ - parsed_ < sizeof(Header)) return moved;
    if (!begin_arriving(pools)) return moved;
  }
}

// A message for which there is no receive yet is kept, because the awaited one is behind it. False
// if that would be one too many, or if the connection has failed.
bool Peer::begin_arriving(Pools& pools) noexcept {
  Header header;
  std::memcpy(&header, buffer_->data() + parsed_, sizeof(Header));
  const auto& [tag, bytes] = header;
  Message* const receive =
      posted_.extract([&](const Message& other) { return other.header.tag == tag; });
  held_back_ = receive == nullptr && kept_ >= most_kept_ && !is_discarded(tag);
  if (held_back_) return false;
  arriving_ = {.active = true, .header = header};
  parsed_ += sizeof(Header);
  if (receive != nullptr && bytes > receive->header.bytes) {
    end(pools, *receive, Failure::truncated, bytes);
  } else if (receive != nullptr) {
    arriving_.receive = receive;
  } else if (!is_discarded(tag)) {
    try {
      Unexpected& aside = pools.unexpected.acquire();
      arriving_.aside = &aside;
      aside.tag = tag;
      kept_ += sizeof(Unexpected);
      aside.data.resize(bytes);
      kept_ += bytes;
    } catch (const std::exception&) {
      fail(pools, Failure::no_memory);
    }
  }
  return state_ == State::open;
}

void Peer::end_arriving(Pools& pools) noexcept {
  const Arriving done = std::exchange(arriving_, {});
  if (done.receive != nullptr) end(pools, *done.receive, Failure::none, done.header.bytes);
  if (done.aside != nullptr) unexpected_.push(*done.aside);
}

void Peer::finish_sending() const noexcept {
  if (state_ == State::open) ::shutdown(socket_.get(), SHUT_WR);
}

bool Peer::has_unacknowledged() const noexcept {
  int bytes = 0;
  return state_ == State::open && ::ioctl(socket_.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

void Peer::give_up_if_cut_off(Pools& pools) noexcept {
  if (state_ == State::open && is_cut_off(socket_.get())) fail(pools, failure_of(ETIMEDOUT));
}

void Peer::fail_sends(Pools& pools, Failure failure) noexcept {
  while (!outgoing_.empty()) end(pools, outgoing_.pop(), failure, 0);
}

// Messages that had come before are kept, and can still be received.
void Peer::fail(Pools& pools, Failure failure) noexcept {
  state_ = State::failed;
  failure_ = failure;
  socket_ = {};
  watched = 0;
  fail_sends(pools, failure);
  if (arriving_.receive != nullptr) end(pools, *arriving_.receive, failure, 0);
  if (arriving_.aside != nullptr) release(pools, *arriving_.aside);
  arriving_ = {};
  held_back_ = false;
  while (!posted_.empty()) end(pools, posted_.pop(), failure, 0);
}

}  // namespace rondo::transport::tcp
