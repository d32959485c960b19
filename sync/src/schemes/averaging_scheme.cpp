#include "schemes/averaging_scheme.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include <rondo/transport/communicator.hpp>

#include "base/check_replica.hpp"
#include "base/common_outer.hpp"
#include "base/counters.hpp"
#include "flat/clip.hpp"
#include "flat/flat.hpp"

namespace rondo::sync {
namespace {

constexpr std::string_view averaging_state_name = "averaging";
constexpr std::uint32_t averaging_state_version = 2;

double checked(std::string_view scheme, double clip_norm) {
  if (clip_norm >= 0.0) return clip_norm;
  throw std::invalid_argument(std::string(scheme) + ": a clip_norm of " +
                              std::to_string(clip_norm) + " is negative or no number");
}

}  // namespace

AveragingScheme::AveragingScheme(std::string_view name, Replica replica,
                                 std::shared_ptr<Optimizer> optimizer,
                                 const HierarchicalOptions& options)
    : name_(name),
      replica_(checked_replica(replica)),
      outer_(common_outer(name, replica_)),
      optimizer_(checked_optimizer(name, replica_, std::move(optimizer))),
      local_state_(options.local_state),
      clip_norm_(checked(name, options.clip_norm)),
      sums_(replica_, 1),
      on_round_(options.on_round),
      schedule_(name, options, outer_),
      model_(name, options.momentum, replica_.parameters.size()),
      mean_(replica_, local_state_ == LocalState::average ? optimizer_->state().size() : 0),
      iteration_(name, replica_.layers) {}

bool AveragingScheme::is_alone() const noexcept { return outer_.size() == 1; }

void AveragingScheme::begin(const Step& step) {
  iteration_.begin(step);
  if (!std::exchange(place_.started, true)) {
    model_.take(replica_.parameters);
    place_.updates = step.index;
  }
}

void AveragingScheme::make_ready(std::size_t /*layer*/) {}  // finish() left all parameters ready

void AveragingScheme::gradients_final(std::size_t layer) { iteration_.layer_final(layer); }

void AveragingScheme::finish() {
  iteration_.expect_complete();
  step_locally();
  model_.count_step(iteration_.step().learning_rate);
  ++place_.steps;
  place_.samples += static_cast<std::int64_t>(iteration_.step().global_samples);
  place_.own_samples += static_cast<std::int64_t>(iteration_.step().local_samples);
  if (schedule_.round_ends_after(place_.steps)) {
    end_round(Ending::with_momentum);
  } else if (transport::Communicator* group = schedule_.group_due_after(place_.steps)) {
    average_locally(*group);
  }
  iteration_.end();
}

void AveragingScheme::step_locally() {
  const Step& step = iteration_.step();
  if (step.local_samples == 0) return;
  double scale = 1.0 / static_cast<double>(step.local_samples);
  if (clip_norm_ > 0.0) {
    scale *= flat::clip_factor(sums_.squared_norm(replica_.gradients), scale, clip_norm_);
  }
  optimizer_->update(0, replica_.parameters, replica_.gradients,
                     {static_cast<float>(scale), step.learning_rate, place_.updates});
  ++place_.updates;
}

// What is global depends on who meets, not on which level asked for it: a level's group may be all
// replicas, as the ranks of a node are where there is but one.
void AveragingScheme::reduce(transport::Communicator& group) {
  mean_.reduce(group);
  const bool global = group.size() == outer_.size();
  ++(global ? counters_.global_reductions : counters_.local_reductions);
  (global ? counters_.global_bytes : counters_.local_bytes) += mean_.bytes();
  ++counters_.collectives;
}

void AveragingScheme::average_locally(transport::Communicator& group) {
  pack();
  reduce(group);
  flat::sum_scaled(replica_.parameters, model_.parameters(), 1.0F, mean_.displacement());
  take_over_the_rest();
}

void AveragingScheme::end_round(Ending ending) {
  pack();
  if (!is_alone()) reduce(outer_);
  Round round{place_.round, place_.steps, place_.samples, 0.0};
  if (on_round_ || sums_.is_shared()) {  // of the slices, whoever listens
    round.displacement = std::sqrt(sums_.squared_norm(mean_.displacement()));
  }
  advance(ending);
  take_over_the_rest();
  ++place_.round;
  place_.steps = 0;
  place_.samples = place_.own_samples = 0;
  if (on_round_) on_round_(round);
}

void AveragingScheme::advance(Ending ending) {
  const bool plain = ending == Ending::plain || model_.is_plain();
  if (plain && is_alone()) {
    model_.take(replica_.parameters);  // W + (w - W) is not quite w
    return;
  }
  if (plain) {
    model_.add(mean_.displacement());
  } else {
    model_.advance(mean_.displacement());
  }
  std::ranges::copy(model_.parameters(), replica_.parameters.begin());
}

// This rank's samples since the round began, in units of a replica's mean share: exactly 1 where
// shares are equal, and between rounds.
float AveragingScheme::weight() const noexcept {
  if (place_.samples == 0 || is_alone()) return 1.0F;
  const double own = static_cast<double>(place_.own_samples) * outer_.size();
  return static_cast<float>(own / static_cast<double>(place_.samples));
}

void AveragingScheme::pack() {
  std::span<const float> state;
  if (local_state_ == LocalState::average) state = optimizer_->state();
  mean_.pack(model_.parameters(), state, weight());
}

// What is averaged beside the parameters.
void AveragingScheme::take_over_the_rest() {
  std::ranges::copy(mean_.statistics(), replica_.statistics.begin());
  if (local_state_ == LocalState::average && mean_.has_weight()) {
    std::ranges::copy(mean_.state(), optimizer_->state().begin());
  }
  if (local_state_ == LocalState::reset) {
    std::ranges::fill(optimizer_->state(), 0.0F);
    place_.updates = 0;
  }
}

void AveragingScheme::copy_for_evaluation(std::span<float> parameters,
                                          std::span<float> statistics) {
  iteration_.expect_between("copy_for_evaluation()");
  expect_copy_of(replica_, name_, parameters, statistics);
  std::ranges::copy(replica_.parameters, parameters.begin());
  std::ranges::copy(replica_.statistics, statistics.begin());
  if (is_alone()) return;
  const std::span<const float> start =
      place_.started ? model_.parameters() : std::span<const float>(replica_.parameters);
  mean_.pack(start, {}, weight());
  mean_.reduce(outer_);
  ++counters_.evaluation_reductions;
  flat::sum_scaled(parameters, start, 1.0F, mean_.displacement());
  std::ranges::copy(mean_.statistics(), statistics.begin());
}

void AveragingScheme::flush() {
  iteration_.expect_between("flush()");
  if (place_.steps > 0) end_round(Ending::plain);
}

std::vector<std::span<const float>> AveragingScheme::replicated() const {
  if (!place_.started) return {replica_.parameters};
  if (model_.velocity().empty()) return {model_.parameters()};
  return {model_.parameters(), model_.velocity()};
}

std::vector<std::byte> AveragingScheme::save() const {
  iteration_.expect_between("save()");
  ByteWriter writer(averaging_state_name, averaging_state_version);
  write(writer, counters_);
  write(writer, place_);
  model_.write(writer);
  writer.put_array(std::span<const std::byte>(optimizer_->save()));
  return writer.take();
}

void AveragingScheme::restore(std::span<const std::byte> state) {
  iteration_.expect_between("restore()");
  ByteReader reader(state, averaging_state_name, averaging_state_version);
  const SchemeCounters counters = read_counters(reader);
  const AveragingPlace place = read_place(reader);
  CommonModel model = model_;
  model.read(reader);
  const std::span<const std::byte> optimizer_state = reader.get_bytes();
  reader.expect_end();
  if (place.steps < 0 || place.steps >= schedule_.period()) {
    throw std::invalid_argument(std::string(name_) + ": the state was saved after " +
                                std::to_string(place.steps) + " steps of a round, which has " +
                                std::to_string(schedule_.period()) + " here");
  }
  optimizer_->restore(optimizer_state);
  counters_ = counters;
  place_ = place;
  model_ = std::move(model);
}

SchemeCounters AveragingScheme::counters() const noexcept { return counters_; }

std::unique_ptr<UpdateScheme> make_hierarchical(Replica replica,
                                                std::shared_ptr<Optimizer> optimizer,
                                                const HierarchicalOptions& options) {
  return std::make_unique<AveragingScheme>("hierarchical", std::move(replica), std::move(optimizer),
                                           options);
}

std::unique_ptr<UpdateScheme> make_k_step(Replica replica, std::shared_ptr<Optimizer> optimizer,
                                          const KStepOptions& options) {
  const HierarchicalOptions without_levels{.period = options.period,
                                           .levels = {},
                                           .momentum = options.momentum,
                                           .local_state = options.local_state,
                                           .clip_norm = options.clip_norm,
                                           .on_round = options.on_round};
  return std::make_unique<AveragingScheme>("k_step", std::move(replica), std::move(optimizer),
                                           without_levels);
}

}  // namespace rondo::sync
