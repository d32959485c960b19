#include "schemes/lazy_scheme.hpp"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <rondo/transport/world.hpp>

#include "base/byte_reader.hpp"
#include "base/byte_writer.hpp"
#include "base/check_replica.hpp"
#include "base/counters.hpp"
#include "base/tiled_update.hpp"
#include "schemes/check_lazy.hpp"

namespace rondo::sync {
namespace {

constexpr std::string_view lazy_state_name = "lazy";
constexpr std::uint32_t lazy_state_version = 1;

const Replica& checked(const Replica& replica, const LazyOptions& options) {
  check_replica(replica);
  static_cast<void>(checked_lazy_layers(replica, options));
  return replica;
}

std::shared_ptr<Optimizer> checked(const Replica& replica, std::shared_ptr<Optimizer> optimizer) {
  optimizer = checked_optimizer(lazy_state_name, replica, std::move(optimizer));
  check_lazy_optimizer(*optimizer);
  return optimizer;
}

BucketLimits limits_of(const LazyOptions& options) {
  return {options.bucket_bytes, options.lazy_layers == 0 ? options.last_bucket_bytes : 0};
}

}  // namespace

LazyScheme::LazyScheme(Replica replica, std::shared_ptr<Optimizer> optimizer,
                       const LazyOptions& options)
    : replica_(checked(replica, options)),
      optimizer_(checked(replica_, std::move(optimizer))),
      options_(options),
      iteration_(lazy_state_name, replica_.layers),
      buckets_(replica_, options.lazy_layers, limits_of(options)),
      lazy_(replica_, options),
      statistics_mean_(replica_) {}

void LazyScheme::Window::add(const Step& step) {
  ++iterations;
  samples += static_cast<std::int64_t>(step.global_samples);
  last_step = step.index;
  learning_rate = step.learning_rate;
}

// Of one iteration, exactly that of synchronous SGD.
Update LazyScheme::Window::update() const {
  const double scale = static_cast<double>(iterations) / static_cast<double>(samples);
  return {static_cast<float>(scale), learning_rate, last_step};
}

void LazyScheme::begin(const Step& step) {
  iteration_.begin(step);
  buckets_.begin();
  if (options_.lazy_layers == 0) return;
  const bool opens = window_.iterations == 0;
  window_.add(step);
  lazy_.begin({opens, closes()});
}

void LazyScheme::make_ready(std::size_t /*layer*/) {}  // finish() left all parameters ready

// The lazy layers' collectives come after all buckets, on every rank, in whatever order layers
// become final.
void LazyScheme::gradients_final(std::size_t layer) {
  iteration_.layer_final(layer);
  if (layer < options_.lazy_layers) {
    lazy_.layer_final(layer);
  } else {
    buckets_.layer_final(layer, counters_);
  }
  if (buckets_.all_posted()) lazy_.post(counters_);
}

void LazyScheme::finish() {
  iteration_.expect_complete();
  const Step& step = iteration_.step();
  const double scale = 1.0 / static_cast<double>(step.global_samples);
  buckets_.update(*optimizer_, {static_cast<float>(scale), step.learning_rate, step.index});
  const bool closing = closes();
  if (buckets_.reduces() || (closing && lazy_.reduces())) ++counters_.global_reductions;
  const LazyWindow ended = closing ? end_window() : LazyWindow{};
  iteration_.end();
  if (closing && options_.on_window) options_.on_window(ended);
}

LazyWindow LazyScheme::end_window() {
  lazy_.wait();
  const Window window = window_;
  const WindowTests tests = lazy_.test(window.iterations);
  apply_window();
  interval_ = next_interval(options_.controller, tests, interval_, options_.max_interval);
  const bool every = options_.controller == LazyController::every_layer;
  const bool all_angles = tests.angles_passed == tests.probes;
  return {window.last_step, window.iterations, interval_,
          every ? all_angles : tests.last_probe.angle, tests.last_probe.magnitude};
}

/// By sums that are reduced already.
void LazyScheme::apply_window() {
  tiled_update(*replica_.world, *optimizer_, 0, lazy_part(replica_.parameters), lazy_.sums(),
               window_.update());
  if (lazy_.reduces()) ++counters_.lazy_reductions;
  window_ = {};
}

std::span<float> LazyScheme::lazy_part(std::span<float> values) const {
  return values.first(lazy_.sums().size());
}

void LazyScheme::copy_for_evaluation(std::span<float> parameters, std::span<float> statistics) {
  iteration_.expect_between("copy_for_evaluation()");
  expect_copy_of(replica_, lazy_state_name, parameters, statistics);
  std::ranges::copy(replica_.parameters, parameters.begin());
  if (window_.iterations > 0) {
    const std::span<float> sums = lazy_part(replica_.gradients);  // nobody needs them until begin()
    std::ranges::copy(lazy_.sums(), sums.begin());
    lazy_.reduce(sums);
    optimizer_->preview(0, lazy_part(parameters), sums, window_.update());
    if (lazy_.reduces()) ++counters_.evaluation_reductions;
  }
  statistics_mean_.compute(replica_.statistics, statistics);
  if (statistics_mean_.reduces()) ++counters_.evaluation_reductions;
}

void LazyScheme::flush() {
  iteration_.expect_between("flush()");
  if (window_.iterations == 0) return;
  lazy_.reduce(lazy_.sums(), counters_);
  if (lazy_.reduces()) ++counters_.global_reductions;
  apply_window();
}

std::vector<std::span<const float>> LazyScheme::replicated() const { return {replica_.parameters}; }

std::vector<std::byte> LazyScheme::save() const {
  iteration_.expect_between("save()");
  ByteWriter writer(lazy_state_name, lazy_state_version);
  write(writer, counters_);
  writer.put(interval_);
  writer.put(window_.iterations);
  writer.put(window_.samples);
  writer.put(window_.last_step);
  writer.put(window_.learning_rate);
  writer.put(static_cast<std::uint64_t>(lazy_.sums().size()));
  if (window_.iterations > 0) writer.put_array(lazy_.sums());
  writer.put_array(std::span<const std::byte>(optimizer_->save()));
  return writer.take();
}

void LazyScheme::restore(std::span<const std::byte> state) {
  iteration_.expect_between("restore()");
  ByteReader reader(state, lazy_state_name, lazy_state_version);
  const SchemeCounters counters = read_counters(reader);
  const auto interval = reader.get<std::int64_t>();
  Window window;
  window.iterations = reader.get<std::int64_t>();
  window.samples = reader.get<std::int64_t>();
  window.last_step = reader.get<std::int64_t>();
  window.learning_rate = reader.get<double>();
  if (interval < 1 || window.iterations < 0 || window.iterations >= interval ||
      (window.iterations > 0 && window.samples < 1)) {
    throw std::invalid_argument("state of lazy: it holds a window that cannot be");
  }
  if (reader.get<std::uint64_t>() != lazy_.sums().size()) {
    throw std::invalid_argument("state of lazy: other layers are lazy there");
  }
  std::vector<float> sums(window.iterations > 0 ? lazy_.sums().size() : 0);
  if (window.iterations > 0) reader.get_array(std::span(sums));
  const std::span<const std::byte> optimizer_state = reader.get_bytes();
  reader.expect_end();
  optimizer_->restore(optimizer_state);
  std::ranges::copy(sums, lazy_.sums().begin());
  interval_ = interval;
  window_ = window;
  counters_ = counters;
}

SchemeCounters LazyScheme::counters() const noexcept { return counters_; }

std::unique_ptr<UpdateScheme> make_lazy(Replica replica, std::shared_ptr<Optimizer> optimizer,
                                        const LazyOptions& options) {
  return std::make_unique<LazyScheme>(std::move(replica), std::move(optimizer), options);
}

}  // namespace rondo::sync
