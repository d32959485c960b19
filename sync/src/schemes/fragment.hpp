#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/sync/k_step.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/scheme_base.hpp>

#include "schemes/average_under_way.hpp"
#include "schemes/averaging.hpp"

namespace rondo::sync {

/// Elements of the flat arrays: those of adjacent layers.
struct FragmentRange {
  std::size_t offset = 0;
  std::size_t size = 0;
};

/// Cuts a model into `fragments` of whole layers and of about the same size; there are at least as
/// many layers. `whole_sizes` are the layers' over all ranks of the replica, which may have slices:
/// all cut alike.
[[nodiscard]] std::vector<FragmentRange> cut_into_fragments(
    std::span<const Layer> layers, std::span<const std::uint64_t> whole_sizes,
    std::size_t fragments);

/// Where a fragment is in its rounds.
struct RoundProgress {
  std::int64_t round = 0;        ///< index of the round under way
  std::int64_t steps = 0;        ///< done in it
  std::int64_t samples = 0;      ///< of all ranks, in those
  std::int64_t own_samples = 0;  ///< of this rank
  std::int64_t period = 0;       ///< steps that the round has
  std::int64_t last_step = 0;    ///< Step::index of the last one that was done
};

/// What is averaged together: the model, or some adjacent layers of it that have rounds of their
/// own.
struct Fragment {
  struct Settings {
    std::string_view scheme = {};  ///< for messages
    ReductionMomentum momentum = {};
    std::size_t state_size = 0;  ///< of the optimizer's state, if that is averaged as well
    bool sends_bf16 = false;
    bool overlaps = false;          ///< with the steps after it
    std::int64_t first_period = 0;  ///< steps of the first round, and of the next after a flush
    bool with_statistics = true;    ///< has the model's
  };

  /// `whole` is lent.
  Fragment(const Replica& whole, const FragmentRange& range, const Settings& settings);
  Fragment(const Fragment&) = delete;
  Fragment& operator=(const Fragment&) = delete;
  ~Fragment() = default;

  /// A local step has been made.
  void count_step(const Step& step);
  /// Has the round under way had all its steps?
  [[nodiscard]] bool ends() const noexcept { return progress.steps == progress.period; }
  [[nodiscard]] bool is_under_way() const noexcept { return under_way && under_way->is_posted(); }
  [[nodiscard]] Round round_under_way() const noexcept;
  void begin_round(std::int64_t period);

  /// This rank's samples since the round began, in units of the mean share of `ranks` replicas:
  /// exactly 1 where shares are equal, and between rounds.
  [[nodiscard]] float weight(int ranks) const noexcept;

  /// Computes what flush() would make of these parameters and statistics over `outer`, without
  /// touching the fragment. `started`: has W been taken?
  void evaluate(transport::Communicator& outer, bool started, std::span<float> parameters,
                std::span<float> statistics);

  void write(ByteWriter& writer) const;
  /// Reads it into copies, and changes nothing. Returns what takes it over.
  struct Saved {
    RoundProgress progress;
    std::function<void(const RoundProgress& progress)> take_over;
  };
  [[nodiscard]] Saved read(ByteReader& reader);

  std::size_t offset;  ///< in the flat arrays
  std::int64_t first_period;
  Replica replica;  ///< these layers, as one
  CommonModel model;
  PackedMean mean;
  std::vector<float> unsent;  ///< what rounding has left out of averages; empty: they are fp32
  mutable std::optional<AverageUnderWay> under_way;  ///< if averages overlap; to save it is to wait
  RoundProgress progress;
};

}  // namespace rondo::sync
