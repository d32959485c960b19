#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <rondo/train/experiment.hpp>

#include "command.hpp"
#include "exit_status.hpp"
#include "launch/environment.hpp"
#include "launch/launch_options.hpp"
#include "launch/launcher.hpp"
#include "launch/self.hpp"
#include "train/run_folder.hpp"
#include "train/train_rank.hpp"

namespace rondo::tools {
namespace {

struct TrainOptions {
  PlacementRequest request = {};
  FabricRequest fabric = {};
  std::filesystem::path config = {};
  std::vector<std::string> settings = {};
  std::filesystem::path folder = {};
  std::filesystem::path flight_record = {};
  std::string format = "text";
};

// --threads, else [train] threads; 0: as the launcher decides.
int threads_asked_for(const TrainOptions& options, const train::Experiment& experiment) {
  return options.request.threads > 0 ? options.request.threads
                                     : static_cast<int>(experiment.train.threads);
}

// What the command line says about links is part of the configuration, and so of the run folder.
std::vector<std::string> all_settings(const TrainOptions& options) {
  std::vector<std::string> settings = options.settings;
  const FabricRequest& fabric = options.fabric;
  const auto set = [&](const char* key, const auto& value, const char* quote) {
    if (value) settings.push_back(fmt::format("transport.{}={}{}{}", key, quote, *value, quote));
  };
  set("fake_nodes", fabric.fake_nodes, "");
  set("fabric", fabric.fabric, "'");
  set("interface", fabric.interface, "'");
  set("latency_us", fabric.latency_us, "");
  set("bandwidth_gbs", fabric.bandwidth_gbs, "");
  return settings;
}

FabricRequest fabric_of(const TrainOptions& options, const train::Experiment& experiment) {
  FabricRequest fabric = options.fabric;
  const auto nodes = static_cast<int>(experiment.transport.fake_nodes);
  if (nodes > 0) fabric.fake_nodes = nodes;
  return fabric;
}

int start_ranks(const TrainOptions& options, train::Experiment experiment) {
  PlacementRequest request = options.request;
  request.threads = threads_asked_for(options, experiment);
  const Placement placement = place(read_machine(), request);
  experiment.train.threads = placement.threads;
  const auto folder = options.folder.empty() ? new_run_folder(experiment) : options.folder;
  prepare_run_folder(folder, experiment);

  std::vector<std::string> command = {own_path(),      "train",    options.config.string(), "--out",
                                      folder.string(), "--format", options.format};
  for (const std::string& setting : all_settings(options)) {
    command.insert(command.end(), {"--set", setting});
  }
  command.insert(command.end(), {"--threads", std::to_string(placement.threads)});
  if (request.oversubscribe) command.emplace_back("--oversubscribe");
  const auto records = options.flight_record.empty() ? folder : options.flight_record;
  command.insert(command.end(), {"--flight-record", records.string()});
  return launch({command, placement, fabric_of(options, experiment), records});
}

int train_here(const TrainOptions& options, const train::Experiment& experiment) {
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

int run_train(const TrainOptions& options) {
  const train::Experiment experiment =
      train::read_experiment(options.config, all_settings(options));
  return is_rank() ? train_here(options, experiment) : start_ranks(options, experiment);
}

}  // namespace

void add_train(CLI::App& app, int& status) {
  CLI::App* train = app.add_subcommand("train", "Train a network as a configuration file says");
  train->footer(
      "Starts its own ranks, or is a rank itself under rondo run. Results go to the run folder:\n"
      "config.toml (every key) and metrics.jsonl (a JSON object a line). Status: 0 done,\n"
      "2 configuration, 3 data, 4 a peer was lost, 5 NaN or Inf, 128 + n ended by signal n.");
  auto options = std::make_shared<TrainOptions>();
  train->add_option("config", options->config, "The experiment's TOML file")
      ->required()
      ->type_name("CONFIG.toml");
  train->add_option("--set", options->settings, "Overrides a key of the file; may be repeated")
      ->type_name("SECTION.KEY=VALUE")
      ->take_all()
      ->expected(1);
  train->add_option("-o,--out", options->folder, "The run folder (default: a new one under runs/)")
      ->type_name("DIR");
  train
      ->add_option("--format", options->format,
                   "text, or json: stdout gets the lines of metrics.jsonl only")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("FORMAT");
  add_launch_options(*train, options->request);
  add_fabric_options(*train, options->fabric);
  add_flight_record_option(*train, options->flight_record, "the run folder");
  train->callback([&status, options] { status = run_train(*options); });
}

}  // namespace rondo::tools
