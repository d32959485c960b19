#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include <rondo/sync/cyclic.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/request.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::sync {

/// Is a multiple of `every` in (before, after]?
[[nodiscard]] constexpr bool crosses(std::int64_t before, std::int64_t after,
                                     std::int64_t every) noexcept {
  return every > 0 && before / every != after / every;
}

/// The numbers that travel with the token beside the parameters.
enum class StoreWord : std::uint8_t {
  version,  ///< pushes so far
  samples,  ///< in the parameters
  holder,   ///< the worker that has the token, as far as this node knows
  parks,    ///< how often the token was parked since the store was opened
  flushed,  ///< workers that have pushed what they had, in flush()
  count_,
};
using StoreWords = std::array<std::int64_t, static_cast<std::size_t>(StoreWord::count_)>;

/// A node's copy of the parameters and the optimizer's state, in memory that all its ranks reach.
///
/// The token is its lock: only the worker that has it reads or writes the arrays. The words may be
/// read by all at any time.
class CyclicStore {
 public:
  /// Collective over `workers`. The memory is that of the node's first worker.
  CyclicStore(transport::World& world, transport::Communicator& workers, std::size_t parameters,
              std::size_t state);

  [[nodiscard]] std::span<float> parameters() noexcept { return all_.first(parameters_); }
  [[nodiscard]] std::span<float> state() noexcept { return all_.subspan(parameters_); }
  /// Both, one behind the other.
  [[nodiscard]] std::span<float> all() noexcept { return all_; }
  [[nodiscard]] std::span<const float> all() const noexcept { return all_; }

  [[nodiscard]] std::int64_t get(StoreWord word) const noexcept;
  void set(StoreWord word, std::int64_t value) noexcept;
  [[nodiscard]] StoreWords words() const noexcept;
  void set_words(const StoreWords& words) noexcept;

  /// Is that worker on this node?
  [[nodiscard]] bool reaches(int worker) const { return reached_[index(worker)]; }

 private:
  [[nodiscard]] static std::size_t index(int worker) noexcept {
    return static_cast<std::size_t>(worker);
  }

  std::size_t parameters_;
  std::pmr::vector<float> own_;               // the arrays, or one float
  std::pmr::vector<std::int64_t> own_words_;  // the words
  std::vector<bool> reached_;                 // by worker
  std::span<float> all_;
  std::span<std::int64_t> words_;
};

/// A worker hands one of these to the next one.
enum class Handover : std::uint8_t { token, park };

/// The cycle that the token takes, as one worker sees it: what comes from the worker before, and
/// what goes to the one behind.
///
/// Inside a node a handover is a signal. Between nodes it is the store's words, followed by the
/// store if it is the token; both are received into this node's store, where no rank touches the
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
  /// The handover that came.
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

/// One worker's part of a scripted trace, entry by entry.
class Script {
 public:
  /// Throws std::invalid_argument when an entry does not make sense. A push of flush() behind a
  /// park, which older traces have, is left out.
  Script(std::span<const Turn> trace, int worker, int workers);

  /// The next turn of this worker; null when nothing is scripted any more.
  [[nodiscard]] const Turn* next() const noexcept {
    return position_ < mine_.size() ? &mine_[position_] : nullptr;
  }
  /// Takes the turn that came. Throws std::invalid_argument when it is not what is scripted.
  void follow(const Turn& turn);

  /// How many turns have come, whether they were scripted or not.
  [[nodiscard]] std::size_t position() const noexcept { return position_; }
  /// For a restored run; behind the end when its script is longer.
  void set_position(std::size_t position) noexcept { position_ = position; }

 private:
  std::vector<Turn> mine_;
  std::size_t position_ = 0;
};

}  // namespace rondo::sync
