#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/sync/replica.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/grid.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/parameters.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "config/grid_choice.hpp"
#include "executor/lowering.hpp"
#include "executor/shared_statistics.hpp"

namespace rondo::train {

/// Where one rank stands on the grid of a run: its replica has samples of its own, and the ranks
/// of the replica split the layers.
class GridMembership {
 public:
  /// Decides by the keys of [grid], and tells nobody: all ranks decide alike. These keys already
  /// have the choice of grid.plan = "auto". Throws ConfigError as choose_grid(). `world` is lent.
  GridMembership(transport::World& world, const Model& model, const Experiment& experiment);

  /// Makes the communicators. Collective; before all that follows the next line.
  void join();

  [[nodiscard]] const GridChoice& choice() const noexcept { return choice_; }
  [[nodiscard]] ProcessGrid grid() const noexcept { return choice_.grid; }
  [[nodiscard]] int replica() const noexcept;
  [[nodiscard]] int position() const noexcept;
  /// Does this rank run all layers by itself, so that no other takes part in its steps?
  [[nodiscard]] bool is_whole() const noexcept;
  /// Does this rank tell and count what all ranks of its replica know alike?
  [[nodiscard]] bool reports_for_replica() const noexcept { return position() == 0; }
  /// The first rank of every replica.
  [[nodiscard]] std::vector<transport::RankInfo> leaders() const;
  /// The parameters that this rank holds.
  [[nodiscard]] const ParameterLayout& layout() const noexcept { return layout_; }
  /// By parameter block: those of slices_in_replica().
  [[nodiscard]] const std::vector<int>& block_slices() const noexcept { return slices_; }
  /// Elements of gradients that all ranks together give to the reductions of a synchronous step: 0
  /// where no two ranks hold the same parameters. And bytes that they send in one of `images` with
  /// the experiment's precisions.
  [[nodiscard]] std::uint64_t reduced_by_all() const noexcept { return reduced_by_all_; }
  [[nodiscard]] std::uint64_t sent_by_all(const Model& model, std::int64_t images,
                                          const Experiment& experiment) const;

  /// The executor's part; memory of messages comes from `memory`.
  [[nodiscard]] GridPart part(std::pmr::memory_resource* memory);
  /// The groups of parameter block `block`.
  [[nodiscard]] sync::Groups groups_of(std::size_t block);
  /// The slices of its replica's model that this rank counts.
  [[nodiscard]] sync::Slices slices();
  /// The ranks that hold the same parameters and statistics as this one, one per replica.
  [[nodiscard]] transport::Communicator& replicas();
  /// The ranks of this rank's replica.
  [[nodiscard]] transport::Communicator& own_replica();

  /// The statistics behind those of layout(), where ranks of a replica measure the same ones.
  [[nodiscard]] const SharedStatistics& shared_statistics() const noexcept {
    return shared_statistics_;
  }
  /// Takes their means over the replica. Collective over the replica.
  void average_statistics(std::span<float> statistics);

 private:
  // The ranks that hold the same slices of parameter blocks, where those are neither one nor as
  // many as a replica has ranks.
  struct Sharing {
    transport::Communicator inner;  // within the replica
    transport::Communicator slice;  // in all replicas
  };

  // Adjacent parameters of a block that ranks hold whose positions are equal modulo `slices`.
  struct Copy {
    int slices = 1;
    std::size_t block = 0;
    std::size_t last = 0;  // of the parameters, by index
    std::size_t offset = 0;
    std::size_t size = 0;
  };

  // This rank's group, where ranks whose positions are equal modulo `slices` hold the same.
  [[nodiscard]] transport::Communicator& inner_of(int slices);
  void count_reduced(const Model& model, const Lowering& lowering);
  void count_once(const Model& model, const Lowering& lowering);
  void find_copies(const Model& model, const Lowering& lowering);

  transport::World& world_;
  GridChoice choice_;
  ParameterLayout layout_;
  std::vector<int> slices_;
  SharedStatistics shared_statistics_;
  std::vector<sync::Slices::Part> counted_;  // parameters that no rank before this one holds
  std::vector<Copy> copies_;                 // parameters that other ranks hold, too
  std::uint64_t reduced_by_all_ = 0;
  std::map<int, Sharing> sharing_;  // by the number of slices
  std::optional<transport::Communicator> own_replica_;
  std::optional<transport::Communicator> across_;
  std::optional<transport::Communicator> kernels_across_;  // of kernels, whose order is another
};

/// The lines that a user is told of a grid before the run: replicas and ranks; then, for every
/// layer with weights, its split and what all ranks send for it in a step of the global batch.
/// Empty where every rank is a replica of its own.
[[nodiscard]] std::vector<std::string> grid_report(const Model& model, const GridChoice& choice,
                                                   const Experiment& experiment);

/// Throws ConfigError where a batch norm would see one value of each channel at once, in a step of
/// `batch` samples in so many micro-batches: it would train nothing.
void expect_batch_norms_train(const Model& model, const GridChoice& grid, std::int64_t batch,
                              std::int64_t micro_batches);

}  // namespace rondo::train
