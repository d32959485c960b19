#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include <rondo/sync/lazy.hpp>
#include "base/model_sums.hpp"
#include "schemes/lazy_controller.hpp"
#include "schemes/slice_allreduce.hpp"

namespace rondo::sync {

/// The gradients of the lazy layers: summed over a window on this rank, then over the ranks.
///
/// Per iteration: begin(); layer_final() for every lazy layer; post(), as often as one likes; and
/// wait() if the iteration closes the window.
class LazyGradients {
 public:
  /// Which part an iteration plays in its window.
  struct Role {
    bool opens = false;
    bool closes = false;
  };

  /// `replica` is lent. Throws std::invalid_argument when the options do not fit it.
  LazyGradients(const Replica& replica, const LazyOptions& options);

  void begin(Role role);
  void layer_final(std::size_t layer);

  /// Posts what can be: the probes, then the sums. Counts it.
  void post(SchemeCounters& counters);
  void wait();

  /// After wait(): what the probes say about a window of so many iterations. Collective over the
  /// ranks of a replica that holds its layers in slices.
  [[nodiscard]] WindowTests test(std::int64_t iterations);

  /// Sums of the window: of this rank, and after wait() or reduce() of all.
  [[nodiscard]] std::span<float> sums() noexcept { return sums_; }
  [[nodiscard]] std::span<const float> sums() const noexcept { return sums_; }

  /// Sums `values`, as many as sums(), over the ranks, now.
  void reduce(std::span<float> values);
  void reduce(std::span<float> values, SchemeCounters& counters);

  /// Is there another rank to meet?
  [[nodiscard]] bool reduces() const noexcept;

 private:
  /// A probe that the controller looks at.
  struct Watched {
    std::size_t layer;
    std::size_t offset;  ///< in the flat arrays
    std::size_t size;
    std::size_t last_offset;  ///< in last_
  };

  void watch(std::span<const Probe> probes);
  void measure();

  const Replica& replica_;
  std::span<const Layer> layers_;
  std::vector<Watched> watched_;
  std::size_t watched_layers_ = 0;
  std::pmr::vector<float> sums_;  // in the arena, as last_
  std::pmr::vector<float> last_;  // the watched probes' last gradients, packed
  Role role_;
  std::size_t missing_ = 0;          // layers
  std::size_t watched_missing_ = 0;  // of them, those of watched probes
  bool last_posted_ = false;
  bool sums_posted_ = false;
  SliceAllreduce last_reduction_;
  SliceAllreduce sums_reduction_;
  ModelSums model_sums_;
  std::vector<double> products_;  // what the tests look at, of every watched probe
};

}  // namespace rondo::sync
