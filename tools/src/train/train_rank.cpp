#include "train/train_rank.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <span>

#include <rondo/train/trainer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/team.hpp>
#include <rondo/transport/world.hpp>

#include "exit_status.hpp"
#include "failure.hpp"
#include "progress_line.hpp"
#include "train/metrics_echo.hpp"
#include "train/openmp_team.hpp"
#include "train/run_folder.hpp"
#include "world_options.hpp"

namespace rondo::tools {
namespace {

// Rank 0 makes the folder; all ranks learn whether it could.
std::optional<std::filesystem::path> agree_on_folder(transport::World& world,
                                                     const TrainRank& rank) {
  std::filesystem::path folder = rank.folder;
  std::array<std::int32_t, 1> status = {exit_done};
  if (world.rank() == 0) {
    try {
      if (folder.empty()) folder = new_run_folder(rank.experiment);
      prepare_run_folder(folder, rank.experiment);
    } catch (const UsageError&) {
      status[0] = report(std::current_exception());
    }
  }
  world.communicator().broadcast(std::span<std::int32_t>(status), 0).wait();
  if (status[0] != exit_done) return std::nullopt;
  return folder;
}

// What rank 0 shows while it trains.
class Display {
 public:
  Display(const TrainRank& rank, const std::filesystem::path& folder)
      : line_(rank.format == TrainFormat::json ? stderr : stdout, rank.experiment.train.log_every),
        epochs_(rank.experiment.train.epochs) {
    if (rank.format == TrainFormat::json) echo_.emplace(folder / "metrics.jsonl", stdout);
    line_.print("run folder: " + folder.string());
  }

  [[nodiscard]] train::TrainerObserver observer() {
    return {.on_note = [this](const std::string& note) { line_.print(note); },
            .on_progress =
                [this](const train::Progress& progress) {
                  line_.show(progress);
                  copy_metrics();
                },
            .on_epoch =
                [this](const train::EpochMetrics& metrics) {
                  line_.print(format_epoch(metrics, epochs_));
                  copy_metrics();
                }};
  }

  void copy_metrics() {
    if (echo_) echo_->copy();
  }

 private:
  ProgressLine line_;
  std::optional<MetricsEcho> echo_ = {};
  std::int64_t epochs_;
};

void train_in(transport::World& world, const TrainRank& rank, const std::filesystem::path& folder,
              transport::Team* team) {
  train::TrainerOptions options;
  options.threads = rank.threads;
  options.team = team;
  if (world.rank() != 0) {
    train::train(world, rank.experiment, options);
    return;
  }
  Display display(rank, folder);
  options.run_folder = folder;
  options.observer = display.observer();
  train::train(world, rank.experiment, options);
  display.copy_metrics();
}

}  // namespace

int train_as_rank(const TrainRank& rank) {
  const std::unique_ptr<transport::Team> team = make_openmp_team(rank.threads);
  transport::WorldOptions options = world_options(rank.experiment);
  options.team = team.get();
  transport::World world = transport::World::attach(options);
  const auto folder = agree_on_folder(world, rank);
  if (!folder) return exit_usage;
  train_in(world, rank, *folder, team.get());
  return exit_done;
}

}  // namespace rondo::tools
