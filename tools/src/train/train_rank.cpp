#include "train/train_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <rondo/train/trainer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/team.hpp>
#include <rondo/transport/world.hpp>

#include "exit_status.hpp"
#include "failure.hpp"
#include "progress_line.hpp"
#include "train/dump_request.hpp"
#include "train/metrics_echo.hpp"
#include "train/openmp_team.hpp"
#include "train/run_folder.hpp"
#include "train/summary_table.hpp"
#include "world_options.hpp"

namespace rondo::tools {
namespace {

// Rank 0 chooses and makes the folder, which is its `own`; all ranks learn it, or that it could
// not.
std::optional<std::filesystem::path> agree_on_folder(transport::World& world, const TrainRank& rank,
                                                     std::optional<RunFolder>& own) {
  constexpr std::size_t longest = 4096;
  std::array<std::uint8_t, longest> name{};
  if (world.rank() == 0) {
    try {
      own.emplace(run_folder_for(rank.folder, rank.experiment), rank.experiment);
      const std::string text = own->path().string();
      std::copy_n(text.begin(), std::min(text.size(), longest - 1), name.begin());
    } catch (const UsageError&) {
      static_cast<void>(report(std::current_exception()));
    }
  }
  world.communicator().broadcast(std::span<std::uint8_t>(name), 0).wait();
  if (name[0] == 0) return std::nullopt;
  return std::string(name.begin(), std::find(name.begin(), name.end(), std::uint8_t{0}));
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
                },
            .on_end =
                [this](const train::RunSummary& summary) { line_.print(format_summary(summary)); }};
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
              const DumpRequest& request, transport::Team* team) {
  const auto records = rank.flight_record.empty() ? folder : rank.flight_record;
  world.set_dump_folder(records);
  train::TrainerOptions options;
  options.threads = rank.threads;
  options.team = team;
  options.on_step = [&] { request.answer(world, records); };
  if (world.rank() != 0) {
    train::train(world, rank.experiment, options);
    return;
  }
  Display display(rank, folder);
  options.run_folder = folder;
  options.observer = display.observer();
  options.observer.on_start = [&](const train::Experiment& experiment) {
    if (rank.experiment.grid.plan == "auto") rewrite_config(folder, experiment);
  };
  train::train(world, rank.experiment, options);
  display.copy_metrics();
}

}  // namespace

int train_as_rank(const TrainRank& rank) {
  const DumpRequest request;
  const std::unique_ptr<transport::Team> team = make_openmp_team(rank.threads);
  transport::WorldOptions options = world_options(rank.experiment);
  options.team = team.get();
  options.dump_folder = rank.flight_record;
  transport::World world = transport::World::attach(options);
  std::optional<RunFolder> own;
  const auto folder = agree_on_folder(world, rank, own);
  if (!folder) return exit_usage;
  train_in(world, rank, *folder, request, team.get());
  return exit_done;
}

}  // namespace rondo::tools
