// K-step and hierarchical averaging: one class, where K-step averaging has no levels.
//
// A rank makes steps of its own. What it exchanges is its displacement from W, the parameters that
// all ranks held when the round began, and not its parameters: so averages of ranks that agree are
// exact, and a reduction momentum can act on the mean displacement. Everything that a reduction
// writes is a copy in the arena. A lost rank leaves the model as it was.
//
// With overlap the average of a round travels while the next one computes. The round then begins
// from the rank's own parameters; what it has moved until the average arrives is moved again from
// the new W.

#include "schemes/averaging.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory_resource>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <rondo/sync/scheme_base.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "base/reductions.hpp"
#include "flat/flat.hpp"
#include "schemes/average_under_way.hpp"

namespace rondo::sync {
namespace {

void check_period(const std::string& what, std::int64_t period, std::int64_t faster) {
  if (period < 1) {
    throw std::invalid_argument(what + " is " + std::to_string(period) + "; it is at least 1");
  }
  if (period % faster != 0) {
    throw std::invalid_argument(what + " is " + std::to_string(period) +
                                ", which is no multiple of the faster level's " +
                                std::to_string(faster));
  }
}

void check_group(const std::string& where, int size, int slower) {
  if (size <= slower) return;
  throw std::invalid_argument(where + " has a group of " + std::to_string(size) +
                              " ranks, which does not fit into the next slower one of " +
                              std::to_string(slower));
}

ReductionMomentum checked_momentum(std::string_view scheme, const ReductionMomentum& momentum) {
  const std::string name(scheme);
  if (!(momentum.mu >= 0.0F && momentum.mu < 1.0F)) {
    throw std::invalid_argument(name + ": a reduction momentum of " + std::to_string(momentum.mu) +
                                " is not in [0, 1)");
  }
  if (!(momentum.outer_rate > 0.0F)) {
    throw std::invalid_argument(name + ": an outer rate of " + std::to_string(momentum.outer_rate) +
                                " is not positive");
  }
  if (momentum.kind != MomentumKind::diloco && momentum.outer_rate != 1.0F) {
    throw std::invalid_argument(name + ": only diloco has an outer rate, this momentum takes 1");
  }
  return momentum;
}

}  // namespace

AveragingSchedule::AveragingSchedule(std::string_view scheme, std::int64_t period,
                                     const std::vector<AveragingLevel>& levels,
                                     const transport::Communicator& outer)
    : period_(period), levels_(levels) {
  const std::string name(scheme);
  std::int64_t faster = 1;
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    const std::string level = name + ": level " + std::to_string(i);
    if (levels_[i].group == nullptr) throw std::invalid_argument(level + " has no group");
    check_period(level + "'s period", levels_[i].period, faster);
    const bool last = i + 1 == levels_.size();
    if (!last && levels_[i + 1].group == nullptr) continue;  // found in the next turn
    check_group(level, levels_[i].group->size(),
                last ? outer.size() : levels_[i + 1].group->size());
    faster = levels_[i].period;
  }
  check_period(name + ": the global period", period_, faster);
}

// Each level's period is a multiple of the first one's.
bool AveragingSchedule::is_level_due_after(std::int64_t steps) const noexcept {
  return !levels_.empty() && steps % levels_.front().period == 0;
}

transport::Communicator* AveragingSchedule::group_due_after(std::int64_t steps) const noexcept {
  for (std::size_t i = levels_.size(); i-- > 0;) {
    if (steps % levels_[i].period != 0) continue;
    return levels_[i].group->size() > 1 ? levels_[i].group : nullptr;
  }
  return nullptr;
}

CommonModel::CommonModel(std::string_view scheme, const ReductionMomentum& momentum,
                         std::size_t size)
    : momentum_(checked_momentum(scheme, momentum)),
      parameters_(size, 0.0F),
      velocity_(momentum.mu == 0.0F ? 0 : size, 0.0F) {}

void CommonModel::begin_round(std::span<const float> parameters) {
  std::ranges::copy(parameters, parameters_.begin());
  round_rates_ = 0.0;
}

void CommonModel::add(std::span<const float> displacement) {
  flat::add(parameters_, displacement);
  round_rates_ = 0.0;
}

// How much of V goes on. slowmo's momentum is u = -V / (sum of a round's rates): where that sum has
// changed, V changes with it.
float CommonModel::carried_over() noexcept {
  double ratio = 1.0;
  if (momentum_.kind == MomentumKind::slowmo) {
    if (last_rates_ != 0.0) ratio = round_rates_ / last_rates_;
    last_rates_ = round_rates_;
  }
  return static_cast<float>(static_cast<double>(momentum_.mu) * ratio);
}

void CommonModel::advance(std::span<float> displacement) {
  if (outer_) {
    outer_->update(0, parameters_, displacement, outer_update());
    ++outer_steps_;
    round_rates_ = 0.0;
    return;
  }
  const bool follows_rates = momentum_.kind == MomentumKind::slowmo && !velocity_.empty();
  if (follows_rates && round_rates_ == 0.0) return add(displacement);  // u * 0, and u stays
  const float mu = carried_over();
  round_rates_ = 0.0;
  if (!velocity_.empty()) {
    flat::sum_scaled(velocity_, displacement, mu, velocity_);
    const bool looks_ahead =
        momentum_.kind == MomentumKind::nesterov || momentum_.kind == MomentumKind::diloco;
    if (!looks_ahead) return add(velocity_);
    flat::add_scaled(displacement, mu, velocity_);
  }
  flat::add_scaled(parameters_, momentum_.outer_rate, displacement);
}

CommonModel CommonModel::advanced(std::span<const float> displacement) const {
  CommonModel ahead = *this;
  if (outer_) {
    outer_->preview(0, ahead.parameters_, displacement, outer_update());
  } else {
    std::vector<float> used_up(displacement.begin(), displacement.end());
    ahead.advance(used_up);
  }
  return ahead;
}

void CommonModel::write(ByteWriter& writer) const {
  writer.put_array(std::span<const float>(parameters_));
  writer.put_array(std::span<const float>(velocity_));
  writer.put(round_rates_);
  writer.put(last_rates_);
  writer.put(outer_steps_);
}

void CommonModel::read(ByteReader& reader) {
  reader.get_array(std::span(parameters_));
  reader.get_array(std::span(velocity_));
  round_rates_ = reader.get<double>();
  last_rates_ = reader.get<double>();
  outer_steps_ = reader.get<std::int64_t>();
}

namespace {

/// Where a rank is in training by averages.
struct Progress {
  bool started = false;          ///< has the first iteration begun, and W been taken?
  std::int64_t updates = 0;      ///< that the optimizer's state has seen
  std::int64_t round = 0;        ///< index of the round under way
  std::int64_t steps = 0;        ///< done in it
  std::int64_t samples = 0;      ///< of all ranks, in those
  std::int64_t own_samples = 0;  ///< of this rank
  std::int64_t period = 0;       ///< steps that the round has
  double own_loss = 0.0;         ///< of this rank's samples in the round
  double loss = 0.0;             ///< mean of all ranks' samples in the round before
  double first_loss = 0.0;       ///< in the first round

  void write(ByteWriter& writer) const {
    writer.put(started);
    for (const std::int64_t value : {updates, round, steps, samples, own_samples, period}) {
      writer.put(value);
    }
    for (const double value : {own_loss, loss, first_loss}) writer.put(value);
  }

  static Progress read(ByteReader& reader) {
    Progress progress{.started = reader.get<std::uint8_t>() != 0};
    for (std::int64_t* value : {&progress.updates, &progress.round, &progress.steps,
                                &progress.samples, &progress.own_samples, &progress.period}) {
      *value = reader.get<std::int64_t>();
    }
    for (double* value : {&progress.own_loss, &progress.loss, &progress.first_loss}) {
      *value = reader.get<double>();
    }
    return progress;
  }
};

class AveragingScheme final : public SchemeBase {
 public:
  /// `options` are KStepOptions or HierarchicalOptions, whose fields have the same names.
  template <typename Options>
  AveragingScheme(const SchemeDescription& described, Replica given,
                  std::shared_ptr<Optimizer> optimizer, const Options& options,
                  const std::vector<AveragingLevel>& levels)
      :  // The same format for both: without levels they are the same scheme.
        SchemeBase(described, std::move(given), std::move(optimizer),
                   {.version = 4, .name = "averaging"}),
        local_state_(options.local_state),
        clip_norm_(options.clip_norm),
        sums_(replica(), 1),
        on_round_(options.on_round),
        period_of_(options.period_of),
        losses_(options.sums_losses ? 1 : 0, 0.0, &replica().world->arena()),
        outer_optimizer_(options.outer_optimizer),
        overlap_steps_(options.overlap_steps),
        schedule_(described.name, options.period, levels, outer()),
        model_(described.name, options.momentum, replica().parameters.size()),
        mean_(replica(), averages_state() ? this->optimizer().state().size() : 0),
        unsent_(unsent_size(options.average_type), 0.0F) {
    progress_.period = schedule_.period();
    if (!unsent_.empty()) mean_.prepare_bf16();
    if (!(clip_norm_ >= 0.0)) {
      refuse("a clip_norm of " + std::to_string(clip_norm_) + " is negative or no number");
    }
    if (outer_optimizer_) take_outer_optimizer(options.outer_learning_rate);
    if (overlap_steps_ < 0) {
      refuse("overlap_steps of " + std::to_string(overlap_steps_) + " are negative");
    }
    if (overlap_steps_ == 0) return;
    if (local_state_ != LocalState::keep) {
      refuse(
          "overlap_steps need a local state that ranks keep: what an average makes of it would "
          "come late");
    }
    if (!is_alone()) under_way_.emplace(replica(), !unsent_.empty());
  }

  void add_loss(double sum) override {
    if (!losses_.empty()) progress_.own_loss += sum;
  }

  [[nodiscard]] std::vector<std::span<const float>> replicated() const override {
    if (!progress_.started) return {replica().parameters};
    if (outer_optimizer_) return {model_.parameters(), outer_optimizer_->state()};
    if (model_.velocity().empty()) return {model_.parameters()};
    return {model_.parameters(), model_.velocity()};
  }

 private:
  /// How the mean displacement enters the common model.
  enum class Ending : std::uint8_t { with_momentum, plain };

  void begin_iteration() override;
  void end_iteration() override;
  void evaluate(std::span<float> parameters, std::span<float> statistics) override;
  void apply_pending() override {
    if (is_under_way()) apply_arrived();
    if (progress_.steps > 0) end_round(Ending::plain);
  }
  void write_state(ByteWriter& writer) const override {
    progress_.write(writer);
    model_.write(writer);
    const std::span<const float> outer = outer_state();
    writer.put_array(outer);
    writer.put_array(std::span<const float>(unsent_));
    writer.put(under_way_.has_value());
    if (under_way_) under_way_->write(writer);
  }
  [[nodiscard]] std::function<void()> read_state(ByteReader& reader) override;

  [[nodiscard]] bool is_alone() const noexcept { return outer().size() == 1; }
  [[nodiscard]] bool averages_state() const noexcept { return local_state_ == LocalState::average; }
  [[nodiscard]] std::span<float> outer_state() const noexcept {
    return outer_optimizer_ ? outer_optimizer_->state() : std::span<float>();
  }
  [[nodiscard]] std::size_t unsent_size(transport::ElementType type) const;
  void take_outer_optimizer(double learning_rate);
  [[nodiscard]] float weight() const noexcept;
  [[nodiscard]] std::int64_t next_period() const;
  void add_up_losses();
  void step_locally();
  void reduce(transport::Communicator& group, std::span<float> unsent);
  void average_locally(transport::Communicator& group);
  void end_round(Ending ending);
  void post_round();
  void apply_arrived();
  [[nodiscard]] bool is_under_way() const noexcept { return under_way_ && under_way_->is_posted(); }
  [[nodiscard]] Round round_under_way() const noexcept;
  void begin_next_round();
  void measure(Round& round, std::span<const float> displacement);
  void advance(Ending ending);
  void pack();
  void take_over_the_rest();

  LocalState local_state_;
  double clip_norm_;
  ModelSums sums_;
  std::function<void(const Round&)> on_round_;
  PeriodPolicy period_of_;
  std::pmr::vector<double> losses_;             // in the arena; empty: nobody asks for them
  std::shared_ptr<Optimizer> outer_optimizer_;  // null: the model's momentum makes outer steps
  std::int64_t overlap_steps_;
  AveragingSchedule schedule_;
  CommonModel model_;
  PackedMean mean_;
  std::vector<float> unsent_;  // what rounding has left out of averages; empty: they are fp32
  mutable std::optional<AverageUnderWay> under_way_;  // if averages overlap; to save it is to wait
  Progress progress_;
};

std::size_t AveragingScheme::unsent_size(transport::ElementType type) const {
  if (type == transport::ElementType::f32) return 0;
  if (type != transport::ElementType::bf16) refuse("averages are sent as f32 or bf16");
  return is_alone() ? 0 : replica().parameters.size();
}

void AveragingScheme::take_outer_optimizer(double learning_rate) {
  if (!model_.is_plain()) refuse("an outer optimizer takes the place of a reduction momentum");
  if (outer_optimizer_->size() != replica().parameters.size()) {
    refuse("the outer optimizer is for " + std::to_string(outer_optimizer_->size()) +
           " parameters, and the replica has " + std::to_string(replica().parameters.size()));
  }
  if (!(learning_rate > 0.0)) {
    refuse("an outer learning rate of " + std::to_string(learning_rate) + " is not positive");
  }
  model_.step_by(outer_optimizer_, learning_rate);
}

// The first iteration takes W, which all ranks hold alike then.
void AveragingScheme::begin_iteration() {
  if (!std::exchange(progress_.started, true)) {
    model_.begin_round(replica().parameters);
    progress_.updates = step().index;
  }
  if (progress_.steps == 0) progress_.period = next_period();
}

std::int64_t AveragingScheme::next_period() const {
  if (!period_of_) return schedule_.period();
  const std::int64_t period = period_of_({.index = progress_.round,
                                          .step = step().index,
                                          .period = schedule_.period(),
                                          .learning_rate = step().learning_rate,
                                          .loss = progress_.loss,
                                          .first_loss = progress_.first_loss});
  if (period >= 1) return period;
  refuse("period_of gives round " + std::to_string(progress_.round) + " " + std::to_string(period) +
         " steps; it has at least 1");
}

// A local step, then the slowest of the averages that are due.
void AveragingScheme::end_iteration() {
  step_locally();
  if (is_under_way()) {
    under_way_->count_step(step().learning_rate);
  } else {
    model_.count_step(step().learning_rate);
  }
  ++progress_.steps;
  progress_.samples += static_cast<std::int64_t>(step().global_samples);
  progress_.own_samples += static_cast<std::int64_t>(step().local_samples);
  const bool ends = progress_.steps == progress_.period;
  const bool meets = ends || schedule_.is_level_due_after(progress_.steps);
  if (is_under_way() && (meets || progress_.steps >= overlap_steps_)) apply_arrived();
  if (ends && under_way_) {
    post_round();
  } else if (ends) {
    end_round(Ending::with_momentum);
  } else if (transport::Communicator* group = schedule_.group_due_after(progress_.steps)) {
    average_locally(*group);
  }
}

// By the mean over this rank's own samples. Without a sample there is no step.
void AveragingScheme::step_locally() {
  if (step().local_samples == 0) return;
  const double mean = 1.0 / static_cast<double>(step().local_samples);
  const double scale = mean * sums_.clip_factor(replica().gradients, mean, clip_norm_);
  optimizer().update(0, replica().parameters, replica().gradients,
                     {static_cast<float>(scale), step().learning_rate, progress_.updates});
  ++progress_.updates;
}

// What is global depends on who meets, not on which level asked for it: a level's group may be all
// replicas, as the ranks of a node are where there is but one.
void AveragingScheme::reduce(transport::Communicator& group, std::span<float> unsent) {
  mean_.reduce(group, unsent);
  const bool global = group.size() == outer().size();
  ++(global ? counted().global_reductions : counted().local_reductions);
  (global ? counted().global_bytes : counted().local_bytes) += mean_.bytes();
  counted().collectives += mean_.collectives();
}

// W stays as it is: the round goes on from the group's mean.
void AveragingScheme::average_locally(transport::Communicator& group) {
  pack();
  reduce(group, unsent_);
  flat::sum_scaled(replica().parameters, model_.parameters(), 1.0F, mean_.displacement());
  take_over_the_rest();
}

// Over the World and not over `outer`: the ranks of a replica that share samples each have a part
// of their loss.
void AveragingScheme::add_up_losses() {
  losses_[0] = std::exchange(progress_.own_loss, 0.0);
  transport::Communicator& all = replica().world->communicator();
  if (all.size() > 1) {
    all.allreduce(std::span<double>(losses_)).wait();
    ++counted().collectives;
    counted().global_bytes += std::span(losses_).size_bytes();
  }
  progress_.loss = losses_[0] / static_cast<double>(progress_.samples);
  if (progress_.round == 0) progress_.first_loss = progress_.loss;
}

Round AveragingScheme::round_under_way() const noexcept {
  return {progress_.round, progress_.steps, progress_.samples, 0.0};
}

void AveragingScheme::begin_next_round() {
  if (!losses_.empty()) add_up_losses();
  ++progress_.round;
  progress_.steps = 0;
  progress_.samples = progress_.own_samples = 0;
}

// The displacement's length is a sum over all slices of the model, so that every rank takes part in
// it, whether or not it has a callback.
void AveragingScheme::measure(Round& round, std::span<const float> displacement) {
  if (!on_round_ && !sums_.is_shared()) return;
  round.displacement = std::sqrt(sums_.squared_norm(displacement));
}

// A plain ending leaves nothing behind: it is that of flush().
void AveragingScheme::end_round(Ending ending) {
  pack();
  if (ending == Ending::plain) {
    mean_.add_unsent(unsent_);
    std::ranges::fill(unsent_, 0.0F);
  }
  if (!is_alone())
    reduce(outer(), ending == Ending::plain ? std::span<float>() : std::span(unsent_));
  Round round = round_under_way();
  measure(round, mean_.displacement());
  advance(ending);
  take_over_the_rest();
  begin_next_round();
  if (on_round_) on_round_(round);
}

// The average travels while the next round's first steps are computed.
void AveragingScheme::post_round() {
  under_way_->post(outer(), model_.parameters(), weight(), round_under_way(), unsent_);
  ++counted().global_reductions;
  counted().global_bytes += under_way_->mean().bytes();
  counted().collectives += under_way_->mean().collectives();
  begin_next_round();
}

// Statistics that have gone on since then stay as they are: the mean is older.
void AveragingScheme::apply_arrived() {
  PackedMean& mean = under_way_->arrived();
  auto [round, rates] = under_way_->take();
  measure(round, mean.displacement());
  model_.advance(mean.displacement());
  model_.count_step(rates);
  under_way_->move_to(replica().parameters, model_.parameters());
  if (progress_.steps == 0) std::ranges::copy(mean.statistics(), replica().statistics.begin());
  if (on_round_) on_round_(round);
}

// From W to the next W, and all replicas begin the next round there.
void AveragingScheme::advance(Ending ending) {
  const bool plain = ending == Ending::plain || model_.is_plain();
  if (plain && is_alone()) {
    model_.begin_round(replica().parameters);  // W + (w - W) is not quite w
    return;
  }
  if (plain) {
    model_.add(mean_.displacement());
  } else {
    model_.advance(mean_.displacement());
  }
  std::ranges::copy(model_.parameters(), replica().parameters.begin());
}

// This rank's samples since the round began, in units of a replica's mean share: exactly 1 where
// shares are equal, and between rounds.
float AveragingScheme::weight() const noexcept {
  if (progress_.samples == 0 || is_alone()) return 1.0F;
  const double own = static_cast<double>(progress_.own_samples) * outer().size();
  return static_cast<float>(own / static_cast<double>(progress_.samples));
}

void AveragingScheme::pack() {
  std::span<const float> state;
  if (local_state_ == LocalState::average) state = optimizer().state();
  mean_.pack(model_.parameters(), state, weight());
}

// What is averaged beside the parameters.
void AveragingScheme::take_over_the_rest() {
  std::ranges::copy(mean_.statistics(), replica().statistics.begin());
  if (local_state_ == LocalState::average && mean_.has_weight()) {
    std::ranges::copy(mean_.state(), optimizer().state().begin());
  }
  if (local_state_ == LocalState::reset) {
    std::ranges::fill(optimizer().state(), 0.0F);
    progress_.updates = 0;
  }
}

// What flush() would make of the model, without touching it.
void AveragingScheme::evaluate(std::span<float> parameters, std::span<float> statistics) {
  std::ranges::copy(replica().parameters, parameters.begin());
  std::ranges::copy(replica().statistics, statistics.begin());
  if (is_alone()) return;
  std::span<const float> start = replica().parameters;
  if (progress_.started) start = model_.parameters();
  std::optional<CommonModel> ahead;  // with the average that is under way
  if (is_under_way()) {
    ahead = model_.advanced(under_way_->arrived().displacement());
    start = ahead->parameters();
    under_way_->move_to(parameters, start);
  }
  mean_.pack(parameters, start, {}, weight());
  if (progress_.steps > 0) mean_.add_unsent(unsent_);
  mean_.reduce(outer());
  ++counted().evaluation_reductions;
  flat::sum_scaled(parameters, start, 1.0F, mean_.displacement());
  std::ranges::copy(mean_.statistics(), statistics.begin());
}

// The common model is read into a copy, which checks its sizes.
std::function<void()> AveragingScheme::read_state(ByteReader& reader) {
  Progress progress = Progress::read(reader);
  if (!period_of_) progress.period = schedule_.period();
  CommonModel model = model_;
  model.read(reader);
  std::vector<float> outer(outer_state().size());
  reader.get_array(std::span(outer));
  std::vector<float> unsent(unsent_.size());
  reader.get_array(std::span(unsent));
  // Between rounds the period is still to be asked for.
  if (progress.steps < 0 || (progress.steps > 0 && progress.steps >= progress.period)) {
    refuse("the state was saved after " + std::to_string(progress.steps) +
           " steps of a round, which has " + std::to_string(progress.period) + " here");
  }
  if ((reader.get<std::uint8_t>() != 0) != under_way_.has_value()) {
    refuse("the state was saved with another choice of overlap_steps, of 0 or more");
  }
  std::function<void()> average = under_way_ ? under_way_->read(reader) : [] {};
  return [this, progress, model = std::move(model), average = std::move(average),
          outer = std::move(outer), unsent = std::move(unsent)]() mutable {
    progress_ = progress;
    std::ranges::copy(outer, outer_state().begin());
    unsent_ = std::move(unsent);
    model_ = std::move(model);
    average();
  };
}

}  // namespace

std::unique_ptr<UpdateScheme> make_hierarchical(Replica replica,
                                                std::shared_ptr<Optimizer> optimizer,
                                                const HierarchicalOptions& options) {
  return std::make_unique<AveragingScheme>(hierarchical_scheme, std::move(replica),
                                           std::move(optimizer), options, options.levels);
}

std::unique_ptr<UpdateScheme> make_k_step(Replica replica, std::shared_ptr<Optimizer> optimizer,
                                          const KStepOptions& options) {
  return std::make_unique<AveragingScheme>(k_step_scheme, std::move(replica), std::move(optimizer),
                                           options, std::vector<AveragingLevel>());
}

}  // namespace rondo::sync
