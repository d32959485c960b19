#include "schemes/synchronous_scheme.hpp"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "base/byte_reader.hpp"
#include "base/byte_writer.hpp"
#include "base/check_replica.hpp"
#include "base/counters.hpp"
#include "base/whole_layers.hpp"
#include "flat/clip.hpp"

namespace rondo::sync {
namespace {

constexpr std::string_view synchronous_state_name = "synchronous";
constexpr std::uint32_t synchronous_state_version = 3;

/// Can every rank tell the norm of the whole gradient?
void check_clipping(const Replica& replica, double clip_norm) {
  if (!(clip_norm >= 0.0)) {
    throw std::invalid_argument("synchronous: clip_norm must be 0 (no clipping) or positive");
  }
  if (clip_norm == 0.0 || replica.slices.over != nullptr) return;
  expect_whole_layers("synchronous: clip_norm", replica, replica.layers);
}

}  // namespace

SynchronousScheme::SynchronousScheme(Replica replica, std::shared_ptr<Optimizer> optimizer,
                                     const SynchronousOptions& options)
    : replica_(checked_replica(replica)),
      optimizer_(checked_optimizer("synchronous", replica_, std::move(optimizer))),
      iteration_(synchronous_state_name, replica_.layers),
      buckets_(replica_, 0, {options.bucket_bytes, options.last_bucket_bytes}),
      clip_norm_(options.clip_norm),
      sums_(replica_, 1),
      statistics_mean_(replica_) {
  check_clipping(replica_, clip_norm_);
}

void SynchronousScheme::begin(const Step& step) {
  iteration_.begin(step);
  buckets_.begin();
}

void SynchronousScheme::make_ready(std::size_t /*layer*/) {}  // finish() left all parameters ready

void SynchronousScheme::gradients_final(std::size_t layer) {
  iteration_.layer_final(layer);
  buckets_.layer_final(layer, counters_);
}

void SynchronousScheme::finish() {
  iteration_.expect_complete();
  const Step& step = iteration_.step();
  const auto scale = static_cast<float>(gradient_scale());
  buckets_.update(*optimizer_, {scale, step.learning_rate, step.index});
  if (buckets_.reduces()) ++counters_.global_reductions;
  iteration_.end();
}

/// Of the sums that the buckets reduce; waits for all of them only if the norm must be known.
double SynchronousScheme::gradient_scale() {
  const double mean = 1.0 / static_cast<double>(iteration_.step().global_samples);
  if (clip_norm_ == 0.0) return mean;
  buckets_.wait();
  return mean * flat::clip_factor(sums_.squared_norm(replica_.gradients), mean, clip_norm_);
}

void SynchronousScheme::copy_for_evaluation(std::span<float> parameters,
                                            std::span<float> statistics) {
  iteration_.expect_between("copy_for_evaluation()");
  expect_copy_of(replica_, "synchronous", parameters, statistics);
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
  ByteWriter writer(synchronous_state_name, synchronous_state_version);
  write(writer, counters_);
  writer.put_array(std::span<const std::byte>(optimizer_->save()));
  return writer.take();
}

void SynchronousScheme::restore(std::span<const std::byte> state) {
  iteration_.expect_between("restore()");
  ByteReader reader(state, synchronous_state_name, synchronous_state_version);
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
