#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <rondo/train/trainer.hpp>

namespace rondo::train {

/// How a run began; see the README of this module for the meaning of every name.
struct StartEvent {
  std::string config = {};  ///< as a TOML file
  int ranks = 1;
  int threads = 1;
  std::vector<std::string> hosts = {};  ///< by rank
  int nodes = 1;
  std::string route = {};  ///< what joins nodes, and which delays were injected
  std::int64_t global_batch = 0;
  std::vector<std::int64_t> rank_batches = {};  ///< by rank, of a full global batch
  std::string data = {};
  std::int64_t training_images = 0;
  std::int64_t test_images = 0;
  std::string model = {};
  std::int64_t parameters = 0;
  std::int64_t seed = 0;
  std::int64_t steps_per_epoch = 0;
  std::int64_t total_steps = 0;
};

/// Training since the previous step event of the epoch, over all ranks.
struct StepEvent {
  std::int64_t epoch = 0;  ///< 1-based
  std::int64_t step = 0;   ///< 1-based, within the epoch
  std::int64_t total_step = 0;
  double loss = 0.0;
  double training_accuracy = 0.0;
  double learning_rate = 0.0;
  double images_per_second = 0.0;  ///< of the epoch so far
};

/// How a run ended.
struct EndEvent {
  std::string reason = {};  ///< "completed", "max_steps", or what went wrong
  double seconds = 0.0;
  std::int64_t epochs = 0;
  std::int64_t steps = 0;
  double final_accuracy = 0.0;
  double best_accuracy = 0.0;
};

}  // namespace rondo::train
