// Joins the three that take part in a step: the executor, which computes gradients layer by layer;
// the replica's own reduction, where its ranks split layers; and the update scheme. With
// micro-batches it also adds their gradients up, and passes on only the sums.
//
// Here is also what an experiment slows down on purpose, to see how a scheme bears slow ranks and
// slow networks: ranks sleep after they have computed, and the transport delays messages.

#include "trainer/step_link.hpp"

#include <algorithm>
#include <chrono>
#include <ratio>
#include <thread>

#include <fmt/format.h>

#include <rondo/tensor/elementwise.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::train {

std::vector<std::string> injections_of(const Experiment& experiment,
                                       const transport::FabricOptions& fabric, int nodes) {
  std::vector<std::string> injections;
  for (const auto& [rank, factor] : experiment.inject.slow_ranks) {
    if (factor > 1.0) {
      injections.push_back(fmt::format("rank {} computes {} times as slowly", rank, factor));
    }
  }
  if (nodes > 1 && fabric.injected_latency.count() > 0) {
    const std::chrono::duration<double, std::micro> latency = fabric.injected_latency;
    injections.push_back(fmt::format("{:g} us of latency between nodes", latency.count()));
  }
  if (nodes > 1 && fabric.injected_bytes_per_second > 0.0) {
    injections.push_back(
        fmt::format("{:g} GB/s between nodes", fabric.injected_bytes_per_second / 1e9));
  }
  return injections;
}

double slowness_of(const Experiment& experiment, int rank) {
  const auto& slow = experiment.inject.slow_ranks;
  const auto found = slow.find(rank);
  return found == slow.end() ? 1.0 : found->second;
}

namespace {

// Short enough for peers that wait for this rank's part of a reduction.
constexpr std::chrono::nanoseconds slice = std::chrono::microseconds(200);

}  // namespace

std::chrono::nanoseconds SlowRank::in_transport() const {
  const transport::Counters counters = world_.counters();
  return counters.waiting + counters.communicating;
}

void SlowRank::wait_for(std::chrono::nanoseconds computed) {
  const auto extra = std::chrono::duration_cast<Clock::duration>((factor_ - 1.0) * computed);
  const Clock::time_point end = Clock::now() + extra;
  for (Clock::time_point now = Clock::now(); now < end; now = Clock::now()) {
    world_.progress();
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(slice, end - now));
  }
}

StepLink::StepLink(TrainedState& state) : state_(state) {
  buckets_.reserve(state.layout.blocks.size());
  if (state.batches.micro_batches() > 1) {
    sum_.emplace(state.gradients.size(), state.options.team);
  }
}

// The gradient is still in the cache, and no other rank's has been added to it.
void StepLink::gradients_final(std::size_t block) {
  const ParameterBlock& at = state_.layout.blocks[block];
  const auto gradient = std::span(state_.gradients).subspan(at.offset, at.size);
  if (!not_finite_ && !tensor::all_finite(gradient)) not_finite_ = block;
  if (sum_) add_up(at);
  if (!last_) return;
  if (state_.scheme->wants_inner_sums()) {
    collect(block);
  } else {
    state_.scheme->gradients_final(block);
  }
}

void StepLink::between_layers() {
  state_.world.progress();
  const std::size_t posted = buckets_.size() - (is_open_ ? 1 : 0);
  // In the order in which they were posted, because the scheme's own buckets must have the same
  // order on all ranks.
  while (passed_on_ < posted && buckets_[passed_on_].request.test()) pass_on();
}

void StepLink::end_step() {
  post_open();
  while (passed_on_ < buckets_.size()) {
    buckets_[passed_on_].request.wait();
    pass_on();
  }
  buckets_.clear();
  passed_on_ = 0;
}

void StepLink::add_up(const ParameterBlock& block) {
  const std::span<float> part = std::span(state_.gradients).subspan(block.offset, block.size);
  if (last_) {
    sum_->move_to(block.offset, part);
  } else {
    sum_->add(block.offset, part);
  }
}

// Blocks become final from the last one on, so a bucket grows towards the first.
void StepLink::collect(std::size_t block) {
  const auto bucket_bytes = static_cast<std::size_t>(state_.experiment.update.bucket_bytes);
  transport::Communicator* const inner = state_.grid.groups_of(block).inner;
  // A bucket is reduced as one array, over one communicator.
  if (is_open_ && buckets_.back().inner != inner) post_open();
  if (is_open_) {
    buckets_.back().first = block;
  } else {
    buckets_.push_back({.first = block, .last = block + 1, .inner = inner});
    is_open_ = true;
  }
  if (inner == nullptr || gradients_of(buckets_.back()).size_bytes() >= bucket_bytes) post_open();
}

void StepLink::post_open() {
  if (!is_open_) return;
  is_open_ = false;
  Bucket& bucket = buckets_.back();
  if (bucket.inner != nullptr) bucket.request = bucket.inner->allreduce(gradients_of(bucket));
}

void StepLink::pass_on() {
  const Bucket& bucket = buckets_[passed_on_++];
  for (std::size_t block = bucket.last; block-- > bucket.first;)
    state_.scheme->gradients_final(block);
}

std::span<float> StepLink::gradients_of(const Bucket& bucket) const {
  const std::size_t offset = state_.layout.blocks[bucket.first].offset;
  const ParameterBlock& last = state_.layout.blocks[bucket.last - 1];
  return std::span(state_.gradients).subspan(offset, last.offset + last.size - offset);
}

}  // namespace rondo::train
