#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::sync {

/// What travels with the token beside the parameters.
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

}  // namespace rondo::sync
