// An update scheme of one's own: each rank steps by itself, and after every few steps all take the
// mean of their parameters.
//
//   rondo run -n 2 -- own_scheme

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <rondo/sync/scheme_base.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

using namespace rondo;

class MeanOfSteps final : public sync::SchemeBase {
 public:
  MeanOfSteps(const sync::Replica& given, std::shared_ptr<sync::Optimizer> optimizer)
      : SchemeBase({.name = "mean_of_steps", .exchange = sync::Exchange::parameters}, given,
                   std::move(optimizer)) {}
  [[nodiscard]] std::vector<std::span<const float>> replicated() const override { return {}; }

 private:
  void end_iteration() override {
    const auto samples = static_cast<float>(std::max<std::size_t>(step().local_samples, 1));
    optimizer().update(0, replica().parameters, replica().gradients,
                       {1.0F / samples, step().learning_rate, step().updates()});
    if (++steps_ % 4 == 0) average(replica().parameters, counted().global_reductions);
  }
  void apply_pending() override { average(replica().parameters, counted().global_reductions); }
  void evaluate(std::span<float> parameters, std::span<float> statistics) override {
    std::ranges::copy(replica().parameters, parameters.begin());
    average(parameters, counted().evaluation_reductions);
    average_statistics(statistics);
  }
  void average(std::span<float> values, std::uint64_t& reductions) {
    if (outer().size() == 1) return;
    outer().allreduce(values, transport::ReduceOp::avg).wait();
    ++reductions;
  }
  void write_state(sync::ByteWriter& writer) const override { writer.put(steps_); }
  [[nodiscard]] std::function<void()> read_state(sync::ByteReader& reader) override {
    return [this, steps = reader.get<int>()] { steps_ = steps; };
  }

  int steps_ = 0;
};

int main() {
  auto world = transport::World::attach();
  const train::Experiment experiment = train::parse_experiment(
      "[data]\nname = 'synthetic'\ntraining = 2000\n[model]\nname = 'lenet5'\n[train]\nepochs = 4\n"
      "[optimizer]\nlearning_rate = 0.05\n",
      "own_scheme");
  const train::MakeScheme make = [](const auto& replica, const auto& optimizer) {
    return std::make_unique<MeanOfSteps>(replica, optimizer);
  };
  const auto metrics = train::train(world, experiment, {.make_scheme = make});
  if (world.rank() == 0) std::printf("accuracy %.1f %%\n", metrics.accuracy);
  return metrics.accuracy > 30.0 ? 0 : 1;
}
