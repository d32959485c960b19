// What happens after a mini-batch: is the token here, and what does the worker do with it?

#include <algorithm>
#include <stdexcept>
#include <string>

#include "flat/clip.hpp"
#include "flat/flat.hpp"
#include "schemes/cyclic_scheme.hpp"

namespace rondo::sync {

// Gradients are sums over this worker's samples. Each sample enters the sum as it would enter a
// synchronous step; what a push weighs is decided when it is made.
void CyclicScheme::accumulate() {
  const Step& step = iteration_.step();
  const auto factor = static_cast<float>(1.0 / static_cast<double>(step.global_samples));
  if (pending_.minibatches == 0) {
    flat::scale(pending_.sum, factor, replica_.gradients);
  } else {
    flat::add_scaled(pending_.sum, factor, replica_.gradients);
  }
  pending_.batches +=
      static_cast<double>(step.local_samples) / static_cast<double>(step.global_samples);
  pending_.minibatches += 1;
  pending_.samples += static_cast<std::int64_t>(step.local_samples);
  pending_.learning_rate = step.learning_rate;
}

// By the mini-batch's mean: meanwhile the other workers move the store about as far as this one.
void CyclicScheme::step_alone() {
  const Step& step = iteration_.step();
  const auto factor = static_cast<float>(1.0 / static_cast<double>(step.local_samples));
  const float rate = static_cast<float>(step.learning_rate) * factor;
  flat::add_scaled(replica_.parameters, -rate, replica_.gradients);
}

bool CyclicScheme::comes() {
  const int cap = options_.delay == Delay::fixed ? 1 : options_.minibatch_cap;
  bool waits = cap > 0 && pending_.minibatches >= cap;
  if (const Turn* next = script_.next()) {
    if (pending_.minibatches < next->minibatches) return false;
    waits = true;
  }
  if (alone()) return true;
  if (!waits && !has_arrived()) return false;
  ring_->wait();
  return true;
}

// Or will it soon? A park that was announced on this node comes round as well: then it is waited
// for, so that it goes on to others soon. Where one rank of a replica has its token those of the
// others are on their way: they go the same way, and each worker passes all of them on.
bool CyclicScheme::has_arrived() {
  return first_rank_.sees(
      [this] { return store_.get(StoreWord::parks) != parks_ || ring_->test(); });
}

void CyclicScheme::meet() {
  if (!alone()) {
    const Handover what = ring_->come();
    if (what == Handover::park) return park();
    ring_->expect();
  }
  const std::int64_t before = store_.get(StoreWord::samples);
  push();
  pull();
  if (ends_epoch(before, pulled_.samples)) {
    store_.set(StoreWord::parks, parks_ + 1);
    park();
  } else if (!alone()) {
    ring_->pass(Handover::token);
  }
}

void CyclicScheme::push() {
  const std::int64_t version = store_.get(StoreWord::version);
  const std::int64_t staleness = version - pulled_.version;
  const double scale = scaling();
  optimizer_->update(0, store_.parameters(), pending_.sum,
                     {.gradient_scale = static_cast<float>(scale * clipping()),
                      .learning_rate = pending_.learning_rate,
                      .index = updates_before_ + version,
                      .decay_scale = static_cast<float>(scale * pending_.batches)});
  store_.set(StoreWord::version, version + 1);
  store_.set(StoreWord::samples, store_.get(StoreWord::samples) + pending_.samples);
  if (!alone()) {
    const std::size_t bytes = store_.parameters().size_bytes();
    counters_.global_reductions += 1;
    counters_.global_bytes += 2 * bytes;
    counters_.collectives += ring_->messages_per_pass();
  }
  tell(Turn::Kind::push, staleness);
  pending_.batches = 0.0;
  pending_.minibatches = 0;
  pending_.samples = 0;
}

double CyclicScheme::scaling() const {
  switch (options_.scaling) {
    case PushScaling::per_sample:
      return 1.0;
    case PushScaling::mean:
      return 1.0 / pending_.batches;
    case PushScaling::sum:
      return workers_.size();
  }
  return 1.0;
}

// Of the mean gradient, before it is weighed: how much is in a push must not decide about it.
double CyclicScheme::clipping() {
  if (!(options_.clip_norm > 0.0)) return 1.0;
  return flat::clip_factor(sums_.squared_norm(pending_.sum), 1.0 / pending_.batches,
                           options_.clip_norm);
}

void CyclicScheme::pull() {
  std::ranges::copy(store_.parameters(), replica_.parameters.begin());
  pulled_ = {.version = store_.get(StoreWord::version),
             .samples = store_.get(StoreWord::samples),
             .when = Clock::now()};
}

Turn CyclicScheme::turn(Turn::Kind kind) const noexcept {
  return {.kind = kind, .worker = workers_.rank(), .minibatches = pending_.minibatches};
}

void CyclicScheme::tell(Turn::Kind kind, std::int64_t staleness) {
  script_.follow(turn(kind));
  if (!options_.on_push) return;
  options_.on_push({.turn = turn(kind),
                    .version = store_.get(StoreWord::version),
                    .samples = store_.get(StoreWord::samples),
                    .staleness = staleness,
                    .seconds = std::chrono::duration<double>(Clock::now() - pulled_.when).count()});
}

void CyclicScheme::skip() {
  tell(Turn::Kind::skip, store_.get(StoreWord::version) - pulled_.version);
  ring_->expect();
  ring_->pass(Handover::token);
}

// Before a mini-batch. A park that has come meanwhile is met at its end.
void CyclicScheme::follow_skips() {
  if (alone() || pending_.minibatches > 0) return;
  for (const Turn* next = script_.next(); next != nullptr && next->kind == Turn::Kind::skip;
       next = script_.next()) {
    ring_->wait();
    if (ring_->come() == Handover::park) return;
    skip();
  }
  if (script_.next() != nullptr || options_.when_empty == WhenEmpty::wait) return;
  if (!first_rank_.sees([this] { return ring_->test(); })) return;
  ring_->wait();
  if (ring_->come() == Handover::token) skip();
}

}  // namespace rondo::sync
