// From gradients to parameters: sums of gradients, the learning rate, the choice of the kernels,
// and what optimizers do alike. An update is one fused pass over a range of the flat arrays, cut
// into a part for each thread where it is long. Each optimizer, little more than its factors, is a
// source.

#include <rondo/sync/optimizer.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <new>
#include <numbers>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <rondo/sync/scheme_base.hpp>

#include "flat/flat.hpp"
#include "optimizer/flat_optimizer.hpp"
#include "optimizer/kernels.hpp"

namespace rondo::sync {
namespace {

constexpr std::uint32_t optimizer_state_version = 1;

/// Ordered by wider and wider instructions.
constexpr std::array all_kernels{
    &baseline::update_kernels,
#if defined(__x86_64__)
    &avx2::update_kernels,
    &avx512::update_kernels,
#endif
};

}  // namespace

std::span<const UpdateKernels* const> runnable_kernels() {
  const std::span<const UpdateKernels* const> all = all_kernels;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") == 0) return all.first(1);
  if (__builtin_cpu_supports("avx512f") == 0) return all.first(2);
#endif
  return all;
}

Optimizer::~Optimizer() = default;

// Only the range's part of each array of the state can change.
void Optimizer::preview(std::size_t offset, std::span<float> parameters,
                        std::span<const float> gradients, const Update& update,
                        std::int64_t times) {
  flat::check_range("preview", offset, parameters.size(), size());
  const std::span<float> arrays = state();
  const std::size_t count = parameters.size();
  std::vector<float> before;
  for (std::size_t first = offset; first < arrays.size(); first += size()) {
    const auto part = arrays.subspan(first, count);
    before.insert(before.end(), part.begin(), part.end());
  }
  for (std::int64_t i = 0; i < times; ++i) this->update(offset, parameters, gradients, update);
  auto kept = std::span<const float>(before);
  for (std::size_t first = offset; first < arrays.size(); first += size()) {
    std::ranges::copy(kept.first(count), arrays.subspan(first).begin());
    kept = kept.subspan(count);
  }
}

FlatOptimizer::FlatOptimizer(std::string_view name, std::size_t size, std::size_t arrays,
                             std::vector<ElementRange> undecayed, transport::Team* team)
    : name_(name),
      size_(size),
      undecayed_(std::move(undecayed)),
      team_(team),
      own_(static_cast<float*>(std::calloc(size * arrays, sizeof(float)))),
      state_(own_.get(), size * arrays) {
  if (own_ == nullptr && !state_.empty()) throw std::bad_alloc();
  std::erase_if(undecayed_, [](const ElementRange& range) { return range.size == 0; });
  check_ranges("undecayed", undecayed_);
}

void FlatOptimizer::check_ranges(std::string_view what,
                                 std::span<const ElementRange> ranges) const {
  std::size_t end = 0;
  for (const ElementRange& range : ranges) {
    if (range.offset < end || range.offset > size_ || range.size > size_ - range.offset) {
      refuse(std::string(what) + " names " + std::to_string(range.size) + " elements from " +
             std::to_string(range.offset) + " on, which are out of order or not among the " +
             std::to_string(size_) + " parameters");
    }
    end = range.offset + range.size;
  }
}

void FlatOptimizer::check_momentum_and_decay(float momentum, float weight_decay) const {
  if (!(momentum >= 0.0F && momentum < 1.0F)) {
    refuse("momentum must be in [0, 1), not " + std::to_string(momentum));
  }
  if (!(weight_decay >= 0.0F)) {
    refuse("weight_decay must be at least 0, not " + std::to_string(weight_decay));
  }
}

void FlatOptimizer::check_update(std::size_t offset, std::span<float> parameters,
                                 std::span<const float> gradients) const {
  if (parameters.size() != gradients.size()) {
    refuse("update of " + std::to_string(parameters.size()) + " parameters by " +
           std::to_string(gradients.size()) + " gradients");
  }
  flat::check_range(name_, offset, parameters.size(), size_);
}

void FlatOptimizer::refuse(const std::string& reason) const {
  throw std::invalid_argument(std::string(name_) + ": " + reason);
}

void FlatOptimizer::keep_state_in(std::span<float> memory) {
  if (memory.size() != state_.size()) {
    refuse("a state of " + std::to_string(state_.size()) + " values cannot be kept in " +
           std::to_string(memory.size()));
  }
  state_ = memory;
  own_.reset();
}

std::vector<std::byte> FlatOptimizer::save() const {
  ByteWriter writer(name_, optimizer_state_version);
  writer.put_array(std::span<const float>(state_));
  return writer.take();
}

void FlatOptimizer::restore(std::span<const std::byte> state) {
  ByteReader reader(state, name_, optimizer_state_version);
  std::vector<float> values(state_.size());
  reader.get_array(std::span(values));
  reader.expect_end();
  std::ranges::copy(values, state_.begin());
}

double LearningRate::at(std::int64_t step) const noexcept {
  if (step < warmup_steps) {
    return base * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  if (decay == Decay::constant) return base;
  if (decay == Decay::steps) {
    double rate = base;
    for (const std::int64_t milestone : milestones) {
      if (milestone <= step) rate *= factor;
    }
    return rate;
  }
  const auto span = static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup_steps));
  const double done = std::min(1.0, static_cast<double>(step - warmup_steps) / span);
  if (decay == Decay::exponential) {
    const double last = std::max(1.0, span - 1.0) / span;  // of the last step, as `done` counts
    return base * std::pow(final_rate / base, std::min(1.0, done / last));
  }
  return final_rate + 0.5 * (base - final_rate) * (1.0 + std::cos(std::numbers::pi * done));
}

GradientSum::GradientSum(std::size_t size, transport::Team* team, std::pmr::memory_resource* memory)
    : sum_(size, 0.0F, memory), team_(team) {}

template <typename Pass>
void GradientSum::for_each_part(std::size_t offset, std::size_t size, Pass pass) {
  flat::check_range("gradient sum", offset, size, sum_.size());
  const auto sum = std::span(sum_).subspan(offset, size);
  flat::for_each_part(team_, size, [&](std::size_t first, std::size_t count) {
    pass(sum.subspan(first, count), first, count);
  });
}

void GradientSum::add(std::size_t offset, std::span<const float> gradients, float factor) {
  for_each_part(offset, gradients.size(), [&](auto sum, std::size_t first, std::size_t count) {
    flat::add_scaled(sum, factor, gradients.subspan(first, count));
  });
}

// A copy and not 0 + g: that would lose the sign of -0.
void GradientSum::set(std::size_t offset, std::span<const float> gradients, float factor) {
  for_each_part(offset, gradients.size(), [&](auto sum, std::size_t first, std::size_t count) {
    flat::scale(sum, factor, gradients.subspan(first, count));
  });
}

void GradientSum::move_to(std::size_t offset, std::span<float> gradients) {
  for_each_part(offset, gradients.size(), [&](auto sum, std::size_t first, std::size_t count) {
    flat::add(gradients.subspan(first, count), sum);
    std::ranges::fill(sum, 0.0F);
  });
}

}  // namespace rondo::sync
