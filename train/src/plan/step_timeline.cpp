// A step's layers one after another, forward and back, beside its reductions, in the buckets of the
// runtime, from the output side on. The exchanges of layers in backward and the reductions leave a
// rank by the same port, one message behind the other. The last of several micro-batches reduces.

#include "plan/step_timeline.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <limits>
#include <span>
#include <vector>

#include <rondo/sync/buckets.hpp>

#include "plan/closed_forms.hpp"
#include "plan/layer_costs.hpp"

namespace rondo::train {
namespace {

// The weight gradients of a layer.
struct Gradients {
  std::size_t layer = 0;
  double elements = 0.0;
  double sent = 0.0;  // elements of fp32 that are as long as what is sent
  ProcessGroup ranks = {};
};

// In the order of forward.
std::vector<Gradients> gradients_of(const GridJob& job, const FoundLayouts& found) {
  std::vector<Gradients> all;
  for (std::size_t i = 0; i < found.layers.size(); ++i) {
    const JobLayer layer = layer_of(job, i);
    if (!layer.has_split()) continue;
    const LayerSplit& split = found.layers[i].option.split;
    all.push_back({.layer = i,
                   .elements = weights_of_rank(job, layer, split),
                   .sent = reduced_elements(job, layer, split),
                   .ranks = reduced_over(job, split)});
  }
  return all;
}

// A group is the number of the first layer that is reduced over the same ranks.
int group_of(const ProcessGroup& ranks, const std::vector<Gradients>& all) {
  const auto first = std::ranges::find_if(all, [&](const Gradients& each) {
    return each.ranks.size == ranks.size && each.ranks.stride == ranks.stride;
  });
  return static_cast<int>(first - all.begin());
}

}  // namespace

std::vector<GradientBucket> gradient_buckets(const GridJob& job, const FoundLayouts& found) {
  const std::vector<Gradients> gradients = gradients_of(job, found);
  std::vector<sync::LayerGradients> layers;
  for (const Gradients& layer : gradients) {
    layers.push_back({.elements = static_cast<std::size_t>(std::llround(layer.elements)),
                      .group = group_of(layer.ranks, gradients)});
  }
  const auto limits = sync::BucketLimits::of(static_cast<std::size_t>(job.options.bucket_bytes));
  std::vector<GradientBucket> buckets;
  for (const auto& [first, last] : sync::plan_buckets(layers, limits)) {
    buckets.push_back({.layer = gradients[first].layer, .ranks = gradients[first].ranks});
    for (std::size_t i = first; i < last; ++i) {
      buckets.back().bytes += element_bytes * gradients[i].sent;
    }
  }
  return buckets;
}

namespace {

// The messages of a rank in one exchange or reduction.
struct Sending {
  double seconds = 0.0;  // until all has arrived, where the port has nothing else to send
  double busy = 0.0;     // seconds of these in which the port is busy
  int messages = 0;      // to other nodes, each of which waits for the one before
};

// The messages of a layer in backward.
struct LayerSendings {
  Sending dy = {};
  Sending halo_dy = {};
  Sending dx = {};
};

// The planner's formulas say how long something takes. How long the port is busy meanwhile they say
// where nothing but bytes between nodes costs any time; and how many messages there are, where
// nothing but these costs any, a second each.
class SendingCosts {
 public:
  explicit SendingCosts(const GridJob& job)
      : job_(job),
        by_bytes_(only_bytes_between_nodes(job.options)),
        by_messages_(job.options),
        bytes_job_{job.model, by_bytes_, job.grid, job.shapes},
        messages_job_{job.model, by_messages_, job.grid, job.shapes} {
    constexpr double unlimited = std::numeric_limits<double>::infinity();
    by_messages_.node = by_bytes_.node;
    by_messages_.fabric = {.alpha_seconds = 1.0, .bandwidth = unlimited};
    by_messages_.port_bandwidth = 0.0;
  }
  SendingCosts(const SendingCosts&) = delete;
  SendingCosts& operator=(const SendingCosts&) = delete;

  // The transport posts no more than so much of a long message at once.
  [[nodiscard]] Sending of(const GradientBucket& bucket) const {
    constexpr double most_posted = 4 * 512.0 * 1024.0;
    const double elements = bucket.bytes / element_bytes;
    const auto seconds_of = [&](const PlanOptions& options) {
      return allreduce_seconds(elements, bucket.ranks, options);
    };
    Sending all{.seconds = seconds_of(job_.options),
                .busy = seconds_of(by_bytes_),
                .messages = rounded(seconds_of(by_messages_))};
    if (all.messages == 0) return all;
    all.busy /= with_adding(elements, bucket.ranks, job_.options);
    const double bytes = all.busy / all.messages * port_bandwidth(job_.options);
    all.messages *= std::max(1, static_cast<int>(std::ceil(bytes / most_posted)));
    return all;
  }

  [[nodiscard]] LayerSendings of(std::size_t index, const LayerOption& option) const {
    const ExchangeSeconds& seconds = option.exchange;
    if (seconds.total() == 0.0) return {};
    const JobLayer layer = layer_of(job_, index);
    const ExchangeSeconds busy = exchange_seconds(bytes_job_, layer, option.split);
    const ExchangeSeconds count = exchange_seconds(messages_job_, layer, option.split);
    return {.dy = {seconds.dy, busy.dy, rounded(count.dy)},
            .halo_dy = {seconds.halo_dy, busy.halo_dy, rounded(count.halo_dy)},
            .dx = {seconds.dx, busy.dx, rounded(count.dx)}};
  }

  // The messages of a redistribution that takes so long: all are under way together.
  [[nodiscard]] Sending of_redistribution(double seconds) const {
    constexpr Messages empty{.count = 1};
    const double latency = messages_seconds(empty, job_.replica(), job_.options);
    const bool leaves_node = messages_seconds(empty, job_.replica(), by_messages_) > 0.0;
    if (seconds == 0.0 || !leaves_node) return {.seconds = seconds};
    return {.seconds = seconds, .busy = std::max(0.0, seconds - latency), .messages = 1};
  }

 private:
  static int rounded(double messages) { return static_cast<int>(std::lround(messages)); }

  const GridJob& job_;
  PlanOptions by_bytes_;
  PlanOptions by_messages_;
  GridJob bytes_job_;
  GridJob messages_job_;
};

// A rank's way to other nodes. Messages leave it one behind the other, in the order in which they
// are posted: those of reductions, each of which is posted when the one before has arrived, and
// those of exchanges, for which the rank waits. All ranks do the same at the same time, so what a
// rank awaits arrives when its own message does.
class Port {
 public:
  // A reduction whose data are ready at `now`. It begins when those before it have ended.
  void reduce(double now, const Sending& reduction) {
    reductions_.push_back({.ready = now, .steps = steps_of(reduction)});
  }

  // Returns when an exchange that begins at `now` has ended.
  double exchange(double now, const Sending& exchange) {
    if (exchange.messages == 0) return now + exchange.seconds;
    const Steps steps = steps_of(exchange);
    for (int i = 0; i < steps.left; ++i) {
      post_reductions(now);
      now = pass(now, steps);
    }
    return now;
  }

  // Returns when all reductions have ended.
  double finish() {
    post_reductions(std::numeric_limits<double>::infinity());
    return reduced_;
  }

 private:
  // Equal steps. In each the port is busy first, and then something else goes on.
  struct Steps {
    int left = 1;
    double busy = 0.0;
    double behind = 0.0;
  };
  struct Reduction {
    double ready = 0.0;
    Steps steps = {};
  };

  static Steps steps_of(const Sending& sending) {
    const int count = std::max(sending.messages, 1);
    return {.left = count,
            .busy = sending.busy / count,
            .behind = (sending.seconds - sending.busy) / count};
  }

  double pass(double now, const Steps& steps) {
    free_ = std::max(free_, now) + steps.busy;
    return free_ + steps.behind;
  }

  // Posts the messages of reductions up to `now`.
  void post_reductions(double now) {
    while (!reductions_.empty()) {
      auto& [ready, steps] = reductions_.front();
      const double posted = std::max(reduced_, ready);
      if (posted > now) return;
      reduced_ = pass(posted, steps);
      if (--steps.left == 0) reductions_.pop_front();
    }
  }

  std::deque<Reduction> reductions_;
  double free_ = 0.0;     // when all that was posted so far has left the port
  double reduced_ = 0.0;  // when the last message of reductions has arrived
};

}  // namespace

namespace {

// When a pass that begins at `now` has ended, and with it the reductions of `buckets`.
double end_of_pass(double now, const FoundLayouts& found, const SendingCosts& costs,
                   std::span<const GradientBucket> buckets) {
  now += found.closing;
  for (const ChosenOption& layer : found.layers) {
    now +=
        layer.redistribution / 2.0 + layer.option.exchange.forward + layer.option.compute.forward;
  }
  Port port;
  auto next = buckets.begin();
  for (std::size_t i = found.layers.size(); i-- > 0;) {
    const ChosenOption& layer = found.layers[i];
    const WorkSeconds& compute = layer.option.compute;
    const LayerSendings exchanges = costs.of(i, layer.option);
    now = port.exchange(now, exchanges.dy);
    const double halo = port.exchange(now, exchanges.halo_dy);
    now += compute.backward_weights;
    if (next != buckets.end() && next->layer == i) {
      port.reduce(now, costs.of(*next));
      ++next;
    }
    now = std::max(now, halo) + compute.backward_data;
    now = port.exchange(now, exchanges.dx);
    now = port.exchange(now, costs.of_redistribution(layer.redistribution / 2.0));
  }
  return std::max(now, port.finish());
}

}  // namespace

double bucketed_seconds(const GridJob& job, const FoundLayouts& found) {
  const SendingCosts costs(job);
  const std::vector<GradientBucket> buckets = gradient_buckets(job, found);
  double before_last = 0.0;
  if (job.options.micro_batches > 1) {
    before_last = (passes_of(job.options) - 1.0) * end_of_pass(0.0, found, costs, {});
  }
  return end_of_pass(before_last, found, costs, buckets);
}

}  // namespace rondo::train
