// `rondo find-rate`: a short training run whose learning rate rises exponentially from step to step
// (Smith, WACV 2017). Small rates change nothing, good ones make the loss fall, large ones make it
// explode; the rate at which it falls fastest is a good one to begin with.
//
// The run is an ordinary one, with the configuration's own scheme, ranks and data: only schedule,
// rates, steps and log are set. So its folder has a metrics.jsonl, and `rondo report` shows it.

#include "find_rate.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include <rondo/sync/update_scheme.hpp>
#include <rondo/train/run_directory.hpp>
#include <rondo/train/variant.hpp>

#include "command.hpp"
#include "compare/runs.hpp"
#include "failure.hpp"
#include "files.hpp"
#include "options.hpp"
#include "say.hpp"
#include "table.hpp"
#include "train/training.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::json;

constexpr double weight_of_the_past = 0.9;
constexpr double diverged = 4.0;  // times the least smoothed loss so far

struct FindRateOptions {
  TrainRequest training = {};
  double from = 1e-6;
  double to = 10.0;
  std::int64_t steps = 100;

  // The rate of a step, counted from 0: rates rise by the same factor from each to the next.
  [[nodiscard]] double rate_of(std::size_t step) const {
    return from * std::pow(to / from, static_cast<double>(step) / static_cast<double>(steps - 1));
  }
};

// Later settings win over the file and over the user's own. Every step is logged, because each has
// a rate of its own; the number of steps ends the run, and not that of epochs. No model is kept.
std::vector<std::string> sweep_settings(const FindRateOptions& options) {
  return {"optimizer.schedule=exponential",
          fmt::format("optimizer.learning_rate={:.17g}", options.from),
          fmt::format("optimizer.final_learning_rate={:.17g}", options.to),
          "optimizer.warmup_epochs=0.0",
          "checkpoint.every_steps=0",
          "checkpoint.every_epochs=0",
          "checkpoint.best=false",
          "train.log_every=1",
          "train.epochs=1000000",
          fmt::format("train.max_steps={}", options.steps)};
}

// Refuses, before ranks start, what would make a sweep that says nothing.
void check(const FindRateOptions& options, const train::Experiment& experiment) {
  // A falling rate would end where it began: the loss says nothing then.
  if (options.from >= options.to) {
    throw UsageError(
        fmt::format("--from {:g} must be smaller than --to {:g}", options.from, options.to));
  }
  if (!std::isfinite(options.to / options.from)) {
    throw UsageError(
        fmt::format("--from {:g} and --to {:g} are too far apart", options.from, options.to));
  }
  if (sync::describe_scheme(experiment.update.scheme).own_pace) {
    throw UsageError(
        fmt::format("find-rate needs ranks that step together, which {} ranks do not; add --set "
                    "update.scheme=synchronous",
                    experiment.update.scheme));
  }
}

// The sweep that a run left in its folder, which ended with `status`.
RateSweep read_sweep(const fs::path& folder, const FindRateOptions& options, int status) {
  std::vector<double> rates;
  std::vector<double> losses;
  for_each_event(
      folder / "metrics.jsonl",
      [&](const Json& event) {
        if (event.value("event", Json()) != "step" || !event.contains("learning_rate")) return;
        if (!event["learning_rate"].is_number()) return;
        const Json loss = event.value("loss", Json());
        rates.push_back(event["learning_rate"].get<double>());
        // JSON has no NaN; a loss that was none is the end of the sweep.
        losses.push_back(loss.is_number() ? loss.get<double>() : NAN);
      },
      [](std::size_t /*line*/) {});
  // The step in which the loss becomes NaN or Inf ends the run before it is logged.
  if (status == exit_not_finite) {
    rates.push_back(options.rate_of(rates.size()));
    losses.push_back(NAN);
  }
  return analyse_rates(rates, losses);
}

Table table_of(const std::vector<RatePoint>& points) {
  const auto short_number = [](double RatePoint::* member) {
    return [member](const RatePoint& point) { return fmt::format("{:.3g}", point.*member); };
  };
  return TableOf(points)
      .add({.heading = "learning rate"}, short_number(&RatePoint::learning_rate))
      .add({.name = "learning_rate"}, &RatePoint::learning_rate)
      .add({.name = "loss", .heading = "loss", .decimals = 4}, &RatePoint::loss)
      .add({.name = "smoothed", .heading = "smoothed", .decimals = 4}, &RatePoint::smoothed);
}

// About twenty lines are enough for people; the file has all.
std::vector<RatePoint> thinned(const std::vector<RatePoint>& points) {
  const std::size_t every = std::max<std::size_t>(points.size() / 20, 1);
  std::vector<RatePoint> some;
  for (std::size_t i = 0; i < points.size(); i += every) some.push_back(points[i]);
  return some;
}

std::string sentence_of(const RateSweep& sweep) {
  std::string text = sweep.suggestion
                         ? fmt::format(
                               "Suggested: optimizer.learning_rate = {:.2g}, where the "
                               "loss falls fastest.",
                               *sweep.suggestion)
                         : std::string("The loss does not fall at any of these rates.");
  if (sweep.lowest) text += fmt::format(" The loss is lowest at {:.2g}.", *sweep.lowest);
  if (sweep.diverged_at) text += fmt::format(" Training diverges at {:.2g}.", *sweep.diverged_at);
  return text;
}

std::string json_of(const RateSweep& sweep) {
  const auto number = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  // The format's number grows when a field changes its meaning.
  const Json object = {{"format", "rondo-find-rate-1"},
                       {"suggestion", number(sweep.suggestion)},
                       {"lowest", number(sweep.lowest)},
                       {"diverged_at", number(sweep.diverged_at)},
                       {"points", Json::parse(table_of(sweep.points).json())}};
  return object.dump(1) + "\n";
}

int run_sweep(const TrainRequest& request, const Training& training, const fs::path& folder) {
  const train::RunDirectory run(folder, training.experiment);
  Job job = training_job(request, training, run.path());
  const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  job.output = nowhere.value();
  job.quiet = true;
  return launch(job);
}

int find_rate(const FindRateOptions& options) {
  refuse_to_be_rank("rondo find-rate");
  TrainRequest request = options.training;
  refuse_what_is_read_once(request.config);
  request.sweep = true;
  // The ranks print to nowhere; --format is about what this command prints.
  request.format = Format::text;
  for (const char* key :
       {"optimizer.schedule", "optimizer.learning_rate", "optimizer.final_learning_rate",
        "optimizer.warmup_epochs", "train.epochs", "train.max_steps"}) {
    refuse_setting(options.training, key, "find-rate has its own; see --from, --to and --steps");
  }
  for (std::string& setting : sweep_settings(options)) {
    request.settings.push_back(std::move(setting));
  }
  // The file's own schedule is not for the sweep.
  request.settings = train::settings_of_variant(request.config, request.settings);
  const train::Experiment experiment =
      train::read_experiment(request.config, all_settings(request));
  check(options, experiment);
  const Training training = plan_training(request, experiment, read_machine());
  const fs::path folder = run_folder_for(request.folder, training.experiment);
  const int status = run_sweep(request, training, folder);
  // The ranks have said what was wrong. A loss that is not finite is wrong only for training.
  const bool stopped = status == exit_stopped;
  if (status != exit_done && status != exit_not_finite && !stopped) return status;
  const RateSweep sweep = read_sweep(folder, options, status);
  const std::string json = json_of(sweep);
  replace_file(folder / "find-rate.json", json, "choose another folder with --out");
  if (options.training.format == Format::json) {
    fmt::print("{}", json);
  } else {
    fmt::print("{}{}\n", table_of(thinned(sweep.points)).text(), sentence_of(sweep));
    fmt::print("The sweep is in {}\n", folder.string());
  }
  if (!stopped) return exit_done;
  say("rondo: the sweep was stopped after {} of {} steps; {} has these, and nothing can go "
      "on from them\n",
      sweep.points.size(), options.steps, (folder / "find-rate.json").string());
  return exit_stopped;
}

}  // namespace

// Dividing by the weights makes the first losses count as much as later ones.
std::optional<double> SmoothedLoss::add(double loss) {
  sum_ = weight_of_the_past * sum_ + (1.0 - weight_of_the_past) * loss;
  weight_ = weight_of_the_past * weight_ + (1.0 - weight_of_the_past);
  const double smoothed = sum_ / weight_;
  const bool too_large = least_ && smoothed > diverged * *least_;
  if (!std::isfinite(smoothed) || too_large) return std::nullopt;
  least_ = std::min(least_.value_or(smoothed), smoothed);
  return smoothed;
}

RateSweep analyse_rates(const std::vector<double>& rates, const std::vector<double>& losses) {
  RateSweep sweep;
  SmoothedLoss curve;
  std::size_t lowest = 0;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const std::optional<double> smoothed = curve.add(losses[i]);
    if (!smoothed) {
      sweep.diverged_at = rates[i];
      break;
    }
    if (i > 0 && *smoothed < sweep.points[lowest].smoothed) lowest = i;
    sweep.points.push_back({rates[i], losses[i], *smoothed});
  }
  if (sweep.points.empty()) return sweep;
  sweep.lowest = rates[lowest];
  // The slope over the logarithm of the rate, by central differences of the smoothed loss; only
  // before the lowest loss, since behind it the loss rises.
  double steepest = 0.0;
  for (std::size_t i = 1; i + 1 < sweep.points.size() && i <= lowest; ++i) {
    const RatePoint& before = sweep.points[i - 1];
    const RatePoint& after = sweep.points[i + 1];
    const double slope =
        (after.smoothed - before.smoothed) / std::log(after.learning_rate / before.learning_rate);
    if (slope < steepest) sweep.suggestion = sweep.points[i].learning_rate;
    steepest = std::min(steepest, slope);
  }
  return sweep;
}

void add_find_rate(Command& root) {
  Command command = root.add("find-rate", "Find a learning rate by a short run in which it rises");
  auto options = std::make_shared<FindRateOptions>();
  TrainRequest& training = options->training;
  add_experiment_options(command, training.config, training.settings, "", "");
  command.option("--from RATE", options->from, "The first learning rate").positive().with_default();
  command.option("--to RATE", options->to, "The last learning rate").positive().with_default();
  command.option("--steps N", options->steps, "Steps in which it rises by the same factor each")
      .range(10, 1'000'000)
      .with_default();
  command.option("-o,--out DIR", training.folder,
                 "The run folder (default: a new one under runs/)");
  add_format_option(command, training.format, table_or_json, "table, or json: one object");
  add_placement_options(command, training.launch.placement);
  add_fabric_options(command, training.launch.fabric);
  command.footer(
      "Trains with the configuration but for its rates, schedule and steps. The run ends where\n"
      "training diverges, and evaluates nothing. DIR/find-rate.json has all points; rondo report "
      "DIR shows them.");
  command.does([options](const CommandLine& /*line*/) { return find_rate(*options); });
}

}  // namespace rondo::tools
