// Means of whole models over ranks, in training by averages.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include <rondo/sync/scheme_base.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "base/copies.hpp"
#include "flat/flat.hpp"

namespace rondo::sync {

PackedMean::PackedMean(const Replica& replica, std::size_t state_size)
    : replica_(replica),
      memory_(replica.parameters.size() + replica.statistics.size() + state_size + 1, 0.0F,
              &replica.world->arena()),
      packed_(memory_),
      rounded_(&replica.world->arena()),
      copies_(std::make_shared<const Copies>(replica, Copies::Kind::all)) {}

void PackedMean::pack(std::span<const float> parameters, std::span<const float> start,
                      std::span<const float> state, float weight) {
  packed_ = std::span(memory_).first(replica_.parameters.size() + replica_.statistics.size() +
                                     state.size() + 1);
  if (start.empty()) {
    std::ranges::copy(parameters, displacement().begin());
  } else {
    flat::subtract(displacement(), parameters, start);
  }
  std::ranges::copy(replica_.statistics, statistics().begin());
  std::ranges::copy(state, this->state().begin());
  weigh(weight);
  packed_.back() = weight;
}

void PackedMean::add_unsent(std::span<const float> unsent) {
  if (!unsent.empty()) flat::add(displacement(), unsent);
}

// In bf16 the displacement goes by itself: counts of samples, statistics and momenta need all bits.
void PackedMean::post(transport::Communicator& group, std::span<float> unsent) {
  ranks_ = group.size();
  rounds_ = !unsent.empty();
  if (!rounds_) {
    request_ = group.allreduce(packed_);
    return;
  }
  prepare_bf16();
  add_unsent(unsent);
  flat::round(rounded_, displacement());
  flat::widen(unsent, rounded_);
  flat::subtract(unsent, displacement(), unsent);
  request_ = group.allreduce(std::span(rounded_));
  rest_ = group.allreduce(packed_.subspan(rounded_.size()));
}

std::size_t PackedMean::bytes() const noexcept {
  const std::size_t all = packed_.size_bytes();
  return rounds_ ? all - rounded_.size() * (sizeof(float) - sizeof(transport::Bfloat16)) : all;
}

// Divided by what has arrived: the sum of the ranks' weights lies behind the values.
void PackedMean::wait() {
  if (ranks_ == 0) return;
  request_.wait();
  if (rounds_) {
    rest_.wait();
    flat::widen(displacement(), rounded_);
  }
  flat::scale(statistics(), static_cast<float>(1.0 / std::exchange(ranks_, 0)));
  if (has_weight()) weigh(static_cast<float>(1.0 / static_cast<double>(packed_.back())));
  equal_copies();
}

void PackedMean::equal_copies() {
  const std::size_t size = replica_.parameters.size();
  copies_->make_equal(displacement());
  for (std::size_t array = 0; array < state().size(); array += size) {
    copies_->make_equal(state().subspan(array, size));
  }
}

// A weight of exactly 1 is not multiplied by, so that equal shares cost nothing.
void PackedMean::weigh(float factor) {
  if (factor == 1.0F) return;
  flat::scale(displacement(), factor);
  flat::scale(state(), factor);
}

}  // namespace rondo::sync
