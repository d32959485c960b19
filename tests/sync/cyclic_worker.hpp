#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/optimizer.hpp>

#include "sync/arrays.hpp"

namespace rondo::sync::test {

/// A rank's place in a replica of several: it holds the model's elements from `first` on, as many
/// as its layers have.
struct CyclicPlace {
  int worker = 0;
  std::size_t first = 0;
  std::vector<std::size_t> layers = {};
  transport::Communicator* across = nullptr;  ///< the workers' holders of these elements
  transport::Communicator* group = nullptr;   ///< the ranks of this worker
};

/// One rank of a cyclic scheme around a model whose gradient is w/4 + (rank + 1) per sample, plus
/// the number of the mini-batch: every mini-batch and every pull shows in the parameters.
class CyclicWorker {
 public:
  static constexpr std::size_t samples = 2;
  static constexpr double rate = 0.125;

  CyclicWorker(transport::World& world, CyclicOptions options,
               const SgdOptions& sgd = {.momentum = 0.5F, .weight_decay = 0.0F})
      : CyclicWorker(world, options, sgd,
                     {world.rank(), 0, {5, 3}, &world.communicator(), nullptr}) {}
  CyclicWorker(transport::World& world, CyclicOptions options, const SgdOptions& sgd,
               const CyclicPlace& place)
      : worker_(place.worker),
        workers_(static_cast<std::size_t>(place.across->size())),
        first_(place.first),
        arrays(world, place.layers, 1) {
    Replica replica = arrays.replica();
    for (Layer& layer : replica.layers) layer.groups = {nullptr, place.across, place.across};
    if (place.group != nullptr) replica.slices = {place.group, {{0, arrays.parameters.size()}}};
    options.on_push = [this](const Push& push) { pushes.push_back(push); };
    scheme = make_cyclic(replica, make_sgd(arrays.parameters.size(), sgd), options);
  }

  void compute_minibatch() {
    const Step step{.index = done,
                    .local_samples = samples,
                    .global_samples = samples * workers_,
                    .learning_rate = rate};
    iterate(*scheme, arrays, step, [&](std::size_t i, float w) {
      return static_cast<float>(samples) * gradient_of(worker_, done, w, first_ + i);
    });
    ++done;
  }
  void compute_minibatches(int count) {
    for (int i = 0; i < count; ++i) compute_minibatch();
  }
  void compute_until_parked() {
    do {
      compute_minibatch();
    } while (!scheme->pace()->parked);
  }

  /// The mean gradient of a mini-batch.
  [[nodiscard]] static float gradient_of(int rank, int minibatch, float w, std::size_t element) {
    return 0.25F * w + static_cast<float>(rank + 1) + static_cast<float>(minibatch % 4) +
           static_cast<float>(element);
  }

  [[nodiscard]] std::vector<float> parameters() const {
    return {arrays.parameters.begin(), arrays.parameters.end()};
  }
  [[nodiscard]] std::vector<Turn> turns() const {
    std::vector<Turn> all;
    for (const Push& push : pushes) all.push_back(push.turn);
    return all;
  }

 private:
  int worker_;
  std::size_t workers_;
  std::size_t first_;

 public:
  Arrays arrays;
  std::unique_ptr<UpdateScheme> scheme;
  std::vector<Push> pushes;
  int done = 0;  ///< mini-batches
};

/// The results of such workers, worked out turn by turn: a store, a copy for each worker, and plain
/// loops. Each sample counts one in all workers' mini-batches together.
class CyclicModel {
 public:
  CyclicModel(int workers, PushScaling scaling)
      : scaling_(scaling),
        store_(8, 0.0F),
        velocity_(8, 0.0F),
        copies_(static_cast<std::size_t>(workers), store_),
        done_(copies_.size(), 0) {}

  void turn(const Turn& turn) {
    if (turn.kind != Turn::Kind::push) return;
    const std::vector<float> sum = sum_of(turn);
    const auto workers = static_cast<double>(copies_.size());
    double scale = 1.0;
    if (scaling_ == PushScaling::mean) scale = workers / turn.minibatches;
    if (scaling_ == PushScaling::sum) scale = workers;
    for (std::size_t i = 0; i < 8; ++i) {
      const float scaled = static_cast<float>(scale) * sum[i];
      velocity_[i] = 0.5F * velocity_[i] + scaled;
      const float change = 0.125F * velocity_[i];
      store_[i] = store_[i] - change;
    }
    copies_[static_cast<std::size_t>(turn.worker)] = store_;
  }

  [[nodiscard]] const std::vector<float>& store() const { return store_; }

 private:
  std::vector<float> sum_of(const Turn& turn) {
    const auto worker = static_cast<std::size_t>(turn.worker);
    const auto samples = static_cast<float>(CyclicWorker::samples);
    const auto factor =
        static_cast<float>(1.0 / static_cast<double>(CyclicWorker::samples * copies_.size()));
    std::vector<float> sum(8, 0.0F);
    for (int k = 0; k < turn.minibatches; ++k, ++done_[worker]) {
      for (std::size_t i = 0; i < 8; ++i) {
        const float gradient =
            CyclicWorker::gradient_of(turn.worker, done_[worker], copies_[worker][i], i);
        sum[i] += factor * (samples * gradient);
      }
    }
    return sum;
  }

  PushScaling scaling_;
  std::vector<float> store_;
  std::vector<float> velocity_;
  std::vector<std::vector<float>> copies_;  // by worker
  std::vector<int> done_;
};

}  // namespace rondo::sync::test
