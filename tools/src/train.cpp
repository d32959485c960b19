// `rondo train`: starts its own ranks, or is one of them.
//
// The launcher reads the configuration, chooses cores and makes the run folder, then starts this
// program again as every rank. A rank connects to the others, agrees with them on the folder, and
// calls the library; rank 0 also shows the progress.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <rondo/train/experiment.hpp>
#include <rondo/train/run_directory.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/team.hpp>
#include <rondo/transport/world.hpp>

#include "failure.hpp"
#include "find_rate.hpp"
#include "launch/environment.hpp"
#include "launch/joined_rank.hpp"
#include "launch/launcher.hpp"
#include "options.hpp"
#include "say.hpp"
#include "train/profile.hpp"
#include "train/signals.hpp"
#include "train/training.hpp"
#include "world.hpp"

namespace rondo::tools {
namespace {

// The facts that one rank needs.
struct TrainRank {
  train::Experiment experiment = {};
  std::filesystem::path folder = {};         // empty: a new one
  std::filesystem::path resume = {};         // empty: the run begins
  std::filesystem::path flight_record = {};  // a folder; empty: the run folder
  bool recorded = false;                     // the launcher writes flight records after a failure
  Format format = Format::text;              // json: stdout gets the lines of metrics.jsonl
  int threads = 1;
  bool sweep = false;
  std::optional<StepRange> profile = {};
};

// Copies whole lines of a growing file to a stream, as they come.
class MetricsEcho {
 public:
  MetricsEcho(std::filesystem::path file, std::FILE* stream)
      : path_(std::move(file)), stream_(stream) {}

  // What is in the file now is of earlier parts of the run, and is not copied.
  void begin() {
    file_.open(path_);
    file_.seekg(0, std::ios::end);
  }

  // Nothing before begin().
  void copy() {
    if (!file_.is_open()) return;
    file_.clear();  // forget that the end was reached before
    // The writer flushes lines, but a read may come in the middle of one.
    rest_.append(std::istreambuf_iterator<char>(file_), {});
    const std::size_t end = rest_.rfind('\n');
    if (end == std::string::npos) return;
    put(stream_, std::string_view(rest_).substr(0, end + 1));
    rest_.erase(0, end + 1);
  }

 private:
  std::filesystem::path path_;
  std::FILE* stream_;
  std::ifstream file_ = {};
  std::string rest_ = {};  // an unfinished line
};

// A script that starts a run again until it has completed gives --resume auto once more.
bool nothing_is_left(const std::string& resume, const train::RunDirectory& folder) {
  if (resume != "auto" || !folder.is_complete()) return false;
  say("rondo: {}: the run has completed; nothing is left to do\n", folder.path().string());
  return true;
}

// Rank 0 chooses and makes the folder, which is its `own`; all ranks learn it, or with which status
// to end.
struct AgreedFolder {
  std::filesystem::path path = {};  ///< empty: there is nothing to train
  int status = exit_done;
};
AgreedFolder agree_on_folder(transport::World& world, const TrainRank& rank,
                             std::optional<train::RunDirectory>& own) {
  std::string chosen;
  int status = exit_done;
  if (world.rank() == 0) {
    try {
      // Ranks may have been started at different seconds: only one may make up a name.
      own.emplace(run_folder_for(rank.folder, rank.experiment), rank.experiment, rank.resume);
      if (!nothing_is_left(rank.resume, *own)) chosen = own->path().string();
    } catch (const std::exception&) {  // whatever it is, the others wait for an answer
      status = report(std::current_exception());
    }
  }
  world.communicator().broadcast(std::span(&status, 1), 0).wait();
  return {.path = broadcast_text(world, chosen), .status = status};
}

// The display of rank 0 while it trains.
class Display {
 public:
  Display(const TrainRank& rank, const std::filesystem::path& folder)
      : line_(rank.format == Format::json ? stderr : stdout, rank.experiment.train.log_every),
        epochs_(rank.experiment.train.epochs) {
    if (rank.format == Format::json) echo_.emplace(folder / "metrics.jsonl", stdout);
    line_.print("run folder: " + folder.string());
  }

  // The library calls these on rank 0, from the training thread.
  [[nodiscard]] train::TrainerObserver observer() {
    return {.on_note = [this](const std::string& note) { line_.print(note); },
            .on_progress =
                [this](const train::Progress& progress) {
                  // train.max_steps may end the run earlier than train.epochs says.
                  epochs_ = progress.epochs;
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

  void print(const std::string& text) { line_.print(text); }

  // The log has lost what will be done again, and the first line of this run is not in it yet.
  void begin_metrics() {
    if (echo_) echo_->begin();
  }

  void copy_metrics() {
    if (echo_) echo_->copy();
  }

 private:
  ProgressLine line_;
  std::optional<MetricsEcho> echo_ = {};
  std::int64_t epochs_;
};

// report() takes a file that cannot be written for an error of all ranks, which rank 0 says. After
// a complete run the others may wait for this rank, and learn why it does not come.
void tell_of_lost_profile(transport::World& world, RunEnd end) {
  const Failure failure = describe(std::current_exception());
  if (failure.on_all_ranks && world.rank() != 0) {
    const auto& here = world.ranks()[static_cast<std::size_t>(world.rank())].host;
    print_of_rank(std::to_string(world.rank()), here, failure.text);
  }
  if (end == RunEnd::complete) world.abort(failure.text);
}

// Trains; a profile is written also when the run is stopped. `show` gets what rank 0 shows of it.
void train_and_profile(transport::World& world, const TrainRank& rank,
                       const train::TrainerOptions& options, RunProfile* profile,
                       const std::function<void(const std::string&)>& show) {
  const auto write = [&](RunEnd end) {
    if (profile == nullptr) return;
    try {
      show(profile->write(rank.experiment, rank.threads, options.team, end));
    } catch (const transport::Error&) {  // another rank has failed
      throw;
    } catch (const std::exception&) {
      tell_of_lost_profile(world, end);
      throw;
    }
  };
  try {
    train::train(world, rank.experiment, options);
  } catch (const std::invalid_argument& error) {  // on all ranks alike
    throw UsageError(error.what());
  } catch (const train::Stopped&) {
    try {
      write(RunEnd::stopped);
    } catch (const std::exception&) {
      // A checkpoint was left all the same, which the status has to say.
      static_cast<void>(report(std::current_exception()));
    }
    throw;
  }
  write(RunEnd::complete);
}

// All ranks make the same calls; rank 0 has observers and files besides.
void train_in(transport::World& world, const TrainRank& rank, const std::filesystem::path& folder,
              const DumpRequest& request, RunSignals& signals, transport::Team* team) {
  const auto records = rank.flight_record.empty() ? folder : rank.flight_record;
  // What is in the folder may be of a crash before, and a run that is refused leaves it alone. Only
  // a launcher of ours knows how the run has ended before it writes.
  if (!rank.recorded) world.set_dump_folder(records);
  train::TrainerOptions options;
  options.threads = rank.threads;
  options.team = team;
  options.on_broken = tell_of_broken_image;
  std::optional<RunProfile> profile;
  // Before training: the executor is given the profile when it is made.
  if (rank.profile) profile.emplace(world, *rank.profile, folder);
  options.profile = profile ? &profile->steps() : nullptr;
  // Before the first kernel, and so before OpenMP's threads.
  const WaitingSignals waiting;
  signals.begin_start();
  options.on_step = [&] {
    signals.begin_training();
    waiting.let_in();
    request.answer(world, records);
    if (profile) profile->on_step();
  };
  // Asked in every step; the trainer tells the other ranks, so that one signal to any rank is
  // enough.
  options.request = [&] {
    signals.begin_training();
    waiting.let_in();
    return RunSignals::take();
  };
  options.resume = rank.resume;
  if (rank.sweep) {
    options.diverges = [curve = SmoothedLoss()](double loss) mutable {
      return !curve.add(loss).has_value();
    };
  }
  if (world.rank() != 0) {
    train_and_profile(world, rank, options, profile ? &*profile : nullptr,
                      [](const std::string& /*text*/) {});
    return;
  }
  Display display(rank, folder);
  options.run_folder = folder;
  options.keep_earlier_run = true;
  options.observer = display.observer();
  options.observer.on_start = [&](const train::Experiment& experiment) {
    display.begin_metrics();
    // The launcher's config.toml lacks what the planner has chosen, or is of the run before; and a
    // new one tells the launcher that the run has begun.
    train::RunDirectory::record(folder, experiment);
  };
  try {
    train_and_profile(world, rank, options, profile ? &*profile : nullptr,
                      [&](const std::string& text) { display.print(text); });
  } catch (...) {
    display.copy_metrics();  // its last line says why the run ended
    throw;
  }
  display.copy_metrics();
}

// Trains as the rank that this process was started for. When it fails in the transport, and its
// launcher does not do so, or when it gets SIGUSR2 and has completed the step, its flight record is
// written.
int train_as_rank(TrainRank rank, const PlacementRequest& placement) {
  const DumpRequest request;
  RunSignals signals;
  transport::WorldOptions options = world_options(rank.experiment);
  if (!rank.recorded) options.dump_folder = rank.flight_record;
  JoinedRank self = join_as_rank(std::move(options), placement);
  // The run records what it was run with, not 0 for "as many as there are".
  rank.threads = self.threads;
  rank.experiment.train.threads = self.threads;
  std::optional<train::RunDirectory> own;
  // Rank 0 has said why there is no folder; the others end with the same status.
  const AgreedFolder folder = agree_on_folder(self.world, rank, own);
  if (folder.path.empty()) return folder.status;
  train_in(self.world, rank, folder.path, request, signals, self.team.get());
  return exit_done;
}

StepRange steps_of(const TrainRequest& options) {
  return options.profile_steps.empty() ? StepRange{} : parse_steps(options.profile_steps);
}

// Threads that nobody asks for here are those that the launcher has chosen, and compared with the
// cores unless it was told not to.
void refuse_more_threads_than_cores(const PlacementRequest& request) {
  const int threads = request.threads;
  const auto cores = static_cast<int>(read_machine().cores.size());
  if (threads <= std::max(cores, 1) || request.oversubscribe) return;
  // Ranks need not have the same number of cores: each that has too few says so.
  throw std::invalid_argument(fmt::format(
      "{} threads were asked for, but a rank may use {} cores here; ask for fewer, give the "
      "launcher fewer ranks, or add --oversubscribe",
      threads, cores));
}

int train_here(const TrainRequest& options, const train::Experiment& experiment) {
  refuse_other_job(options.launch.placement.ranks, {});
  TrainRank rank;
  rank.experiment = experiment;
  rank.folder = folder_asked_for(options);
  rank.resume = options.resume;
  rank.flight_record =
      options.launch.flight_record.empty() ? rank.folder : options.launch.flight_record;
  rank.format = options.format;
  rank.recorded = options.recorded;
  rank.sweep = options.sweep;
  if (options.profile) rank.profile = steps_of(options);
  PlacementRequest placement = options.launch.placement;
  placement.threads = threads_asked_for(options, experiment);
  refuse_more_threads_than_cores(placement);
  return train_as_rank(std::move(rank), placement);
}

int run_train(const TrainRequest& options) {
  let_speak(Speaker::first_of_host);
  if (!is_rank()) refuse_what_is_read_once(options.config);
  const train::Experiment experiment =
      train::read_experiment(options.config, all_settings(options));
  static_cast<void>(steps_of(options));  // a mistake ends here, said once
  // A rank trains and ends; what follows is the launcher.
  if (is_rank()) return train_here(options, experiment);
  const Training training = plan_training(options, experiment, read_machine());
  const train::RunDirectory folder(run_folder_for(folder_asked_for(options), training.experiment),
                                   training.experiment, options.resume);
  if (nothing_is_left(options.resume, folder)) return exit_done;
  return launch(training_job(options, training, folder.path()));
}

}  // namespace

void add_train(Command& root) {
  Command train = root.add("train", "Train a network as a configuration file says");
  auto options = std::make_shared<TrainRequest>();
  add_experiment_options(train, options->config, options->settings, "", "");
  train
      .option("-o,--out", options->folder,
              "The run folder (default: that of --resume PATH, or a new\n"
              "one under runs/)")
      .value("DIR");
  train
      .option("--resume", options->resume,
              "Go on from a checkpoint: auto (the newest in --out that can be used, or begin), a\n"
              "run's folder, or a checkpoint's")
      .value("auto|PATH");
  // How rondo find-rate starts its ranks.
  train.flag("--sweep", options->sweep, "End where the loss diverges").hidden();
  // How a launcher that keeps the ranks' flight records starts them.
  train.flag("--recorded", options->recorded, "Write no flight record after a failure").hidden();
  add_format_option(train, options->format, text_or_json,
                    "text, or json: stdout gets the lines of metrics.jsonl only");
  train
      .bytes("--memory-limit", options->memory_limit,
             "The most that a rank's arrays may take, as in 512MiB (default: no limit)")
      .value("BYTES");
  const Option profile = train.flag("--profile", options->profile,
                                    "Profile some steps: a trace of each rank, a table of kernels");
  train
      .option("--profile-steps", options->profile_steps,
              "Which steps, counted from 1 (default: 11:20)")
      .needs(profile)
      .value("FIRST:LAST");
  add_placement_options(train, options->launch.placement);
  add_fabric_options(train, options->launch.fabric);
  add_flight_record_option(train, options->launch.flight_record, "the run folder");
  train.footer(
      "Starts its own ranks, or is a rank itself under rondo run. Results go to the run folder:\n"
      "config.toml (every key) and metrics.jsonl (a JSON object a line). Status: 0 done,\n"
      "2 configuration, 3 data, 4 a peer was lost, 5 NaN or Inf, 75 stopped by SIGTERM with a\n"
      "checkpoint left for --resume, 128 + n ended by signal n. SIGUSR1: a checkpoint now.");
  train.does([options](const CommandLine& /*line*/) { return run_train(*options); });
}

}  // namespace rondo::tools
