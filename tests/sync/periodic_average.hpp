#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <rondo/sync/scheme_base.hpp>

namespace rondo::sync::test {

/// A scheme from outside of the library: plain averages of parameters and statistics after every
/// `period` local steps. All of a scheme of one's own that is not in SchemeBase.
class PeriodicAverage final : public SchemeBase {
 public:
  PeriodicAverage(Replica given, std::shared_ptr<Optimizer> optimizer, std::int64_t period)
      : SchemeBase({.name = "periodic_average", .exchange = Exchange::parameters, .clips = false},
                   std::move(given), std::move(optimizer)),
        mean_(replica()),
        period_(period) {}
  [[nodiscard]] std::vector<std::span<const float>> replicated() const override { return {}; }

 private:
  void end_iteration() override {
    const float scale = 1.0F / static_cast<float>(std::max<std::size_t>(step().local_samples, 1));
    optimizer().update(0, replica().parameters, replica().gradients,
                       {scale, step().learning_rate, step().updates()});
    if (++steps_ == period_) apply_pending();
  }
  void apply_pending() override {
    if (std::exchange(steps_, 0) == 0 || outer().size() == 1) return;
    average_into(replica().parameters, replica().statistics);
    ++counted().global_reductions;
  }
  void evaluate(std::span<float> parameters, std::span<float> statistics) override {
    average_into(parameters, statistics);
    if (outer().size() > 1) ++counted().evaluation_reductions;
  }
  void average_into(std::span<float> parameters, std::span<float> statistics) {
    mean_.pack({}, {}, 1.0F);
    if (outer().size() > 1) mean_.reduce(outer());
    std::ranges::copy(mean_.displacement(), parameters.begin());
    std::ranges::copy(mean_.statistics(), statistics.begin());
  }
  void write_state(ByteWriter& writer) const override { writer.put(steps_); }
  [[nodiscard]] std::function<void()> read_state(ByteReader& reader) override {
    return [this, steps = reader.get<std::int64_t>()] { steps_ = steps; };
  }

  PackedMean mean_;
  std::int64_t period_;
  std::int64_t steps_ = 0;  // since the last average
};

}  // namespace rondo::sync::test
