#include "synchronous/synchronous_scheme.hpp"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "replica/check_replica.hpp"
#include "state/byte_reader.hpp"
#include "state/byte_writer.hpp"
#include "state/counters.hpp"

namespace rondo::sync {
namespace {

constexpr std::string_view state_name = "synchronous";
constexpr std::uint32_t state_version = 3;

/// Elements updated between two looks at the buckets that still travel: 1 MiB.
constexpr std::size_t update_tile = 256 * 1024;

const Replica& checked(const Replica& replica) {
  check_replica(replica);
  return replica;
}

/// A slice that this rank holds alone meets nobody.
bool is_reduced(const Bucket& bucket) { return bucket.size > 0 && bucket.slice->size() > 1; }

std::shared_ptr<Optimizer> checked(std::shared_ptr<Optimizer> optimizer) {
  if (optimizer == nullptr) throw std::invalid_argument("synchronous: no optimizer was given");
  return optimizer;
}

}  // namespace

SynchronousScheme::SynchronousScheme(Replica replica, std::shared_ptr<Optimizer> optimizer,
                                     const SynchronousOptions& options)
    : replica_(checked(replica)),
      optimizer_(checked(std::move(optimizer))),
      buckets_(plan_buckets(replica_.layers, {options.bucket_bytes, options.last_bucket_bytes})),
      bucket_of_(replica_.layers.size(), 0),
      iteration_(state_name, replica_.layers),
      progress_(buckets_.size()),
      statistics_mean_(*replica_.world, replica_.statistics.size()) {
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (std::size_t i = buckets_[bucket].first_layer; i < buckets_[bucket].last_layer; ++i) {
      bucket_of_[i] = bucket;
    }
  }
}

void SynchronousScheme::begin(const Step& step) {
  iteration_.begin(step);
  posted_ = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    progress_[i].missing = buckets_[i].last_layer - buckets_[i].first_layer;
  }
}

void SynchronousScheme::make_ready(std::size_t /*layer*/) {}  // finish() left all parameters ready

void SynchronousScheme::gradients_final(std::size_t layer) {
  iteration_.layer_final(layer);
  --progress_[bucket_of_[layer]].missing;
  post_complete_buckets();
}

// In the order of the plan, and not in the order of completion: ranks whose layers become final
// in different orders still post the same collectives in the same order.
void SynchronousScheme::post_complete_buckets() {
  for (; posted_ < buckets_.size() && progress_[posted_].missing == 0; ++posted_) {
    const Bucket& bucket = buckets_[posted_];
    if (!is_reduced(bucket)) continue;
    progress_[posted_].request =
        bucket.slice->allreduce(replica_.gradients.subspan(bucket.offset, bucket.size));
    ++counters_.collectives;
    counters_.global_bytes += bucket.size * sizeof(float);
  }
}

void SynchronousScheme::finish() {
  iteration_.expect_complete();
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    progress_[i].request.wait();
    update(buckets_[i]);
  }
  if (std::ranges::any_of(buckets_, is_reduced)) ++counters_.global_reductions;
  iteration_.end();
}

void SynchronousScheme::update(const Bucket& bucket) {
  const Step& step = iteration_.step();
  const Update update{static_cast<float>(1.0 / static_cast<double>(step.global_samples)),
                      step.learning_rate, step.index};
  for (std::size_t done = 0; done < bucket.size; done += update_tile) {
    const std::size_t offset = bucket.offset + done;
    const std::size_t size = std::min(update_tile, bucket.size - done);
    optimizer_->update(offset, replica_.parameters.subspan(offset, size),
                       replica_.gradients.subspan(offset, size), update);
    replica_.world->progress();
  }
}

void SynchronousScheme::copy_for_evaluation(std::span<float> parameters,
                                            std::span<float> statistics) {
  iteration_.expect_between("copy_for_evaluation()");
  if (parameters.size() != replica_.parameters.size() ||
      statistics.size() != replica_.statistics.size()) {
    throw std::invalid_argument("synchronous: the evaluation copy's sizes are not the replica's");
  }
  std::ranges::copy(replica_.parameters, parameters.begin());
  statistics_mean_.compute(replica_.statistics, statistics);
  if (statistics_mean_.reduces()) ++counters_.evaluation_reductions;
}

void SynchronousScheme::flush() { iteration_.expect_between("flush()"); }  // nothing is pending

std::vector<std::span<const float>> SynchronousScheme::replicated() const {
  return {replica_.parameters};
}

std::vector<std::byte> SynchronousScheme::save() const {
  iteration_.expect_between("save()");
  ByteWriter writer(state_name, state_version);
  write(writer, counters_);
  writer.put_array(std::span<const std::byte>(optimizer_->save()));
  return writer.take();
}

void SynchronousScheme::restore(std::span<const std::byte> state) {
  iteration_.expect_between("restore()");
  ByteReader reader(state, state_name, state_version);
  const SchemeCounters counters = read_counters(reader);
  const std::span<const std::byte> optimizer_state = reader.get_bytes();
  reader.expect_end();
  optimizer_->restore(optimizer_state);
  counters_ = counters;
}

SchemeCounters SynchronousScheme::counters() const noexcept { return counters_; }

std::unique_ptr<UpdateScheme> make_synchronous(Replica replica,
                                               std::shared_ptr<Optimizer> optimizer,
                                               const SynchronousOptions& options) {
  return std::make_unique<SynchronousScheme>(std::move(replica), std::move(optimizer), options);
}

}  // namespace rondo::sync
