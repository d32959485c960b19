#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "bootstrap/frame.hpp"
#include "shm/memory.hpp"

namespace rondo::transport::rendezvous {

/// Frames over a socket that does not block.
///
/// Nothing here waits or throws: what cannot be sent now is kept, and a connection that ended
/// keeps the frames that came before its end. Belongs to one thread at a time.
class Connection {
 public:
  /// `cap` bounds the payloads that are taken.
  Connection(shm::Descriptor socket, std::size_t cap);

  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }

  /// For poll(): readable, and writable when something is kept.
  [[nodiscard]] short events() const noexcept;

  void send(const Frame& frame);

  /// Sends what was kept, and takes in what came, as far as neither waits. No more is taken in than
  /// one frame of the cap: the rest stays with the kernel until next() has made room.
  void exchange();

  /// The next frame that came. An undecodable one closes the connection.
  [[nodiscard]] std::optional<Frame> next();

  void allow(std::size_t cap) noexcept { reader_.allow(cap); }

  /// Nothing more will be sent than what is kept. The other side learns it after that.
  void finish_sending();

  /// Lets go of the socket, of what was not sent and of what was not taken.
  void close();

  /// The other side has ended, or the line to it.
  [[nodiscard]] bool ended() const noexcept { return !end_.empty(); }
  /// Why it has.
  [[nodiscard]] const std::string& end() const noexcept { return end_; }

 private:
  void flush();
  void receive();

  shm::Descriptor socket_;
  FrameReader reader_;
  std::string unsent_;
  std::size_t sent_ = 0;
  bool finishing_ = false;
  std::string end_;
};

}  // namespace rondo::transport::rendezvous
