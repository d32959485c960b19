#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>
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
  std::string scheme = {};
  std::vector<std::string> lazy_layers = {};  ///< lazy only: their names
  std::vector<std::string> injected = {};     ///< what is slowed down on purpose, in words
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

/// A round of averaging that ended after step `total_step` of the run.
struct RoundEvent {
  std::int64_t total_step = 0;
  sync::Round round = {};
};

}  // namespace rondo::train
