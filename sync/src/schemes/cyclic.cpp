// Cyclic delayed updates: a token visits the workers, and who has it updates the common store.
//
// In the order of this file: the calls of a scheme; turns, that is what happens after a mini-batch
// when the token is here or is not; the token at rest, before the first step, parked, and flushed;
// and states.
//
// Parking: the holder keeps the token and lets a park go round instead. Whoever gets it stops and
// lets it go on, so when it is back with the holder everybody has seen it, and nothing else is on
// its way. Inside a node all workers see it at once, by a count in shared memory, so that they stop
// after the mini-batch that they are in, and not one after another.

#include <rondo/sync/cyclic.hpp>

#include <algorithm>
#include <chrono>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <utility>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/scheme_base.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "base/reductions.hpp"
#include "flat/flat.hpp"
#include "schemes/token_ring.hpp"

namespace rondo::sync {
namespace {

/// Where the ranks of a replica could see different things, such as what has arrived by now, the
/// first of them looks, and all act on what it saw.
///
/// A replica of one rank sends nothing, one of n a broadcast of 4 bytes over n ranks each time.
class FirstRank {
 public:
  /// `replica` is lent.
  explicit FirstRank(const Replica& replica)
      : over_(replica.slices.over), word_(1, 0, &replica.world->arena()) {}

  /// The result of `look()`, a yes or no, on the first rank; the others do not call it. Collective
  /// over the replica's ranks.
  template <typename Look>
  [[nodiscard]] bool sees(Look look) {
    if (over_ == nullptr) return look();
    if (over_->rank() == 0) word_[0] = look() ? 1 : 0;
    over_->broadcast(std::span(word_), 0).wait();
    return word_[0] != 0;
  }

 private:
  transport::Communicator* over_;
  std::pmr::vector<std::int32_t> word_;
};

/// The token is at rest (before the first step, parked, after a flush) with one worker that all
/// know, or on its way. At rest the ring is empty: everybody has seen the park.
class CyclicScheme final : public SchemeBase {
 public:
  CyclicScheme(Replica given, std::shared_ptr<Optimizer> optimizer, const CyclicOptions& options);

  [[nodiscard]] std::vector<std::span<const float>> replicated() const override { return {}; }
  [[nodiscard]] std::optional<Pace> pace() const noexcept override {
    if (rest_.resting) return Pace{rest_.samples, rest_.parked};
    return Pace{pulled_.samples, false};
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// The mini-batches that this worker has computed and not pushed.
  struct Pending {
    double batches = 0.0;  ///< that its gradients are of, global ones: local_samples/global_samples
    int minibatches = 0;
    std::int64_t samples = 0;
    double learning_rate = 0.0;  ///< of the last mini-batch's step
  };
  /// The parameters that this worker computes with.
  struct Pulled {
    std::int64_t version = 0;
    std::int64_t samples = 0;
    Clock::time_point when = {};
  };
  /// Where the token rests, and what the store was then.
  struct Rest {
    bool resting = true;
    bool parked = false;  ///< after an epoch
    int holder = 0;
    std::int64_t version = 0;
    std::int64_t samples = 0;
  };

  void begin_iteration() override;
  void end_iteration() override;
  void evaluate(std::span<float> parameters, std::span<float> statistics) override;
  void apply_pending() override;
  void expect_rest(std::string_view call) const override;
  void write_state(ByteWriter& writer) const override;
  [[nodiscard]] std::function<void()> read_state(ByteReader& reader) override;
  /// It lies in the store, once that has been filled.
  [[nodiscard]] bool saves_optimizer() const noexcept override { return false; }

  const CyclicOptions& checked(const CyclicOptions& options) const;
  [[nodiscard]] bool alone() const noexcept { return workers_.size() == 1; }
  [[nodiscard]] bool holds() const noexcept { return rest_.holder == workers_.rank(); }
  [[nodiscard]] Turn turn(Turn::Kind kind) const noexcept;
  void report(Turn::Kind kind, std::int64_t staleness, bool by_flush = false);

  void accumulate();
  void step_alone();
  [[nodiscard]] bool has_turn();
  [[nodiscard]] bool has_arrived();
  void take_turn();
  void push(bool by_flush = false);
  void pull();
  [[nodiscard]] double scaling() const;
  [[nodiscard]] double clipping();
  void skip();
  void follow_skips();

  void open();
  void resume();
  [[nodiscard]] bool ends_epoch(std::int64_t before, std::int64_t after) const noexcept;
  void park();
  void rest();
  void push_the_rest();
  void read_store(std::span<float> parameters);
  void expect_own(ByteReader& reader) const;

  CyclicOptions options_;
  transport::Communicator workers_;
  CyclicStore store_;
  std::optional<TokenRing> ring_;  // none for one worker
  FirstRank first_rank_;
  Script script_;
  ModelSums sums_;

  bool started_ = false;              // has the store been filled?
  bool open_ = false;                 // does the store hold what is trained?
  std::vector<float> restored_ = {};  // what it shall hold, of a restored holder
  std::int64_t updates_before_ = 0;   // that the optimizer had seen before the store was opened
  std::int64_t parks_ = 0;            // seen since the store was opened
  Rest rest_;
  Pending pending_;
  GradientSum pending_sum_;  // each divided by its step's global_samples
  Pulled pulled_;
};

CyclicScheme::CyclicScheme(Replica given, std::shared_ptr<Optimizer> optimizer,
                           const CyclicOptions& options)
    : SchemeBase(cyclic_scheme, std::move(given), std::move(optimizer), {.version = 4}),
      options_(checked(options)),
      // A communicator for the token alone: its order is not that of anything else.
      workers_(outer().split(0, outer().rank())),
      store_(*replica().world, workers_, replica().parameters.size(),
             this->optimizer().state().size()),
      first_rank_(replica()),
      script_(options_.script, workers_.rank(), workers_.size()),
      sums_(replica(), 1),
      pending_sum_(replica().parameters.size()) {
  if (!alone()) ring_.emplace(*replica().world, workers_, store_);
  rest_.holder = workers_.size() - 1;  // as if it had had its turn: the next is worker 0
}

const CyclicOptions& CyclicScheme::checked(const CyclicOptions& options) const {
  if (options.minibatch_cap < 0 || !(options.clip_norm >= 0.0) || options.epoch_samples < 0 ||
      options.total_samples < 0) {
    refuse("minibatch_cap, clip_norm, epoch_samples and total_samples must not be negative");
  }
  if (options.delay == Delay::fixed && options.when_empty == WhenEmpty::skip) {
    refuse("with fixed delay every turn has a mini-batch, and none can be skipped");
  }
  if (replica().slices.over != nullptr) return options;
  for (const Layer& layer : replica().layers) {
    if (layer.groups.inner == nullptr) continue;
    refuse("layer " + layer.name + " has an inner group; the scheme needs whole replicas");
  }
  return options;
}

// The first iteration fills the store; one after a park sends the token on its way again.
void CyclicScheme::begin_iteration() {
  if (!open_) open();
  if (rest_.resting) resume();
  follow_skips();
}

void CyclicScheme::end_iteration() {
  accumulate();
  if (has_turn()) {
    take_turn();
  } else if (options_.local_step) {
    step_alone();
  }
}

// The token is at rest, so that the store of its holder is what all have trained.
void CyclicScheme::evaluate(std::span<float> parameters, std::span<float> statistics) {
  read_store(parameters);
  average_statistics(statistics);
  if (!alone()) ++counted().evaluation_reductions;
}

void CyclicScheme::expect_rest(std::string_view call) const {
  if (rest_.resting) return;
  throw std::logic_error("cyclic: " + std::string(call) +
                         " while the token is on its way; it needs all ranks parked or flushed");
}

// Turns.

// Gradients are sums over this worker's samples. Each sample enters the sum as it would enter a
// synchronous step; what a push weighs is decided when it is made.
void CyclicScheme::accumulate() {
  const auto factor = static_cast<float>(1.0 / static_cast<double>(step().global_samples));
  if (pending_.minibatches == 0) {
    pending_sum_.set(0, replica().gradients, factor);
  } else {
    pending_sum_.add(0, replica().gradients, factor);
  }
  pending_.batches +=
      static_cast<double>(step().local_samples) / static_cast<double>(step().global_samples);
  pending_.minibatches += 1;
  pending_.samples += static_cast<std::int64_t>(step().local_samples);
  pending_.learning_rate = step().learning_rate;
}

// By the mini-batch's mean: meanwhile the other workers move the store about as far as this one.
void CyclicScheme::step_alone() {
  const auto factor = static_cast<float>(1.0 / static_cast<double>(step().local_samples));
  const float rate = static_cast<float>(step().learning_rate) * factor;
  flat::add_scaled(replica().parameters, -rate, replica().gradients);
}

// Does this worker take a turn now? It waits for the token at its cap or where its script says so;
// otherwise it looks whether the token has come.
bool CyclicScheme::has_turn() {
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

// Has the token come, or will it soon? A park that was announced on this node comes round as well:
// then it is waited for, so that it goes on to others soon. Where one rank of a replica has its
// token those of the others are on their way: they go the same way, and each worker passes all of
// them on.
bool CyclicScheme::has_arrived() {
  return first_rank_.sees(
      [this] { return store_.get(StoreWord::parks) != parks_ || ring_->test(); });
}

// The token has arrived, or a park that goes round in its place. At the end of an epoch the worker
// keeps the token and lets a park go round.
void CyclicScheme::take_turn() {
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

// One update of the store. Whoever has the token is the only one who touches it.
void CyclicScheme::push(bool by_flush) {
  const std::int64_t version = store_.get(StoreWord::version);
  const std::int64_t staleness = version - pulled_.version;
  const double scale = scaling();
  optimizer().update(0, store_.parameters(), pending_sum_.values(),
                     {.gradient_scale = static_cast<float>(scale * clipping()),
                      .learning_rate = pending_.learning_rate,
                      .index = updates_before_ + version,
                      .decay_scale = static_cast<float>(scale * pending_.batches)});
  store_.set(StoreWord::version, version + 1);
  store_.set(StoreWord::samples, store_.get(StoreWord::samples) + pending_.samples);
  if (!alone()) {
    const std::size_t bytes = store_.parameters().size_bytes();
    counted().global_reductions += 1;
    counted().global_bytes += 2 * bytes;
    counted().collectives += ring_->messages_per_pass();
  }
  report(Turn::Kind::push, staleness, by_flush);
  pending_.batches = 0.0;
  pending_.minibatches = 0;
  pending_.samples = 0;
}

// See PushScaling.
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

// The factor that clips the mean gradient before it is weighed: a push's size must not decide it.
double CyclicScheme::clipping() {
  return sums_.clip_factor(pending_sum_.values(), 1.0 / pending_.batches, options_.clip_norm);
}

void CyclicScheme::pull() {
  std::ranges::copy(store_.parameters(), replica().parameters.begin());
  pulled_ = {.version = store_.get(StoreWord::version),
             .samples = store_.get(StoreWord::samples),
             .when = Clock::now()};
}

Turn CyclicScheme::turn(Turn::Kind kind) const noexcept {
  return {.kind = kind, .worker = workers_.rank(), .minibatches = pending_.minibatches};
}

// Reports an event to the script, which must have it next, and to the caller. A run may be flushed
// where the one that its script comes from went on, so that a flush is none of its turns.
void CyclicScheme::report(Turn::Kind kind, std::int64_t staleness, bool by_flush) {
  if (!by_flush) script_.follow(turn(kind));
  if (!options_.on_push) return;
  options_.on_push({.turn = turn(kind),
                    .version = store_.get(StoreWord::version),
                    .samples = store_.get(StoreWord::samples),
                    .staleness = staleness,
                    .seconds = std::chrono::duration<double>(Clock::now() - pulled_.when).count(),
                    .by_flush = by_flush});
}

void CyclicScheme::skip() {
  report(Turn::Kind::skip, store_.get(StoreWord::version) - pulled_.version);
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

// The token at rest.

// The holder's parameters and optimizer are those of all. The words are set by all, alike.
void CyclicScheme::open() {
  if (holds()) {
    if (!started_) {
      std::ranges::copy(replica().parameters, store_.parameters().begin());
      std::ranges::copy(optimizer().state(), store_.state().begin());
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
  if (!started_) updates_before_ = step().updates();
  optimizer().keep_state_in(store_.state());
  pulled_.when = Clock::now();
  open_ = started_ = true;
}

// Every worker expects the token before its holder passes it.
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
  report(Turn::Kind::park, store_.get(StoreWord::version) - pulled_.version);
  rest();
  rest_.parked = true;
}

// Lets the holder rest, which has kept the token, or another rank, which has got the park.
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

// From any state: parked or not, the token goes round once more, and comes to rest.
void CyclicScheme::apply_pending() {
  if (!open_) open();
  if (alone()) {
    if (pending_.minibatches > 0) push(true);
    rest();
  } else {
    if (rest_.resting) resume();
    push_the_rest();
  }
  read_store(replica().parameters);
  pulled_ = {.version = rest_.version, .samples = rest_.samples, .when = Clock::now()};
}

// The token goes round until all workers have counted themselves; who sees that keeps it.
void CyclicScheme::push_the_rest() {
  const std::int64_t workers = workers_.size();
  bool counted = false;
  for (ring_->wait(); ring_->come() == Handover::token; ring_->wait()) {
    ring_->expect();
    if (!counted) {
      if (pending_.minibatches > 0) push(true);
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

// A broadcast from the token's holder: other nodes have older stores.
void CyclicScheme::read_store(std::span<float> parameters) {
  if (holds()) {
    std::span<const float> source = replica().parameters;
    if (started_) source = open_ ? store_.all() : std::span<float>(restored_);
    std::ranges::copy(source.first(parameters.size()), parameters.begin());
  }
  if (!alone()) workers_.broadcast(parameters, rest_.holder).wait();
}

// States. The store is in that of the token's holder.

// Writes the optimizer's state only until the store is filled: later it lies in the store.
void CyclicScheme::write_state(ByteWriter& writer) const {
  writer.put(workers_.rank());
  writer.put(workers_.size());
  writer.put(started_);
  writer.put(static_cast<std::uint64_t>(script_.position()));
  writer.put(updates_before_);
  writer.put(rest_.parked);
  writer.put(rest_.holder);
  writer.put(rest_.version);
  writer.put(rest_.samples);
  writer.put(pulled_.version);
  writer.put(pulled_.samples);
  writer.put(pending_.batches);
  writer.put(pending_.minibatches);
  writer.put(pending_.samples);
  writer.put(pending_.learning_rate);
  writer.put_array(pending_sum_.values());
  if (!started_) {
    writer.put_array(std::span<const std::byte>(optimizer().save()));
  } else if (holds()) {
    writer.put_array(open_ ? store_.all() : std::span<const float>(restored_));
  }
}

void CyclicScheme::expect_own(ByteReader& reader) const {
  const int rank = reader.get<int>();
  const int size = reader.get<int>();
  if (rank == workers_.rank() && size == workers_.size()) return;
  reader.fail("of worker " + std::to_string(rank) + " of " + std::to_string(size) +
              ", but this is worker " + std::to_string(workers_.rank()) + " of " +
              std::to_string(workers_.size()));
}

// The optimizer is the only one that may refuse while the state is taken over, and so the first.
std::function<void()> CyclicScheme::read_state(ByteReader& reader) {
  expect_own(reader);
  const bool started = reader.get<std::uint8_t>() != 0;
  if (started_ && !started) {
    throw std::logic_error("cyclic: a state from before the first step, after it");
  }
  const auto script_position = reader.get<std::uint64_t>();
  const auto updates_before = reader.get<std::int64_t>();
  Rest rest;
  rest.parked = reader.get<std::uint8_t>() != 0;
  rest.holder = reader.get<int>();
  rest.version = reader.get<std::int64_t>();
  rest.samples = reader.get<std::int64_t>();
  Pulled pulled;
  pulled.version = reader.get<std::int64_t>();
  pulled.samples = reader.get<std::int64_t>();
  Pending pending;
  pending.batches = reader.get<double>();
  pending.minibatches = reader.get<int>();
  pending.samples = reader.get<std::int64_t>();
  pending.learning_rate = reader.get<double>();
  std::vector<float> sum(pending_sum_.values().size());
  reader.get_array(std::span(sum));
  const bool holds = started && rest.holder == workers_.rank();
  std::vector<float> store(holds ? store_.all().size() : 0);
  if (holds) reader.get_array(std::span(store));
  const auto optimizer_state = started ? std::span<const std::byte>() : reader.get_bytes();
  return [=, this, sum = std::move(sum), store = std::move(store)]() mutable {
    if (!started) optimizer().restore(optimizer_state);
    std::ranges::copy(sum, pending_sum_.values().begin());
    script_.set_position(static_cast<std::size_t>(script_position));
    updates_before_ = updates_before;
    rest_ = rest;
    pulled_ = pulled;
    pending_ = pending;
    restored_ = std::move(store);
    started_ = started;
    open_ = false;
  };
}

}  // namespace

std::unique_ptr<UpdateScheme> make_cyclic(Replica replica, std::shared_ptr<Optimizer> optimizer,
                                          const CyclicOptions& options) {
  return std::make_unique<CyclicScheme>(std::move(replica), std::move(optimizer), options);
}

}  // namespace rondo::sync
