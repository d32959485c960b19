#pragma once

#include <array>
#include <cstdint>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/request.hpp>
#include <rondo/transport/world.hpp>

#include "schemes/cyclic_store.hpp"

namespace rondo::sync {

/// What a worker hands to the next one.
enum class Handover : std::uint8_t { token, park };

/// The cycle that the token takes, as one worker sees it: what comes from the worker before, and
/// what goes to the one behind.
///
/// Inside a node a handover is a signal. Between nodes it is the store's words, followed by the
/// store if it is the token; both are received into this node's store, where nobody touches the
/// arrays while the token is elsewhere.
///
/// When a worker that is waited for is lost, the World is aborted with a text that names the
/// token's holder, and an Error with the same text is thrown.
class TokenRing {
 public:
  /// `world`, `workers` and `store` are lent. There are at least two workers.
  TokenRing(transport::World& world, transport::Communicator& workers, CyclicStore& store);
  TokenRing(const TokenRing&) = delete;
  TokenRing& operator=(const TokenRing&) = delete;
  ~TokenRing();

  /// Prepares for the next handover; the last one must have come.
  void expect();
  /// Has it come?
  [[nodiscard]] bool test();
  /// Returns when it has.
  void wait();
  /// What came.
  [[nodiscard]] Handover come() const noexcept { return static_cast<Handover>(kind_); }

  void pass(Handover what);

  /// Messages that passing the token takes.
  [[nodiscard]] std::uint64_t messages_per_pass() const noexcept { return next_is_near_ ? 1 : 2; }

 private:
  [[nodiscard]] bool is_store_to_come() const noexcept;
  void unpack();
  template <typename Attempt>
  auto attempt(Attempt attempt);
  [[noreturn]] void lose(const transport::Error& error);

  transport::World& world_;
  transport::Communicator& workers_;
  CyclicStore& store_;
  int previous_;
  int next_;
  bool previous_is_near_;  // on this node
  bool next_is_near_;

  std::uint64_t kind_ = 0;
  using Notice = std::array<std::int64_t, 1 + StoreWords{}.size()>;  // the kind, and the words
  Notice incoming_{};
  Notice outgoing_{};
  bool expects_ = false;
  bool expects_store_ = false;
  transport::Request notice_;  // the signal, or the words
  transport::Request array_;
  transport::Request sent_notice_;
  transport::Request sent_array_;
};

}  // namespace rondo::sync
