#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/trainer.hpp>

#include "plan/plan_options.hpp"
#include "plan/world_costs.hpp"
#include "trainer/agreement.hpp"

namespace rondo::transport {
class Team;
class World;
}  // namespace rondo::transport

namespace rondo::train {

/// The digest of the file that `key` names. A rank whose file is missing has another one.
[[nodiscard]] Fact fact_of_file(const std::string& key, const std::filesystem::path& file);

/// Throws DataError on every rank where one has another of these than rank 0; its text begins with
/// `before`. An error of `facts` on one rank is thrown on all.
void expect_same_files(transport::World& world, const std::function<std::vector<Fact>()>& facts,
                       std::string_view before);

/// In what the parts that this rank's program brings differ from those of rank 0: a scheme, a
/// sweep, a loss, or augmentations of other names. Empty when they do not. Collective.
[[nodiscard]] std::string difference_of_parts(transport::World& world,
                                              const TrainerOptions& options);

/// The facts of this rank that the bits of a gradient depend on, beside the data.
[[nodiscard]] std::vector<Fact> facts_of_bits(int threads);

/// Digests of images and labels, wherever their files lie and whoever reads which of them.
struct DataDigests {
  std::string training = {};
  std::string test = {};
};

/// An experiment with the data and the model that it names; they fit each other.
struct PreparedRun {
  Experiment experiment = {};  ///< with the splits that grid.plan = "auto" chose
  std::shared_ptr<const Dataset> dataset = {};
  Model model = {};
  DataDigests digests = {};  ///< of prepare_run() alone
  std::string planned = {};  ///< what the planner expects of its grid; on rank 0
};

/// Reads the data, unless `own` lends it, and makes the model for its images, unless `own_model`
/// lends it. Throws DataError, or ConfigError when the model cannot take such images.
[[nodiscard]] PreparedRun load_run(const Experiment& experiment, const Dataset* own = nullptr,
                                   const Model* own_model = nullptr);

/// Checks `experiment` against this World, reads the data on every rank, and lets rank 0 choose the
/// grid where grid.plan is "auto": by choose_grid_automatically(), or `earlier`, which only rank 0
/// needs: a run that goes on keeps its grid. `team` is that of the run's updates. Ranks that took
/// part with another configuration or other data would wait for each other in vain, or train on
/// something that nobody has asked for; so they are refused. They may differ in what concerns one
/// rank or its node alone: threads, paths, network interfaces, how to wait. Collective.
///
/// Throws on every rank ConfigError, or DataError, as load_run() and choose_grid_automatically()
/// do; where ranks disagree it names the rank and the key.
[[nodiscard]] PreparedRun prepare_run(transport::World& world, const Experiment& experiment,
                                      const Dataset* own = nullptr,
                                      const Model* own_model = nullptr,
                                      const std::optional<Experiment::Grid>& earlier = {},
                                      transport::Team* team = nullptr);

/// The planner's choice.
struct AutomaticGrid {
  Experiment::Grid grid = {};  ///< with plan = "chosen"
  std::string expected = {};   ///< what it expects of it, in one line for people
};

/// The splits that the planner expects to be fastest for `model` on this World's ranks, and within
/// train.memory_limit. Kernels are measured here, for train.threads, as far as their times are not
/// in kernel_times_file(), which then has them; that takes seconds, the first time. Updates are
/// shared by `team`, as the run's are. Where nodes have different numbers of ranks, or ranks that
/// are not consecutive, all messages count as between nodes.
///
/// Throws ConfigError where no grid is possible, with the planner's reason.
[[nodiscard]] AutomaticGrid choose_grid_automatically(
    const Model& model, const Experiment& experiment, const transport::World& world,
    const WorldCosts& costs, transport::Team* team = nullptr, DecodedSets decoded = {});

}  // namespace rondo::train
