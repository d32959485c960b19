// The traffic that synchronous updates would have had, for the comparison at the end of a run. It
// follows from the model, the grid and the sizes of batches, so that nothing is counted in a step.
//
// A run may go on with other ranks or another grid than it began with: of the steps before, it
// keeps what its checkpoint says; the others are counted with the ranks and the grid of now.

#include "trainer/synchronous_meter.hpp"

#include <rondo/tensor/data_type.hpp>

#include "config/combinations.hpp"

namespace rondo::train {

void SynchronousMeter::resume(std::int64_t step, const SynchronousWork& before) noexcept {
  first_ = step;
  before_ = before;
}

// An epoch's last batch may be short.
SynchronousWork SynchronousMeter::until(std::int64_t end) {
  const std::int64_t in_epoch = parts_.batches.steps();
  const std::int64_t all = end - first_;
  const std::int64_t last = end / in_epoch - first_ / in_epoch;  // so many end an epoch
  const auto steps = static_cast<std::uint64_t>(all);
  const std::uint64_t gradient_bytes =
      parts_.grid.reduced_by_all() * tensor::size_of(parts_.experiment.train.reduce_precision);
  const SynchronousWork part{.reductions = gradient_bytes > 0 ? steps : 0,
                             .bytes = steps * gradient_bytes,
                             .bytes_sent = sent_in(all - last, 0) + sent_in(last, in_epoch - 1)};
  return before_ + part;
}

// By all ranks, in `count` steps like `step`. To lay a large model out for many ranks takes a
// while, so that is done once for each size of a batch.
std::uint64_t SynchronousMeter::sent_in(std::int64_t count, std::int64_t step) {
  if (count == 0) return 0;
  const std::int64_t samples = parts_.batches.samples(step);
  auto known = sent_.find(samples);
  if (known == sent_.end()) {
    const std::uint64_t bytes = parts_.grid.sent_by_all(parts_.model, samples, parts_.experiment);
    known = sent_.emplace(samples, bytes).first;
  }
  return static_cast<std::uint64_t>(count) * known->second;
}

}  // namespace rondo::train
