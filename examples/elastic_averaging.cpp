// An update scheme in a library of its own: elastic averaging (Zhang, Choromanska, LeCun, NIPS
// 2015). Ranks step by themselves; after every few steps each is pulled towards a common center,
// and the center towards the ranks.
//
//   rondo train -n 2 --set update.plugin=build/examples/libelastic_averaging.so
//     --set 'update.plugin_settings={period = 8, pull = 0.5}' examples/synthetic-lenet5.toml

#include <algorithm>

#include <rondo/sync/scheme_base.hpp>
#include <rondo/sync/scheme_plugin.hpp>
#include <rondo/transport/communicator.hpp>

using namespace rondo::sync;

class ElasticAveraging final : public SchemeBase {
 public:
  ElasticAveraging(const Replica& given, const std::shared_ptr<Optimizer>& optimizer,
                   const SchemeSettings& settings)
      : SchemeBase({.name = "elastic_averaging", .exchange = Exchange::parameters}, given,
                   optimizer),
        period_(static_cast<int>(settings.number("period", 8))),
        pull_(static_cast<float>(settings.number("pull", 0.5))),
        center_(replica().parameters.begin(), replica().parameters.end()),
        mean_(replica()) {
    if (period_ < 1) refuse("period must be at least 1");
  }
  [[nodiscard]] std::vector<std::span<const float>> replicated() const override {
    return {center_};
  }

 private:
  void end_iteration() override {
    const auto samples = static_cast<float>(std::max<std::size_t>(step().local_samples, 1));
    optimizer().update(0, replica().parameters, replica().gradients,
                       {1.0F / samples, step().learning_rate, step().updates()});
    if (++steps_ % period_ == 0) meet();
  }
  void meet() {
    mean_.pack(center_, {}, 1.0F);  // of w - center
    if (outer().size() > 1) mean_.reduce(outer());
    counted().global_reductions += outer().size() > 1 ? 1 : 0;
    counted().global_bytes += outer().size() > 1 ? mean_.bytes() : 0;
    for (std::size_t i = 0; i < center_.size(); ++i) {
      float& w = replica().parameters[i];
      w -= pull_ * (w - center_[i]);
      center_[i] += pull_ * mean_.displacement()[i];
    }
  }
  void apply_pending() override { std::ranges::copy(center_, replica().parameters.begin()); }
  void evaluate(std::span<float> parameters, std::span<float> statistics) override {
    std::ranges::copy(center_, parameters.begin());
    average_statistics(statistics);
  }
  void write_state(ByteWriter& writer) const override {
    writer.put(steps_);
    writer.put_array(std::span<const float>(center_));
  }
  [[nodiscard]] std::function<void()> read_state(ByteReader& reader) override {
    const int steps = reader.get<int>();
    std::vector<float> center(center_.size());
    reader.get_array(std::span(center));
    return [this, steps, center] { steps_ = steps, center_ = center; };
  }

  int period_;
  float pull_;
  std::vector<float> center_;
  PackedMean mean_;
  int steps_ = 0;
};

const SchemePlugin rondo_scheme_plugin{
    .make = [](const Replica& replica, const std::shared_ptr<Optimizer>& optimizer,
               const SchemeSettings& settings) -> std::unique_ptr<UpdateScheme> {
      return std::make_unique<ElasticAveraging>(replica, optimizer, settings);
    }};
