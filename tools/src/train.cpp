#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include <rondo/train/experiment.hpp>

#include "command.hpp"
#include "exit_status.hpp"
#include "launch/environment.hpp"
#include "launch/launch_options.hpp"
#include "launch/launcher.hpp"
#include "train/train_rank.hpp"
#include "train/training_job.hpp"

namespace rondo::tools {
namespace {

int train_here(const TrainRequest& options, const train::Experiment& experiment) {
  refuse_other_size(options.request);
  TrainRank rank;
  rank.experiment = experiment;
  rank.folder = options.folder;
  rank.flight_record = options.flight_record.empty() ? options.folder : options.flight_record;
  rank.format = options.format == "json" ? TrainFormat::json : TrainFormat::text;
  const int asked = threads_asked_for(options, experiment);
  rank.threads = asked > 0 ? asked : std::max(threads_from_environment(), 1);
  const auto cores = static_cast<int>(read_machine().cores.size());
  if (rank.threads > std::max(cores, 1) && rank.threads > 1 && !options.request.oversubscribe) {
    throw UsageError(fmt::format(
        "{} threads were asked for, but a rank may use {} cores here; ask for fewer, give the "
        "launcher fewer ranks, or add --oversubscribe",
        rank.threads, cores));
  }
  rank.experiment.train.threads = rank.threads;
  return train_as_rank(rank);
}

int run_train(const TrainRequest& options) {
  const train::Experiment experiment =
      train::read_experiment(options.config, all_settings(options));
  if (is_rank()) return train_here(options, experiment);
  const Training training = plan_training(options, experiment, read_machine());
  const RunFolder folder(run_folder_for(options.folder, training.experiment), training.experiment);
  return launch(training_job(options, training, folder));
}

}  // namespace

void add_train(CLI::App& app, int& status) {
  CLI::App* train = app.add_subcommand("train", "Train a network as a configuration file says");
  train->footer(
      "Starts its own ranks, or is a rank itself under rondo run. Results go to the run folder:\n"
      "config.toml (every key) and metrics.jsonl (a JSON object a line). Status: 0 done,\n"
      "2 configuration, 3 data, 4 a peer was lost, 5 NaN or Inf, 128 + n ended by signal n.");
  auto options = std::make_shared<TrainRequest>();
  train->add_option("config", options->config, "The experiment's TOML file")
      ->required()
      ->type_name("CONFIG.toml");
  train->add_option("--set", options->settings, "Overrides a key of the file; may be repeated")
      ->type_name("SECTION.KEY=VALUE")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  train->add_option("-o,--out", options->folder, "The run folder (default: a new one under runs/)")
      ->type_name("DIR");
  train
      ->add_option("--format", options->format,
                   "text, or json: stdout gets the lines of metrics.jsonl only")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str()
      ->type_name("FORMAT");
  train
      ->add_option("--memory-limit", options->memory_limit,
                   "The most that a rank's arrays may take, as in 512MiB (default: no limit)")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("BYTES");
  add_launch_options(*train, options->request);
  add_fabric_options(*train, options->fabric);
  add_flight_record_option(*train, options->flight_record, "the run folder");
  train->callback([&status, options] { status = run_train(*options); });
}

}  // namespace rondo::tools
