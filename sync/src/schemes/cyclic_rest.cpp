// The token at rest: before the first step, parked, and flushed.
//
// Parking: the holder keeps the token and lets a park go round instead. Whoever gets it stops and
// lets it go on, so when it is back with the holder everybody has seen it, and nothing else is on
// its way. Inside a node the words announce it, so that all workers stop after the mini-batch that
// they are in, and not one after another.

#include <algorithm>
#include <stdexcept>
#include <string>

#include "schemes/cyclic_scheme.hpp"

namespace rondo::sync {
namespace {

/// Is a multiple of `every` in (before, after]?
bool crosses(std::int64_t before, std::int64_t after, std::int64_t every) noexcept {
  return every > 0 && before / every != after / every;
}

}  // namespace

// The holder's parameters and optimizer are those of all. The words are set by all, alike.
void CyclicScheme::open() {
  if (holds()) {
    if (!started_) {
      std::ranges::copy(replica_.parameters, store_.parameters().begin());
      std::ranges::copy(optimizer_->state(), store_.state().begin());
    } else {
      std::ranges::copy(restored_, store_.all().begin());
      restored_ = {};
    }
  }
  store_.set(StoreWord::version, rest_.version);
  store_.set(StoreWord::samples, rest_.samples);
  store_.set(StoreWord::holder, rest_.holder);
  store_.set(StoreWord::parks, 0);
  store_.set(StoreWord::flushed, 0);
  workers_.barrier().wait();
  parks_ = 0;
  if (!started_) updates_before_ = iteration_.step().index;
  optimizer_->keep_state_in(store_.state());
  pulled_.when = Clock::now();
  open_ = started_ = true;
}

void CyclicScheme::resume() {
  rest_.resting = rest_.parked = false;
  if (alone()) return;
  ring_->expect();
  if (!holds()) return;
  store_.set(StoreWord::flushed, 0);
  ring_->pass(Handover::token);
}

bool CyclicScheme::ends_epoch(std::int64_t before, std::int64_t after) const noexcept {
  const std::int64_t total = options_.total_samples;
  return crosses(before, after, options_.epoch_samples) ||
         (total > 0 && before < total && after >= total);
}

void CyclicScheme::park() {
  tell(Turn::Kind::park, store_.get(StoreWord::version) - pulled_.version);
  rest();
  rest_.parked = true;
}

// Of the holder, who has kept the token, and of the others, to whom the park has come.
void CyclicScheme::rest() {
  rest_ = {.resting = true,
           .parked = false,
           .holder = static_cast<int>(store_.get(StoreWord::holder)),
           .version = store_.get(StoreWord::version),
           .samples = store_.get(StoreWord::samples)};
  ++parks_;
  if (alone()) return;
  ring_->pass(Handover::park);
  if (holds()) ring_->wait();
}

void CyclicScheme::flush() {
  iteration_.expect_between("flush()");
  if (!open_) open();
  if (alone()) {
    rest();
  } else {
    if (rest_.resting) resume();
    push_the_rest();
  }
  read_store(replica_.parameters);
  pulled_ = {.version = rest_.version, .samples = rest_.samples, .when = Clock::now()};
}

// The token goes round until all workers have counted themselves; who sees that keeps it.
void CyclicScheme::push_the_rest() {
  const std::int64_t workers = workers_.size();
  bool counted = false;
  for (ring_->wait(); ring_->come() == Handover::token; ring_->wait()) {
    ring_->expect();
    if (!counted) {
      if (pending_.minibatches > 0) push();
      store_.set(StoreWord::flushed, store_.get(StoreWord::flushed) + 1);
      counted = true;
    }
    if (store_.get(StoreWord::flushed) == workers) {
      store_.set(StoreWord::parks, parks_ + 1);
      return rest();
    }
    ring_->pass(Handover::token);
  }
  if (store_.get(StoreWord::flushed) != workers) {
    throw std::logic_error("cyclic: flush() while others are parked; all ranks flush together");
  }
  rest();
}

void CyclicScheme::read_store(std::span<float> parameters) {
  if (holds()) {
    std::span<const float> source = replica_.parameters;
    if (started_) source = open_ ? store_.all() : std::span<float>(restored_);
    std::ranges::copy(source.first(parameters.size()), parameters.begin());
  }
  if (!alone()) workers_.broadcast(parameters, rest_.holder).wait();
}

void CyclicScheme::expect_rest(const char* call) const {
  if (rest_.resting) return;
  throw std::logic_error("cyclic: " + std::string(call) +
                         " while the token is on its way; it needs all ranks parked or flushed");
}

}  // namespace rondo::sync
