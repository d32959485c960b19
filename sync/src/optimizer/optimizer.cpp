// From gradients to parameters: sums of gradients, the learning rate, the choice of the kernels,
// what optimizers do alike, and the optimizers, which are little more than their factors. An update
// is one fused pass over a range of the flat arrays, cut into a part for each thread where it is
// long.

#include <rondo/sync/optimizer.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <rondo/sync/scheme_base.hpp>

#include "flat/flat.hpp"
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

/// What optimizers do alike: the arrays that they remember, in memory of their own or lent; which
/// parameters decay; and the parts of an update that threads share.
class FlatOptimizer : public Optimizer {
 public:
  [[nodiscard]] std::size_t size() const noexcept override { return size_; }
  [[nodiscard]] std::span<float> state() noexcept override { return state_; }
  void keep_state_in(std::span<float> memory) override;
  [[nodiscard]] std::vector<std::byte> save() const override;
  void restore(std::span<const std::byte> state) override;

 protected:
  /// `arrays` arrays of `size` zeros, one after another. `name` is that of errors and of the saved
  /// state, and outlives this object. Throws std::invalid_argument unless the `undecayed` ranges
  /// are in ascending order, apart, and within `size`.
  FlatOptimizer(std::string_view name, std::size_t size, std::size_t arrays,
                std::vector<ElementRange> undecayed, transport::Team* team);

  /// Throws std::invalid_argument unless the range fits.
  void check_update(std::size_t offset, std::span<float> parameters,
                    std::span<const float> gradients) const;

  /// Array `index` of the state, from element `offset` on.
  [[nodiscard]] float* array(std::size_t index, std::size_t offset) noexcept {
    return state_.subspan(index * size_).data() + offset;
  }

  /// Cuts [offset, offset + count) into parts for the team's threads, and each where weight decay
  /// begins or ends. Calls work(first, count, decays), where `first` is relative to `offset`.
  template <typename Work>
  void for_each_range(std::size_t offset, std::size_t count, const Work& work) const {
    flat::for_each_part(team_, count, [&](std::size_t part, std::size_t size) {
      for_each_decay(offset + part, size, [&](std::size_t first, std::size_t n, bool decays) {
        work(part + first, n, decays);
      });
    });
  }

  /// Throws std::invalid_argument, beginning with the optimizer's name.
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  template <typename Work>
  void for_each_decay(std::size_t offset, std::size_t count, const Work& work) const {
    const std::size_t end = offset + count;
    auto range = std::ranges::upper_bound(
        undecayed_, offset, {}, [](const ElementRange& each) { return each.offset + each.size; });
    for (std::size_t at = offset; at < end;) {
      const bool decays = range == undecayed_.end() || at < range->offset;
      const std::size_t begin_of_next = range == undecayed_.end() ? end : range->offset;
      const std::size_t last = std::min(end, decays ? begin_of_next : range->offset + range->size);
      work(at - offset, last - at, decays);
      if (!decays) ++range;
      at = last;
    }
  }
  void check_undecayed() const;

  std::string_view name_;
  std::size_t size_;
  std::vector<ElementRange> undecayed_;  // none empty
  transport::Team* team_;
  std::vector<float> own_;
  std::span<float> state_;  // own_, or what was lent
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
                        std::span<const float> gradients, const Update& update) {
  flat::check_range("preview", offset, parameters.size(), size());
  const std::span<float> arrays = state();
  const std::size_t count = parameters.size();
  std::vector<float> before;
  for (std::size_t first = offset; first < arrays.size(); first += size()) {
    const auto part = arrays.subspan(first, count);
    before.insert(before.end(), part.begin(), part.end());
  }
  this->update(offset, parameters, gradients, update);
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
      own_(size * arrays, 0.0F),
      state_(own_) {
  std::erase_if(undecayed_, [](const ElementRange& range) { return range.size == 0; });
  check_undecayed();
}

void FlatOptimizer::check_undecayed() const {
  std::size_t end = 0;
  for (const ElementRange& range : undecayed_) {
    if (range.offset < end || range.offset > size_ || range.size > size_ - range.offset) {
      refuse("undecayed names " + std::to_string(range.size) + " elements from " +
             std::to_string(range.offset) + " on, which are out of order or not among the " +
             std::to_string(size_) + " parameters");
    }
    end = range.offset + range.size;
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
  own_ = std::vector<float>();  // gives the memory back
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

namespace {

/// SGD with momentum. The velocity is all its state.
class Sgd final : public FlatOptimizer {
 public:
  Sgd(std::size_t size, const SgdOptions& options, transport::Team* team)
      : FlatOptimizer("sgd", size, 1, options.undecayed, team),
        momentum_(options.momentum),
        weight_decay_(options.weight_decay),
        kernel_(runnable_kernels().back()->sgd) {}

  void update(std::size_t offset, std::span<float> parameters, std::span<const float> gradients,
              const Update& update) override {
    check_update(offset, parameters, gradients);
    const SgdFactors decayed{update.gradient_scale, momentum_, weight_decay_ * update.decay_scale,
                             static_cast<float>(update.learning_rate)};
    SgdFactors undecayed = decayed;
    undecayed.decay = 0.0F;
    float* const velocity = array(0, offset);
    for_each_range(
        offset, parameters.size(), [&](std::size_t first, std::size_t count, bool decays) {
          kernel_({parameters.data() + first, velocity + first, gradients.data() + first}, count,
                  decays ? decayed : undecayed);
        });
  }

  [[nodiscard]] bool ignores_scale() const noexcept override { return false; }

 private:
  float momentum_;
  float weight_decay_;
  decltype(UpdateKernels::sgd) kernel_;
};

/// Where the weight decay goes: into the gradient (Adam), or straight to the weights (AdamW).
enum class WeightDecay : std::uint8_t { in_gradient, apart };

/// By repeated squaring: the same bits from every version of the C library.
double power(double base, std::int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

/// Adam and AdamW, which differ in where the weight decay goes. The factors of an update are worked
/// out in double and rounded once; the pass over the arrays is in fp32. The state is m, then v.
class Adam final : public FlatOptimizer {
 public:
  Adam(std::string_view name, std::size_t size, const AdamOptions& options, WeightDecay decay,
       transport::Team* team)
      : FlatOptimizer(name, size, 2, options.undecayed, team),
        options_(options),
        decay_(decay),
        kernel_(runnable_kernels().back()->adam) {
    const auto is_beta = [](double value) { return value >= 0.0 && value < 1.0; };
    if (!is_beta(options.beta1) || !is_beta(options.beta2)) {
      refuse("beta1 and beta2 must be in [0, 1), not " + std::to_string(options.beta1) + " and " +
             std::to_string(options.beta2));
    }
    if (!(options.epsilon >= 0.0) || !(options.weight_decay >= 0.0)) {
      refuse("epsilon and weight_decay must not be negative");
    }
  }

  void update(std::size_t offset, std::span<float> parameters, std::span<const float> gradients,
              const Update& update) override {
    check_update(offset, parameters, gradients);
    const AdamFactors decayed =
        factors(update, options_.weight_decay * static_cast<double>(update.decay_scale));
    const AdamFactors undecayed = factors(update, 0.0);
    float* const m = array(0, offset);
    float* const v = array(1, offset);
    for_each_range(
        offset, parameters.size(), [&](std::size_t first, std::size_t count, bool decays) {
          kernel_({parameters.data() + first, m + first, v + first, gradients.data() + first},
                  count, decays ? decayed : undecayed);
        });
  }

  [[nodiscard]] bool ignores_scale() const noexcept override { return true; }

 private:
  [[nodiscard]] AdamFactors factors(const Update& update, double weight_decay) const {
    if (update.index < 0) refuse("there is no update " + std::to_string(update.index));
    const double beta1 = options_.beta1;
    const double beta2 = options_.beta2;
    const bool apart = decay_ == WeightDecay::apart;
    const std::int64_t t = update.index + 1;
    return {.scale = update.gradient_scale,
            .decay = apart ? 0.0F : static_cast<float>(weight_decay),
            .shrink = apart ? static_cast<float>(1.0 - update.learning_rate * weight_decay) : 1.0F,
            .beta1 = static_cast<float>(beta1),
            .rest1 = static_cast<float>(1.0 - beta1),
            .beta2 = static_cast<float>(beta2),
            .rest2 = static_cast<float>(1.0 - beta2),
            .correction = static_cast<float>(1.0 / std::sqrt(1.0 - power(beta2, t))),
            .epsilon = static_cast<float>(options_.epsilon),
            .rate = static_cast<float>(update.learning_rate / (1.0 - power(beta1, t)))};
  }

  AdamOptions options_;
  WeightDecay decay_;
  decltype(UpdateKernels::adam) kernel_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(std::size_t size, const SgdOptions& options,
                                    transport::Team* team) {
  return std::make_unique<Sgd>(size, options, team);
}

std::unique_ptr<Optimizer> make_adam(std::size_t size, const AdamOptions& options,
                                     transport::Team* team) {
  return std::make_unique<Adam>("adam", size, options, WeightDecay::in_gradient, team);
}

std::unique_ptr<Optimizer> make_adamw(std::size_t size, const AdamOptions& options,
                                      transport::Team* team) {
  return std::make_unique<Adam>("adamw", size, options, WeightDecay::apart, team);
}

}  // namespace rondo::sync
