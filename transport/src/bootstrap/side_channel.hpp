#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::transport::rendezvous {

/// What one rank tells all others after the rendezvous, or what is found out about it.
struct News {
  enum class Kind : std::uint8_t {
    left = 1,  ///< its World ended in order; `text`: see LastCollective in peer_status.hpp
    lost,      ///< its process ended, or its host cannot be reached
    aborted,   ///< it called World::abort(); `text` is the reason
    diverged,  ///< it found a mismatch on communicator `context`; `text` shows both sides
  };
  Kind kind = Kind::left;
  int rank = 0;  ///< whom it is about
  std::uint32_t context = 0;
  std::string text = {};
};

/// A rank's line to all ranks of its job, beside the links: before there are any, to exchange
/// addresses; afterwards, to learn who is lost.
///
/// It carries no data of collectives.
class SideChannel {
 public:
  SideChannel() = default;
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;
  /// Tells the others that this rank has left, unless that was told already.
  virtual ~SideChannel() = default;

  /// Every rank's `mine`, in rank order. Collective; waits for all ranks to the rendezvous
  /// deadline, then throws Error(rendezvous_failed) that names who did not come. Any number of
  /// times, but only before watch().
  [[nodiscard]] virtual std::vector<std::string> allgather(std::string_view mine) = 0;

  /// From now on `hear` is told all news of other ranks, from another thread, one at a time; also
  /// what came in since the last allgather().
  virtual void watch(std::function<void(const News&)> hear) = 0;

  /// Tells all other ranks. From any thread; neither waits nor throws.
  virtual void tell(const News& news) noexcept = 0;
};

}  // namespace rondo::transport::rendezvous
