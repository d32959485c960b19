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

// The reduction of a bucket. The transport posts no more than so much of a long message at once.
MessageCost cost_of(const GradientBucket& bucket, const PlanOptions& options) {
  constexpr double most_posted = 4 * 512.0 * 1024.0;
  MessageCost all = allreduce_cost(bucket.bytes / element_bytes, bucket.ranks, options);
  if (all.rounds == 0.0) return all;
  const double bytes = all.busy / all.rounds * port_bandwidth(options);
  all.rounds *= std::max(1.0, std::ceil(bytes / most_posted));
  return all;
}

// Redistributions that take so long: all their messages are under way together.
MessageCost cost_of_redistribution(const GridJob& job, double seconds) {
  const MessageCost empty = messages_cost({.count = 1}, job.replica(), job.options);
  if (seconds == 0.0 || empty.rounds == 0.0) return {.seconds = seconds};
  return {.seconds = seconds, .busy = std::max(0.0, seconds - empty.seconds), .rounds = 1.0};
}

// A rank's way to other nodes. Messages leave it one behind the other, in the order in which they
// are posted: those of reductions, each of which is posted when the one before has arrived, and
// those of exchanges, for which the rank waits. All ranks do the same at the same time, so what a
// rank awaits arrives when its own message does.
class Port {
 public:
  // A reduction whose data are ready at `now`. It begins when those before it have ended.
  void reduce(double now, const MessageCost& reduction) {
    reductions_.push_back({.ready = now, .steps = steps_of(reduction)});
  }

  // Returns when an exchange that begins at `now` has ended.
  double exchange(double now, const MessageCost& exchange) {
    if (exchange.rounds == 0.0) return now + exchange.seconds;
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

  static Steps steps_of(const MessageCost& cost) {
    const int count = std::max(static_cast<int>(cost.rounds), 1);
    return {.left = count, .busy = cost.busy / count, .behind = (cost.seconds - cost.busy) / count};
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

// When a pass that begins at `now` has ended, and with it the reductions of `buckets`.
double end_of_pass(double now, const GridJob& job, const FoundLayouts& found,
                   std::span<const GradientBucket> buckets) {
  now += found.closing;
  for (const ChosenOption& layer : found.layers) {
    now += layer.redistribution / 2.0 + layer.option.exchange.forward.seconds +
           layer.option.compute.forward;
  }
  Port port;
  auto next = buckets.begin();
  for (std::size_t i = found.layers.size(); i-- > 0;) {
    const ChosenOption& layer = found.layers[i];
    const LayerExchanges& exchange = layer.option.exchange;
    now = port.exchange(now, exchange.dy);
    const double halo = port.exchange(now, exchange.halo_dy);
    now += layer.option.compute.backward_weights;
    if (next != buckets.end() && next->layer == i) {
      port.reduce(now, cost_of(*next, job.options));
      ++next;
    }
    now = std::max(now, halo) + layer.option.compute.backward_data;
    now = port.exchange(now, exchange.dx);
    now = port.exchange(now, cost_of_redistribution(job, layer.redistribution / 2.0));
  }
  return std::max(now, port.finish());
}

}  // namespace

double bucketed_seconds(const GridJob& job, const FoundLayouts& found) {
  const std::vector<GradientBucket> buckets = gradient_buckets(job, found);
  double before_last = 0.0;
  if (job.options.micro_batches > 1) {
    before_last = (passes_of(job.options) - 1.0) * end_of_pass(0.0, job, found, {});
  }
  return end_of_pass(before_last, job, found, buckets);
}

}  // namespace rondo::train
