// From the steps of a run to ranges of samples. A step's batch is cut into one share per replica,
// and a share into micro-batches; the next ranges are announced to the loader when one is given
// out.

#include "trainer/batch_iterator.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include <rondo/train/experiment.hpp>

#include "data/random.hpp"

namespace rondo::train {
namespace {

LoaderOptions with_largest_range(const BatchIteratorOptions& options) {
  LoaderOptions loader = options.loader;
  const std::int64_t share = (loader.global_batch + options.ranks - 1) / options.ranks;
  loader.largest_range = (share + options.micro_batches - 1) / options.micro_batches;
  return loader;
}

}  // namespace

BatchIterator::BatchIterator(const Dataset& dataset, const BatchIteratorOptions& options)
    : options_(options), loader_(dataset, with_largest_range(options)), steps_(loader_.steps()) {
  // Schemes whose replicas step by themselves need equal batches, and data.drop_last asks for them:
  // a short last one is left out.
  const bool short_last = steps_ > 0 && loader_.samples(steps_ - 1) < options.loader.global_batch;
  if (options.whole_batches && short_last) --steps_;
  if (steps_ > 0 && loader_.samples(0) < options.ranks) {
    throw ConfigError("train.global_batch: the " + std::to_string(dataset.training.shape.n) +
                      " images of the training set leave some of " + std::to_string(options.ranks) +
                      " replicas without a sample; start fewer ranks");
  }
  if (steps_ > 0) return;
  throw ConfigError(
      "train.global_batch: " + std::to_string(options.loader.global_batch) +
      " samples are more than the " + std::to_string(dataset.training.shape.n) +
      " of the training set, and update.scheme or data.drop_last wants whole batches; "
      "give a smaller batch");
}

std::int64_t BatchIterator::samples(std::int64_t step) const noexcept {
  return loader_.samples(step % steps_);
}

std::int64_t BatchIterator::own_samples(std::int64_t step) const noexcept {
  return share(step).size();
}

std::int64_t BatchIterator::epoch_samples() const noexcept {
  return (steps_ - 1) * options_.loader.global_batch + loader_.samples(steps_ - 1);
}

Range BatchIterator::share(std::int64_t step) const noexcept {
  return even_range(samples(step), options_.ranks, options_.rank);
}

std::vector<std::int64_t> BatchIterator::micro_batch_sizes() const {
  std::vector<std::int64_t> sizes;
  // Only the last step of an epoch may have another size than the first.
  for (const std::int64_t step : {std::int64_t{0}, steps_ - 1}) {
    for (std::int64_t micro_batch = 0; micro_batch < options_.micro_batches; ++micro_batch) {
      const SampleRange part = range(step, micro_batch);
      if (part.last > part.first) sizes.push_back(part.last - part.first);
    }
  }
  std::ranges::sort(sizes, std::greater<>());
  const auto repeated = std::ranges::unique(sizes);
  sizes.erase(repeated.begin(), repeated.end());
  return sizes;
}

void BatchIterator::read_for(const Executor& executor, std::int64_t test_batch) {
  std::map<std::int64_t, Box> parts = {{test_batch, executor.images_read(test_batch)}};
  for (const std::int64_t size : micro_batch_sizes()) parts[size] = executor.images_read(size);
  loader_.read_only(std::move(parts));
}

bool BatchIterator::has_empty_micro_batches() const {
  for (const std::int64_t step : {std::int64_t{0}, steps_ - 1}) {
    if (own_samples(step) < options_.micro_batches) return true;
  }
  return false;
}

SampleRange BatchIterator::range(std::int64_t step, std::int64_t micro_batch) const noexcept {
  const Range whole = share(step);
  const std::int64_t micro_batches = options_.micro_batches;
  return {.epoch = step / steps_,
          .step = step % steps_,
          .first = whole.first + whole.size() * micro_batch / micro_batches,
          .last = whole.first + whole.size() * (micro_batch + 1) / micro_batches};
}

Batch BatchIterator::load(std::int64_t step, std::int64_t micro_batch) {
  const Batch batch = loader_.load(range(step, micro_batch));
  // Micro-batches are numbered through the whole run, so that announcing goes on over the end of a
  // step and of an epoch.
  const std::int64_t number = step * options_.micro_batches + micro_batch;
  for (std::int64_t next = number + 1; next <= number + loader_.ahead(); ++next) {
    loader_.prefetch(range(next / options_.micro_batches, next % options_.micro_batches));
  }
  return batch;
}

std::uint64_t worker_seed(std::uint64_t seed, int worker) {
  const auto words = draw(seed, 0, static_cast<std::uint64_t>(worker), Purpose::worker);
  return std::uint64_t{words[0]} << 32 | words[1];
}

}  // namespace rondo::train
