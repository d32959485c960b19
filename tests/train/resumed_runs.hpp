#pragma once

#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <rondo/train/trainer.hpp>

#include "support/error_text.hpp"
#include "support/world.hpp"
#include "train/experiments.hpp"

// Small runs that are stopped after a step and go on from a checkpoint.

namespace rondo::train::test {

/// Two epochs of five steps and two steps more.
[[nodiscard]] inline Experiment experiment_of(const std::string& scheme,
                                              const std::string& model = "lenet5") {
  Experiment experiment = small_experiment(model, 8);
  experiment.data.training = 40;
  experiment.data.test = 16;
  experiment.train.epochs = 3;
  experiment.train.max_steps = 12;
  experiment.train.log_every = 2;
  experiment.checkpoint.keep = 100;
  experiment.update.scheme = scheme;
  experiment.update.warmup_epochs = 0.0;
  experiment.update.period = 4;
  experiment.update.local_period = 2;
  experiment.update.group = 1;
  return experiment;
}

/// With `settings`, as --set takes them; spaces stand between them.
[[nodiscard]] inline Experiment with(const Experiment& experiment, const std::string& settings) {
  std::vector<std::string> list;
  std::istringstream words(settings);
  for (std::string word; words >> word;) list.push_back(word);
  return parse_recorded(to_toml(experiment), "run.toml", list);
}

/// All ranks of a run throw an E with this text.
template <class E>
void expect_refusal(int ranks, const Experiment& experiment, const TrainerOptions& options,
                    const testing::Matcher<std::string>& text) {
  rondo::test::World{ranks}.run([&](transport::World& world) {
    EXPECT_THAT(rondo::test::error_text<E>([&] { train(world, experiment, options); }), text);
  });
}

/// How a run ended, as rank 0 tells.
/// The last epoch of a run, as rank 0 tells it.
inline EpochMetrics train_once(int ranks, const Experiment& experiment,
                               const TrainerOptions& options) {
  EpochMetrics last;
  rondo::test::World{ranks}.run([&](transport::World& world) {
    const EpochMetrics mine = train(world, experiment, options);
    if (world.rank() == 0) last = mine;
  });
  return last;
}

struct RunEnd {
  EpochMetrics last = {};
  bool stopped = false;
  int steps = 0;  ///< that this part of the run has done
  std::vector<std::string> notes = {};
};

/// `stop_at`: the last rank is asked to stop the nth time that it looks, which is in every
/// step and once at the end of an epoch; 0: never.
inline RunEnd run_in(const std::filesystem::path& folder, int ranks, const Experiment& experiment,
                     const std::filesystem::path& resume = {}, int stop_at = 0) {
  RunEnd result;
  std::mutex mutex;
  rondo::test::World{ranks}.run([&](transport::World& world) {
    int looks = 0;
    TrainerOptions options;
    options.run_folder = world.rank() == 0 ? folder : std::filesystem::path();
    options.resume = resume;
    options.request = [&] {
      ++looks;
      const bool stop = looks == stop_at && world.rank() + 1 == world.size();
      return stop ? RunRequest::checkpoint_and_stop : RunRequest::none;
    };
    options.observer.on_note = [&](const std::string& note) { result.notes.push_back(note); };
    if (world.rank() == 0) options.on_step = [&result] { ++result.steps; };
    try {
      const EpochMetrics last = train(world, experiment, options);
      const std::lock_guard lock(mutex);
      if (world.rank() == 0) result.last = last;
    } catch (const Stopped&) {
      const std::lock_guard lock(mutex);
      result.stopped = true;
    }
  });
  return result;
}

struct Killed {};

/// The run ends without a word after `steps` steps, as if its ranks had been killed.
inline void run_until_killed(const std::filesystem::path& folder, int ranks,
                             const Experiment& experiment, const std::filesystem::path& resume,
                             int steps) {
  rondo::test::World{ranks}.run([&](transport::World& world) {
    int left = steps;
    TrainerOptions options;
    options.run_folder = world.rank() == 0 ? folder : std::filesystem::path();
    options.resume = resume;
    options.on_step = [&left] {
      if (--left == 0) throw Killed();
    };
    EXPECT_THROW(train(world, experiment, options), Killed);
  });
}

/// The events of one kind, in order.
[[nodiscard]] inline std::vector<nlohmann::json> events(const std::filesystem::path& folder,
                                                        const std::string& kind) {
  std::vector<nlohmann::json> found;
  std::ifstream stream(folder / "metrics.jsonl");
  for (std::string line; std::getline(stream, line);) {
    nlohmann::json event = nlohmann::json::parse(line);
    if (event["event"] == kind) found.push_back(std::move(event));
  }
  return found;
}

/// Without what takes another time in every run.
[[nodiscard]] inline std::vector<std::string> steady_lines(const std::filesystem::path& folder) {
  std::vector<std::string> lines;
  std::ifstream stream(folder / "metrics.jsonl");
  for (std::string line; std::getline(stream, line);) {
    nlohmann::json event = nlohmann::json::parse(line);
    if (event["event"] == "resume" || event["event"] == "start") continue;
    for (const char* key :
         {"seconds", "images_per_second", "evaluation_seconds", "communication_share", "wait_share",
          "training_seconds", "communication_seconds", "wait_seconds", "peak_bytes"}) {
      event.erase(key);
    }
    lines.push_back(event.dump());
  }
  return lines;
}

}  // namespace rondo::train::test
