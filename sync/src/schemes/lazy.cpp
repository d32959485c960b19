// Lazy update: the layers of the input side are reduced once in a window of several iterations.
//
// Gradients of the lazy layers are summed on this rank until the window's last iteration. Then two
// sums travel: f, the last gradients of the probes alone, and G, the sums of all lazy layers. Both
// are posted after all buckets of the other layers, on every rank, in whatever order layers become
// final: collectives match by their order. f and G decide how long the next window is.

#include <rondo/sync/lazy.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/scheme_base.hpp>
#include <rondo/transport/world.hpp>

#include "base/reductions.hpp"
#include "schemes/lazy_controller.hpp"

namespace rondo::sync {

// Both are true of gradients that agree. A comparison with NaN is false.
ProbeTests test_probe(const ProbeProducts& products, std::int64_t iterations) {
  return {products.last_sum - products.last_last >= 0.0,
          static_cast<double>(iterations) * products.last_last <= products.sum_sum};
}

// The paper's rule, or the majority of all probes; within the cap in any case.
std::int64_t next_interval(LazyController controller, const WindowTests& tests,
                           std::int64_t interval, std::int64_t max_interval) {
  bool grow = tests.last_probe.angle && tests.last_probe.magnitude;
  bool shrink = !tests.last_probe.angle && !tests.last_probe.magnitude;
  if (controller == LazyController::every_layer) {
    grow = tests.angles_passed == tests.probes;
    shrink = 2 * (tests.probes - tests.angles_passed) > tests.probes;
  }
  if (grow) ++interval;
  if (shrink) --interval;
  interval = std::max<std::int64_t>(interval, 1);
  return max_interval == 0 ? interval : std::min(interval, max_interval);
}

namespace {

constexpr std::size_t products_of_probe = 3;

[[noreturn]] void refuse_lazy(const std::string& reason) {
  throw std::invalid_argument("lazy: " + reason);
}

/// The probes that the controller looks at.
std::span<const Probe> probes_of(const LazyOptions& options) {
  const std::span<const Probe> all = options.probes;
  return options.controller == LazyController::probe && !all.empty() ? all.last(1) : all;
}

/// The layer that `probe` lies within. Only at a layer's beginning a probe may be empty.
std::size_t layer_of(std::span<const Layer> layers, const Probe& probe) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::size_t end = layers[i].offset + layers[i].size;
    const bool begins_within = probe.offset >= layers[i].offset && probe.offset < end;
    const bool fits = begins_within && probe.size > 0 && probe.size <= end - probe.offset;
    if (fits || (probe.size == 0 && probe.offset == layers[i].offset)) return i;
  }
  refuse_lazy("the probe of " + std::to_string(probe.size) + " values at " +
              std::to_string(probe.offset) + " lies within no lazy layer");
}

/// Only of a layer in slices a probe may be empty.
void check_probes(std::span<const Layer> layers, std::span<const Probe> probes, bool in_slices) {
  std::size_t end = 0;
  for (const Probe& probe : probes) {
    static_cast<void>(layer_of(layers, probe));
    const std::string name = "the probe at " + std::to_string(probe.offset);
    if (probe.size == 0 && !in_slices) refuse_lazy(name + " is empty");
    if (probe.offset < end) {
      refuse_lazy(name + " overlaps the one before it, or is out of order");
    }
    end = probe.offset + probe.size;
  }
}

/// The gradients of the lazy layers: summed over a window on this rank, then over the ranks.
///
/// Per iteration: begin(); layer_final() for every lazy layer; post(), as often as one likes; and
/// wait() if the iteration closes the window.
class LazyGradients {
 public:
  /// Which part an iteration plays in its window.
  struct Role {
    bool opens = false;
    bool closes = false;
  };

  /// `replica` is lent; `layers` are those of it that are lazy; `type` is what is sent.
  LazyGradients(const Replica& replica, std::span<const Layer> layers,
                std::span<const Probe> probes, transport::ElementType type)
      : replica_(replica),
        layers_(layers),
        sums_(layers.empty() ? 0 : layers.back().offset + layers.back().size, nullptr,
              &replica.world->arena()),
        last_(&replica.world->arena()),
        model_sums_(replica, products_of_probe * probes.size()),
        copies_(replica, Copies::Kind::summed_apart) {
    for (const Layer& layer : layers_) sums_reduction_.append(*layer.groups.slice, layer.size);
    watch(probes);
    for (SliceAllreduce* reduction : {&last_reduction_, &sums_reduction_}) {
      reduction->send_as(type, &replica.world->arena());
    }
    products_.resize(products_of_probe * watched_.size(), 0.0);
  }

  void begin(Role role) {
    role_ = role;
    missing_ = layers_.size();
    watched_missing_ = watched_layers_;
    last_posted_ = role.opens;  // the sums are the last gradients then
    sums_posted_ = false;
  }

  void layer_final(std::size_t layer);

  /// Posts what can be: the probes, then the sums. Counts it.
  void post(SchemeCounters& counters);

  void wait() {
    last_reduction_.wait();
    sums_reduction_.wait();
    copies_.make_equal(sums());
  }

  /// After wait(): what the probes say about a window of so many iterations. Collective over the
  /// ranks of a replica that holds its layers in slices.
  [[nodiscard]] WindowTests test(std::int64_t iterations);

  /// Sums of the window: of this rank, and after wait() or reduce() of all.
  [[nodiscard]] std::span<float> sums() noexcept { return sums_.values(); }
  [[nodiscard]] std::span<const float> sums() const noexcept { return sums_.values(); }

  /// Sums `values`, as many as sums(), over the ranks, now; counts it if there are `counters`.
  void reduce(std::span<float> values, SchemeCounters* counters = nullptr) {
    sums_reduction_.post(values, counters);
    sums_reduction_.wait();
    copies_.make_equal(values);
  }

  /// Is anything reduced with another rank?
  [[nodiscard]] bool reduces() const noexcept { return sums_reduction_.reduces(); }

 private:
  /// A probe that the controller looks at.
  struct Watched {
    std::size_t layer;
    std::size_t offset;  ///< in the flat arrays
    std::size_t size;
    std::size_t last_offset;  ///< in last_
  };

  void watch(std::span<const Probe> probes);
  void copy_probes(std::size_t layer);
  void measure();

  const Replica& replica_;
  std::span<const Layer> layers_;
  std::vector<Watched> watched_;
  std::size_t watched_layers_ = 0;
  GradientSum sums_;              // in the arena, as last_
  std::pmr::vector<float> last_;  // the watched probes' last gradients, packed
  Role role_;
  std::size_t missing_ = 0;          // layers
  std::size_t watched_missing_ = 0;  // of them, those of watched probes
  bool last_posted_ = false;
  bool sums_posted_ = false;
  SliceAllreduce last_reduction_;
  SliceAllreduce sums_reduction_;
  ModelSums model_sums_;
  Copies copies_;
  std::vector<double> products_;  // what the tests look at, of every watched probe
};

void LazyGradients::watch(std::span<const Probe> probes) {
  std::size_t end = 0;
  for (const Probe& probe : probes) {
    const std::size_t layer = layer_of(layers_, probe);
    if (watched_.empty() || watched_.back().layer != layer) ++watched_layers_;
    watched_.push_back({layer, probe.offset, probe.size, end});
    last_reduction_.append(*layers_[layer].groups.slice, probe.size);
    end += probe.size;
  }
  last_.resize(end, 0.0F);
}

// The window's first gradients replace the sums of the window before.
void LazyGradients::layer_final(std::size_t layer) {
  const std::size_t offset = layers_[layer].offset;
  const auto gradients = replica_.gradients.subspan(offset, layers_[layer].size);
  if (role_.opens) {
    sums_.set(offset, gradients);
  } else {
    sums_.add(offset, gradients);
  }
  --missing_;
  if (role_.closes && !role_.opens) copy_probes(layer);
}

// f is the probes' own last gradients; their sum goes on in sums_.
void LazyGradients::copy_probes(std::size_t layer) {
  bool watched = false;
  for (const Watched& probe : watched_) {
    if (probe.layer != layer) continue;
    watched = true;
    std::ranges::copy(replica_.gradients.subspan(probe.offset, probe.size),
                      std::span(last_).subspan(probe.last_offset).begin());
  }
  if (watched) --watched_missing_;
}

// In a window of one iteration the sums are the last gradients: one reduction does.
void LazyGradients::post(SchemeCounters& counters) {
  if (!role_.closes || !reduces()) return;
  if (!last_posted_ && watched_missing_ == 0) {
    last_reduction_.post(last_, &counters);
    last_posted_ = true;
  }
  if (!sums_posted_ && missing_ == 0) {
    sums_reduction_.post(sums(), &counters);
    sums_posted_ = true;
  }
}

WindowTests LazyGradients::test(std::int64_t iterations) {
  WindowTests tests{{}, watched_.size(), watched_.size()};
  if (iterations == 1) return tests;  // f is G
  measure();
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const double* products = &products_[products_of_probe * i];
    tests.last_probe = test_probe({products[0], products[1], products[2]}, iterations);
    if (!tests.last_probe.angle) --tests.angles_passed;
  }
  return tests;
}

// In the order of ProbeProducts; of all probes at once, because the ranks of a replica may have to
// communicate for it.
void LazyGradients::measure() {
  auto next = products_.begin();
  for (const Watched& probe : watched_) {
    const auto last = std::span<const float>(last_).subspan(probe.last_offset, probe.size);
    const auto sum = std::as_const(*this).sums().subspan(probe.offset, probe.size);
    *next++ = model_sums_.own_dot(last, sum, probe.offset);
    *next++ = model_sums_.own_dot(last, last, probe.offset);
    *next++ = model_sums_.own_dot(sum, sum, probe.offset);
  }
  model_sums_.add_up(products_);
}

class LazyScheme final : public SchemeBase {
 public:
  LazyScheme(Replica given, std::shared_ptr<Optimizer> optimizer, const LazyOptions& options)
      : SchemeBase(lazy_scheme, std::move(given), std::move(optimizer)),
        options_(options),
        lazy_(replica(), checked_layers(), probes_of(options_), options.gradient_type),
        buckets_(replica(), options.lazy_layers,
                 {options.bucket_bytes, options.lazy_layers == 0 ? options.last_bucket_bytes : 0},
                 options.gradient_type) {
    if (!this->optimizer().ignores_scale()) return;
    refuse(
        "this optimizer ignores the scale of gradients, so that the sum over a window would do no "
        "more than one iteration's gradient; use SGD, with or without momentum");
  }

 private:
  /// The iterations whose gradients the lazy layers have not been updated by.
  struct Window {
    std::int64_t iterations = 0;
    std::int64_t samples = 0;    ///< on all ranks
    std::int64_t last_step = 0;  ///< and its learning rate
    double learning_rate = 0.0;

    void add(const Step& step) {
      ++iterations;
      samples += static_cast<std::int64_t>(step.global_samples);
      last_step = step.index;
      learning_rate = step.learning_rate;
    }

    /// One of `updates` updates by the sum of its gradients; of one iteration, exactly that of
    /// synchronous SGD.
    [[nodiscard]] Update update(std::int64_t updates, std::int64_t optimizer_start) const {
      const double share = static_cast<double>(iterations) / static_cast<double>(updates);
      return {static_cast<float>(share / static_cast<double>(samples)), learning_rate,
              last_step - optimizer_start};
    }
  };

  void begin_iteration() override;
  void layer_final(std::size_t layer) override;
  void end_iteration() override;
  void evaluate(std::span<float> parameters, std::span<float> statistics) override;
  void apply_pending() override;
  void write_state(ByteWriter& writer) const override;
  [[nodiscard]] std::function<void()> read_state(ByteReader& reader) override;

  [[nodiscard]] std::span<const Layer> checked_layers() const;
  [[nodiscard]] std::int64_t longest_window() const noexcept;
  [[nodiscard]] bool closes() const noexcept {
    return window_.iterations > 0 && window_.iterations == interval_;
  }
  [[nodiscard]] std::int64_t updates() const noexcept {
    return options_.updates_per_iteration ? window_.iterations : 1;
  }
  [[nodiscard]] std::span<float> lazy_part(std::span<float> values) const {
    return values.first(lazy_.sums().size());
  }
  LazyWindow end_window();
  void apply_window();

  LazyOptions options_;
  LazyGradients lazy_;
  BucketReduction buckets_;  // of the layers that are not lazy
  std::int64_t interval_ = 1;
  Window window_;
};

std::span<const Layer> LazyScheme::checked_layers() const {
  const std::size_t count = options_.lazy_layers;
  if (count > replica().layers.size()) {
    refuse(std::to_string(count) + " layers cannot be lazy, there are " +
           std::to_string(replica().layers.size()));
  }
  if (options_.max_interval < 0) refuse("max_interval is negative; 0 means no cap");
  if (!(options_.max_interval_rate >= 0.0)) {
    refuse("max_interval_rate is negative or NaN; 0 means no cap");
  }
  const auto layers = std::span<const Layer>(replica().layers).first(count);
  const bool in_slices = replica().slices.over != nullptr;
  if (!in_slices) expect_whole_layers({}, layers);
  check_probes(layers, options_.probes, in_slices);
  if (!layers.empty() && options_.probes.empty()) {
    refuse("no probe was given; the interval is chosen by the weights of a lazy layer");
  }
  return layers;
}

void LazyScheme::begin_iteration() {
  buckets_.begin();
  if (options_.lazy_layers == 0) return;
  const bool opens = window_.iterations == 0;
  window_.add(step());
  lazy_.begin({opens, closes()});
}

// The lazy layers' collectives follow all buckets, on every rank alike.
void LazyScheme::layer_final(std::size_t layer) {
  if (layer < options_.lazy_layers) {
    lazy_.layer_final(layer);
  } else {
    buckets_.layer_final(layer, counted());
  }
  if (buckets_.all_posted()) lazy_.post(counted());
}

// The layers that are not lazy are updated in every iteration, as by synchronous SGD.
void LazyScheme::end_iteration() {
  const double scale = 1.0 / static_cast<double>(step().global_samples);
  buckets_.update(optimizer(), {static_cast<float>(scale), step().learning_rate, step().updates()});
  const bool closing = closes();
  if (buckets_.reduces() || (closing && lazy_.reduces())) ++counted().global_reductions;
  if (!closing) return;
  const LazyWindow ended = end_window();
  if (options_.on_window) options_.on_window(ended);
}

// At the rate of this iteration; 0 is no cap.
std::int64_t LazyScheme::longest_window() const noexcept {
  if (options_.max_interval_rate == 0.0) return options_.max_interval;
  constexpr double most = std::numeric_limits<std::int32_t>::max();
  // 0.3 / 0.1 is a little less than 3.
  const double iterations =
      std::floor(options_.max_interval_rate / step().learning_rate * (1.0 + 1e-12));
  const auto by_rate = static_cast<std::int64_t>(std::clamp(iterations, 1.0, most));
  return options_.max_interval == 0 ? by_rate : std::min(options_.max_interval, by_rate);
}

// The update comes first: the tests only decide how long the next window is.
LazyWindow LazyScheme::end_window() {
  lazy_.wait();
  const Window window = window_;
  const WindowTests tests = lazy_.test(window.iterations);
  apply_window();
  interval_ = next_interval(options_.controller, tests, interval_, longest_window());
  const bool every = options_.controller == LazyController::every_layer;
  const bool all_angles = tests.angles_passed == tests.probes;
  return {window.last_step, window.iterations, interval_,
          every ? all_angles : tests.last_probe.angle, tests.last_probe.magnitude};
}

/// By sums that are reduced already.
void LazyScheme::apply_window() {
  for (std::int64_t i = 0; i < updates(); ++i) {
    tiled_update(*replica().world, optimizer(), 0, lazy_part(replica().parameters), lazy_.sums(),
                 window_.update(updates(), step().optimizer_start));
  }
  if (lazy_.reduces()) ++counted().lazy_reductions;
  window_ = {};
}

// An open window is applied to the copy. Its sums are reduced in the gradient array, which is
// free until begin(): the window itself goes on.
void LazyScheme::evaluate(std::span<float> parameters, std::span<float> statistics) {
  std::ranges::copy(replica().parameters, parameters.begin());
  if (window_.iterations > 0) {
    const std::span<float> sums = lazy_part(replica().gradients);
    std::ranges::copy(lazy_.sums(), sums.begin());
    lazy_.reduce(sums);
    optimizer().preview(0, lazy_part(parameters), sums,
                        window_.update(updates(), step().optimizer_start), updates());
    if (lazy_.reduces()) ++counted().evaluation_reductions;
  }
  if (average_statistics(statistics)) ++counted().evaluation_reductions;
}

// The window so far becomes one update; tau stays what it is.
void LazyScheme::apply_pending() {
  if (window_.iterations == 0) return;
  lazy_.reduce(lazy_.sums(), &counted());
  if (lazy_.reduces()) ++counted().global_reductions;
  apply_window();
}

void LazyScheme::write_state(ByteWriter& writer) const {
  writer.put(interval_);
  writer.put(window_.iterations);
  writer.put(window_.samples);
  writer.put(window_.last_step);
  writer.put(window_.learning_rate);
  writer.put(static_cast<std::uint64_t>(lazy_.sums().size()));
  if (window_.iterations > 0) writer.put_array(lazy_.sums());
}

// A state of other lazy layers is refused: their sums would not fit.
std::function<void()> LazyScheme::read_state(ByteReader& reader) {
  const auto interval = reader.get<std::int64_t>();
  Window window;
  window.iterations = reader.get<std::int64_t>();
  window.samples = reader.get<std::int64_t>();
  window.last_step = reader.get<std::int64_t>();
  window.learning_rate = reader.get<double>();
  if (interval < 1 || window.iterations < 0 || window.iterations >= interval ||
      (window.iterations > 0 && window.samples < 1)) {
    reader.fail("it holds a window that cannot be");
  }
  if (reader.get<std::uint64_t>() != lazy_.sums().size()) {
    reader.fail("other layers are lazy there");
  }
  std::vector<float> sums(window.iterations > 0 ? lazy_.sums().size() : 0);
  if (window.iterations > 0) reader.get_array(std::span(sums));
  return [this, interval, window, sums = std::move(sums)] {
    std::ranges::copy(sums, lazy_.sums().begin());
    interval_ = interval;
    window_ = window;
  };
}

void check_times(std::span<const double> values) {
  if (std::ranges::all_of(values, [](double value) { return value >= 0.0; })) return;
  refuse_lazy("a measured time is negative or not a number");
}

}  // namespace

std::unique_ptr<UpdateScheme> make_lazy(Replica replica, std::shared_ptr<Optimizer> optimizer,
                                        const LazyOptions& options) {
  return std::make_unique<LazyScheme>(std::move(replica), std::move(optimizer), options);
}

// Plays the reductions one after another, from the output side. Backward ends at time 0.
std::size_t count_unhidden_layers(std::span<const double> backward_left,
                                  std::span<const double> reduction) {
  if (backward_left.size() != reduction.size()) {
    refuse_lazy(std::to_string(backward_left.size()) + " backward times, but " +
                std::to_string(reduction.size()) + " reduction times");
  }
  check_times(backward_left);
  check_times(reduction);
  double end = -std::numeric_limits<double>::infinity();  // of the last reduction
  for (std::size_t layer = backward_left.size(); layer-- > 0;) {
    end = std::max(end, -backward_left[layer]) + reduction[layer];
    if (end > 0.0) return layer + 1;
  }
  return 0;
}

}  // namespace rondo::sync
