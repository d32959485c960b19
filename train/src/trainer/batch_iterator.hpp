#pragma once

#include <cstdint>
#include <vector>

#include <rondo/train/dataset.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/loader.hpp>
#include <rondo/train/partition.hpp>

namespace rondo::train {

struct BatchIteratorOptions {
  LoaderOptions loader = {};  ///< largest_range is worked out here
  int rank = 0;               ///< which of `ranks` shares of a batch this rank takes
  int ranks = 1;
  std::int64_t micro_batches = 1;  ///< in which a share is computed
  bool whole_batches = false;      ///< leaves out an epoch's short last batch
};

/// One rank's samples, step after step: its share of every step's batch, in micro-batches.
///
/// The next micro-batches, as many as the loader prepares ahead, are announced to it when one is
/// given. They are a function of the step, so a run may go on at any step.
class BatchIterator {
 public:
  /// `dataset` is lent.
  BatchIterator(const Dataset& dataset, const BatchIteratorOptions& options);

  /// Steps of one epoch; at least 1.
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::int64_t micro_batches() const noexcept { return options_.micro_batches; }
  /// Samples of all ranks in step `step`, counted over all epochs.
  [[nodiscard]] std::int64_t samples(std::int64_t step) const noexcept;
  /// Samples of this rank.
  [[nodiscard]] std::int64_t own_samples(std::int64_t step) const noexcept;
  /// The first sample of a micro-batch of this rank, counted from the step's first.
  [[nodiscard]] std::int64_t first_sample(std::int64_t step,
                                          std::int64_t micro_batch) const noexcept {
    return range(step, micro_batch).first;
  }
  /// Samples of all ranks, in an epoch.
  [[nodiscard]] std::int64_t epoch_samples() const noexcept;

  /// The most samples that a micro-batch has.
  [[nodiscard]] std::int64_t largest_micro_batch() const { return micro_batch_sizes().front(); }

  /// How many samples a micro-batch can have, each number once, but 0.
  [[nodiscard]] std::vector<std::int64_t> micro_batch_sizes() const;

  /// May a micro-batch have none?
  [[nodiscard]] bool has_empty_micro_batches() const;

  /// Micro-batch `micro_batch` of this rank's share of step `step`; valid until the next load().
  [[nodiscard]] Batch load(std::int64_t step, std::int64_t micro_batch);

  /// Has only those images, and parts of images, prepared that `executor` reads of its training
  /// batches, and of test batches of `test_batch`. Called before the first load().
  void read_for(const Executor& executor, std::int64_t test_batch);

  /// How often an image stood in for a broken one, so far.
  [[nodiscard]] std::int64_t skipped() const noexcept { return loader_.skipped(); }

  /// Bytes of the loader's batches, with test batches of `test_batch`.
  [[nodiscard]] std::size_t batch_bytes(std::int64_t test_batch) const {
    return loader_.batch_bytes(test_batch);
  }

  /// Bytes that the loader's threads keep.
  [[nodiscard]] std::size_t thread_bytes(bool loads_test) const noexcept {
    return loader_.thread_bytes(loads_test);
  }

  [[nodiscard]] Batch load_test(std::int64_t first, std::int64_t last, Range next) {
    return loader_.load_test(first, last, next);
  }

 private:
  [[nodiscard]] Range share(std::int64_t step) const noexcept;
  [[nodiscard]] SampleRange range(std::int64_t step, std::int64_t micro_batch) const noexcept;

  BatchIteratorOptions options_;
  Loader loader_;
  std::int64_t steps_;
};

/// A seed for the stream of one worker, from that of the run.
[[nodiscard]] std::uint64_t worker_seed(std::uint64_t seed, int worker);

}  // namespace rondo::train
