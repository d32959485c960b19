#include "bootstrap/connection.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace rondo::transport::rendezvous {
namespace {

bool would_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Connection::Connection(shm::Descriptor socket, std::size_t cap)
    : socket_(std::move(socket)), reader_(cap) {}

short Connection::events() const noexcept {
  return static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT);
}

void Connection::send(const Frame& frame) {
  if (ended() || finishing_) return;
  append_frame(unsent_, frame);
  flush();
}

void Connection::exchange() {
  flush();
  receive();
}

std::optional<Frame> Connection::next() {
  std::optional<Frame> frame = reader_.next();
  if (reader_.broken() && !ended()) end_ = "it sent what is no message of the store";
  return frame;
}

void Connection::finish_sending() {
  finishing_ = true;
  flush();
}

void Connection::close() {
  if (!ended()) end_ = "this side closed it";
  unsent_.clear();
  sent_ = 0;
  const shm::Descriptor closed = std::exchange(socket_, shm::Descriptor());
}

void Connection::flush() {
  while (!ended() && sent_ < unsent_.size()) {
    const ssize_t count =
        ::send(socket_.get(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
    if (count < 0 && would_wait(errno)) return;
    if (count < 0) {
      // What came before the end is still to be read; receive() finds the end, too.
      end_ = std::generic_category().message(errno);
      receive();
      return;
    }
    sent_ += static_cast<std::size_t>(count);
  }
  unsent_.clear();
  sent_ = 0;
  if (finishing_) ::shutdown(socket_.get(), SHUT_WR);
}

void Connection::receive() {
  // Enough for one turn: others wait.
  constexpr int most_reads = 16;
  std::array<char, 65536> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled below
  for (int i = 0; i < most_reads; ++i) {
    const std::size_t room = std::min(buffer.size(), reader_.room());
    if (room == 0) return;
    const ssize_t count = ::recv(socket_.get(), buffer.data(), room, 0);
    if (count > 0) {
      reader_.push({buffer.data(), static_cast<std::size_t>(count)});
    } else {
      if (count < 0 && would_wait(errno)) return;
      if (!ended()) {
        end_ = count == 0 ? "its connection closed" : std::generic_category().message(errno);
      }
      return;
    }
  }
}

}  // namespace rondo::transport::rendezvous
