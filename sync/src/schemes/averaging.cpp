// K-step and hierarchical averaging: one class, where K-step averaging has no levels.
//
// A rank makes steps of its own. It exchanges its displacement from W, the parameters that all
// ranks held when the round began, and not its parameters: so averages of ranks that agree are
// exact, and a reduction momentum can act on the mean displacement. Everything that a reduction
// writes is a copy in the arena. A lost rank leaves the model as it was.
//
// A model may be cut into fragments of whole layers. Each has rounds of its own, which end in turn,
// so that a round's bytes are spread over its steps.
//
// With overlap the average of a round travels while the next one computes. The round then begins
// from the rank's own parameters; what it has moved until the average arrives is moved again from
// the new W.

#include "schemes/averaging.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <utility>

#include <rondo/sync/scheme_base.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "base/reductions.hpp"
#include "flat/flat.hpp"
#include "schemes/fragment.hpp"

namespace rondo::sync {
namespace {

/// Where a rank is in training by averages.
struct Progress {
  bool started = false;      ///< has the first iteration begun, and W been taken?
  std::int64_t updates = 0;  ///< that the optimizer's state has seen
  double own_loss = 0.0;     ///< of this rank's samples in the round
  double loss = 0.0;         ///< mean of all ranks' samples in the round before
  double first_loss = 0.0;   ///< in the first round

  void write(ByteWriter& writer) const {
    writer.put(started);
    writer.put(updates);
    for (const double value : {own_loss, loss, first_loss}) writer.put(value);
  }

  static Progress read(ByteReader& reader) {
    Progress progress{.started = reader.get<std::uint8_t>() != 0};
    progress.updates = reader.get<std::int64_t>();
    for (double* value : {&progress.own_loss, &progress.loss, &progress.first_loss}) {
      *value = reader.get<double>();
    }
    return progress;
  }
};

class AveragingScheme final : public SchemeBase {
 public:
  AveragingScheme(const SchemeDescription& described, Replica given,
                  std::shared_ptr<Optimizer> optimizer, const KStepOptions& options)
      :  // The same format for both: without levels they are the same scheme.
        SchemeBase(described, std::move(given), std::move(optimizer),
                   {.version = 6, .name = "averaging"}),
        local_state_(options.local_state),
        clip_norm_(options.clip_norm),
        sums_(replica(), 1),
        on_round_(options.on_round),
        period_of_(options.period_of),
        losses_(options.sums_losses ? 1 : 0, 0.0, &replica().world->arena()),
        outer_optimizer_(options.outer_optimizer),
        overlap_steps_(options.overlap_steps),
        schedule_(described.name, options.period, options.levels, outer()) {
    if (!(clip_norm_ >= 0.0)) {
      refuse("a clip_norm of " + std::to_string(clip_norm_) + " is negative or NaN");
    }
    check_fragments(options.fragments, options.period);
    if (overlap_steps_ < 0) {
      refuse("overlap_steps of " + std::to_string(overlap_steps_) + " are negative");
    }
    if (overlap_steps_ > 0 && local_state_ != LocalState::keep) {
      refuse(
          "overlap_steps need a local state that ranks keep: what an average makes of it would "
          "come late");
    }
    make_fragments(static_cast<std::size_t>(options.fragments),
                   {.scheme = described.name,
                    .momentum = options.momentum,
                    .state_size = averages_state() ? this->optimizer().state().size() : 0,
                    .sends_bf16 = sends_bf16(options.average_type),
                    .overlaps = overlap_steps_ > 0 && !is_alone()});
    if (outer_optimizer_) {
      take_outer_optimizer(options.outer_learning_rate);
    } else if (options.outer_learning_rate != 1.0) {
      refuse(
          "outer_learning_rate is read with an outer_optimizer only; a reduction momentum has "
          "outer_rate");
    }
  }

  void add_loss(double sum) override {
    if (!losses_.empty()) progress_.own_loss += sum;
  }

  [[nodiscard]] std::vector<std::span<const float>> replicated() const override {
    if (!progress_.started) return {replica().parameters};
    std::vector<std::span<const float>> held;
    for (const Fragment& fragment : fragments_) {
      held.push_back(fragment.model.parameters());
      if (!fragment.model.velocity().empty()) held.push_back(fragment.model.velocity());
    }
    if (outer_optimizer_) held.push_back(outer_optimizer_->state());
    return held;
  }

 private:
  /// How the mean displacement enters the common model.
  enum class Ending : std::uint8_t { with_momentum, plain };

  void begin_iteration() override;
  void end_iteration() override;
  void evaluate(std::span<float> parameters, std::span<float> statistics) override;
  void apply_pending() override {
    for (Fragment& fragment : fragments_) {
      if (fragment.is_under_way()) apply_arrived(fragment);
      if (fragment.progress.steps > 0) {
        end_round(fragment, Ending::plain);
      } else if (!period_of_) {
        fragment.progress.period = fragment.first_period;
      }
    }
  }
  void write_state(ByteWriter& writer) const override {
    progress_.write(writer);
    writer.put(static_cast<std::uint64_t>(fragments_.size()));
    for (const Fragment& fragment : fragments_) fragment.write(writer);
    const std::span<const float> outer = outer_state();
    writer.put_array(outer);
  }
  [[nodiscard]] std::function<void()> read_state(ByteReader& reader) override;

  [[nodiscard]] bool is_alone() const noexcept { return outer().size() == 1; }
  [[nodiscard]] bool averages_state() const noexcept { return local_state_ == LocalState::average; }
  [[nodiscard]] std::span<float> outer_state() const noexcept {
    return outer_optimizer_ ? outer_optimizer_->state() : std::span<float>();
  }
  void check_fragments(std::int64_t fragments, std::int64_t period) const;
  [[nodiscard]] bool sends_bf16(transport::ElementType type) const;
  [[nodiscard]] std::vector<std::uint64_t> whole_sizes() const;
  void make_fragments(std::size_t count, Fragment::Settings settings);
  void take_outer_optimizer(double learning_rate);
  [[nodiscard]] std::int64_t next_period(const Fragment& fragment) const;
  void add_up_losses(std::int64_t samples);
  void step_locally();
  void advance_round(Fragment& fragment);
  void count_reduction(const Fragment& fragment, const PackedMean& mean, bool global);
  void reduce(Fragment& fragment, transport::Communicator& group, std::span<float> unsent);
  void average_locally(Fragment& fragment, transport::Communicator& group);
  void end_round(Fragment& fragment, Ending ending);
  void post_round(Fragment& fragment);
  void apply_arrived(Fragment& fragment);
  void begin_next_round(Fragment& fragment, Ending ending);
  void measure(const Fragment& fragment, Round& round, std::span<const float> displacement);
  void advance(Fragment& fragment, Ending ending);
  void pack(Fragment& fragment);
  void take_over_the_rest(Fragment& fragment);

  LocalState local_state_;
  double clip_norm_;
  ModelSums sums_;
  std::function<void(const Round&)> on_round_;
  PeriodPolicy period_of_;
  std::pmr::vector<double> losses_;             // in the arena; empty: nobody asks for them
  std::shared_ptr<Optimizer> outer_optimizer_;  // null: the model's momentum makes outer steps
  std::int64_t overlap_steps_;
  AveragingSchedule schedule_;
  std::deque<Fragment> fragments_;  // which do not move
  Progress progress_;
};

void AveragingScheme::check_fragments(std::int64_t fragments, std::int64_t period) const {
  const auto layers = static_cast<std::int64_t>(replica().layers.size());
  const std::string given = "fragments of " + std::to_string(fragments);
  if (fragments < 1) refuse("fragments must be at least 1, not " + std::to_string(fragments));
  if (fragments == 1) return;
  if (fragments > layers) {
    refuse(given + " are more than the replica's layers, which are " + std::to_string(layers));
  }
  if (fragments > period) {
    refuse(given + " are more than the steps of a round, which are " + std::to_string(period));
  }
  if (local_state_ != LocalState::keep) refuse("fragments need a local state that ranks keep");
  if (period_of_) refuse("fragments need a constant period");
}

bool AveragingScheme::sends_bf16(transport::ElementType type) const {
  if (type == transport::ElementType::f32) return false;
  if (type != transport::ElementType::bf16) refuse("averages are sent as f32 or bf16");
  return !is_alone();
}

// Slices of a layer may be of another size on other ranks of the replica, which must cut alike:
// copies of a layer that is not split would be averaged at different times.
std::vector<std::uint64_t> AveragingScheme::whole_sizes() const {
  std::vector<std::uint64_t> sizes;
  for (const Layer& layer : replica().layers) sizes.push_back(layer.size);
  if (replica().slices.over != nullptr) {
    replica().slices.over->allreduce(std::span(sizes)).wait();
  }
  return sizes;
}

// The first rounds of fragments are shorter by parts of a period, so that later ones end in turn.
void AveragingScheme::make_fragments(std::size_t count, Fragment::Settings settings) {
  const std::int64_t period = schedule_.period();
  std::vector<FragmentRange> ranges = {{.offset = 0, .size = replica().parameters.size()}};
  if (count > 1) ranges = cut_into_fragments(replica().layers, whole_sizes(), count);
  for (const FragmentRange& range : ranges) {
    const auto index = static_cast<std::int64_t>(fragments_.size());
    settings.first_period = period - index * period / static_cast<std::int64_t>(count);
    settings.with_statistics = index == 0;
    fragments_.emplace_back(replica(), range, settings);
  }
}

void AveragingScheme::take_outer_optimizer(double learning_rate) {
  if (!fragments_.front().model.is_plain()) {
    refuse("an outer optimizer takes the place of a reduction momentum");
  }
  if (outer_optimizer_->size() != replica().parameters.size()) {
    refuse("the outer optimizer is for " + std::to_string(outer_optimizer_->size()) +
           " parameters, and the replica has " + std::to_string(replica().parameters.size()));
  }
  if (!(learning_rate > 0.0)) {
    refuse("an outer learning rate of " + std::to_string(learning_rate) + " is not positive");
  }
  for (Fragment& fragment : fragments_) {
    fragment.model.step_by(outer_optimizer_, learning_rate, fragment.offset);
  }
}

// The first iteration takes W, which all ranks hold alike then.
void AveragingScheme::begin_iteration() {
  if (!std::exchange(progress_.started, true)) {
    for (Fragment& fragment : fragments_) fragment.model.begin_round(fragment.replica.parameters);
    progress_.updates = step().updates();
  }
  if (!period_of_) return;
  RoundProgress& round = fragments_.front().progress;
  if (round.steps == 0) round.period = next_period(fragments_.front());
}

std::int64_t AveragingScheme::next_period(const Fragment& fragment) const {
  const std::int64_t index = fragment.progress.round;
  const std::int64_t period = period_of_({.index = index,
                                          .step = step().index,
                                          .period = schedule_.period(),
                                          .learning_rate = step().learning_rate,
                                          .loss = progress_.loss,
                                          .first_loss = progress_.first_loss});
  if (period >= 1) return period;
  refuse("period_of gives round " + std::to_string(index) + " " + std::to_string(period) +
         " steps; it has at least 1");
}

void AveragingScheme::end_iteration() {
  step_locally();
  for (Fragment& fragment : fragments_) advance_round(fragment);
}

// After a local step comes the slowest of the averages that are due.
void AveragingScheme::advance_round(Fragment& fragment) {
  fragment.count_step(step());
  const std::int64_t steps = fragment.progress.steps;
  const bool ends = fragment.ends();
  const bool averages = ends || schedule_.is_level_due_after(steps);
  if (fragment.is_under_way() && (averages || steps >= overlap_steps_)) apply_arrived(fragment);
  if (ends && fragment.under_way) {
    post_round(fragment);
  } else if (ends) {
    end_round(fragment, Ending::with_momentum);
  } else if (transport::Communicator* group = schedule_.group_due_after(steps)) {
    average_locally(fragment, *group);
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

// All fragments together are one reduction of the model; each has a collective of its own.
void AveragingScheme::count_reduction(const Fragment& fragment, const PackedMean& mean,
                                      bool global) {
  const std::uint64_t reductions = fragment.offset == 0 ? 1 : 0;
  (global ? counted().global_reductions : counted().local_reductions) += reductions;
  (global ? counted().global_bytes : counted().local_bytes) += mean.bytes();
  counted().collectives += mean.collectives();
}

// What is global depends on the ranks that communicate, not on which level asked for it: a level's
// group may be all replicas, as the ranks of a node are where there is but one.
void AveragingScheme::reduce(Fragment& fragment, transport::Communicator& group,
                             std::span<float> unsent) {
  fragment.mean.reduce(group, unsent);
  count_reduction(fragment, fragment.mean, group.size() == outer().size());
}

// W stays as it is: the round goes on from the group's mean.
void AveragingScheme::average_locally(Fragment& fragment, transport::Communicator& group) {
  pack(fragment);
  reduce(fragment, group, fragment.unsent);
  flat::sum_scaled(fragment.replica.parameters, fragment.model.parameters(), 1.0F,
                   fragment.mean.displacement());
  take_over_the_rest(fragment);
}

// Over the World and not over `outer`: the ranks of a replica that share samples each have a part
// of their loss.
void AveragingScheme::add_up_losses(std::int64_t samples) {
  if (losses_.empty()) return;
  losses_[0] = std::exchange(progress_.own_loss, 0.0);
  transport::Communicator& all = replica().world->communicator();
  if (all.size() > 1) {
    all.allreduce(std::span<double>(losses_)).wait();
    ++counted().collectives;
    counted().global_bytes += std::span(losses_).size_bytes();
  }
  progress_.loss = losses_[0] / static_cast<double>(samples);
  if (fragments_.front().progress.round == 0) progress_.first_loss = progress_.loss;
}

// After a flush rounds have the lengths of the first ones, so that fragments go on in turn.
void AveragingScheme::begin_next_round(Fragment& fragment, Ending ending) {
  fragment.begin_round(ending == Ending::plain ? fragment.first_period : schedule_.period());
}

// The displacement's length is a sum over all slices of the model, so that every rank takes part in
// it, whether or not it has a callback.
void AveragingScheme::measure(const Fragment& fragment, Round& round,
                              std::span<const float> displacement) {
  if (!on_round_ && !sums_.is_shared()) return;
  double squared = sums_.own_dot(displacement, displacement, fragment.offset);
  sums_.add_up({&squared, 1});
  round.displacement = std::sqrt(squared);
}

// A plain ending leaves nothing behind: it is that of flush().
void AveragingScheme::end_round(Fragment& fragment, Ending ending) {
  pack(fragment);
  if (ending == Ending::plain) {
    fragment.mean.add_unsent(fragment.unsent);
    std::ranges::fill(fragment.unsent, 0.0F);
  }
  if (!is_alone()) {
    reduce(fragment, outer(),
           ending == Ending::plain ? std::span<float>() : std::span(fragment.unsent));
  }
  Round round = fragment.round_under_way();
  measure(fragment, round, fragment.mean.displacement());
  advance(fragment, ending);
  take_over_the_rest(fragment);
  add_up_losses(fragment.progress.samples);
  begin_next_round(fragment, ending);
  if (on_round_) on_round_(round);
}

// The average travels while the next round's first steps are computed.
void AveragingScheme::post_round(Fragment& fragment) {
  // Awaited at once, and collectives end in the order in which they were posted: behind the average
  // it would wait for that.
  add_up_losses(fragment.progress.samples);
  fragment.under_way->post(outer(), fragment.model.parameters(), fragment.weight(outer().size()),
                           fragment.round_under_way(), fragment.unsent);
  count_reduction(fragment, fragment.under_way->mean(), true);
  begin_next_round(fragment, Ending::with_momentum);
}

// Statistics that have gone on since then stay as they are: the mean is older.
void AveragingScheme::apply_arrived(Fragment& fragment) {
  PackedMean& mean = fragment.under_way->arrived();
  auto [round, rates] = fragment.under_way->take();
  measure(fragment, round, mean.displacement());
  fragment.model.advance(mean.displacement());
  fragment.model.count_step(rates);
  fragment.under_way->move_to(fragment.replica.parameters, fragment.model.parameters());
  if (fragment.progress.steps == 0) {
    std::ranges::copy(mean.statistics(), fragment.replica.statistics.begin());
  }
  if (on_round_) on_round_(round);
}

// From W to the next W, and all replicas begin the next round there.
void AveragingScheme::advance(Fragment& fragment, Ending ending) {
  CommonModel& model = fragment.model;
  const bool plain = ending == Ending::plain || model.is_plain();
  if (plain && is_alone()) {
    model.begin_round(fragment.replica.parameters);  // W + (w - W) is not quite w
    return;
  }
  if (plain) {
    model.add(fragment.mean.displacement());
  } else {
    model.advance(fragment.mean.displacement());
  }
  std::ranges::copy(model.parameters(), fragment.replica.parameters.begin());
}

void AveragingScheme::pack(Fragment& fragment) {
  std::span<const float> state;
  if (local_state_ == LocalState::average) state = optimizer().state();
  fragment.mean.pack(fragment.model.parameters(), state, fragment.weight(outer().size()));
}

// What is averaged beside the parameters.
void AveragingScheme::take_over_the_rest(Fragment& fragment) {
  PackedMean& mean = fragment.mean;
  std::ranges::copy(mean.statistics(), fragment.replica.statistics.begin());
  if (local_state_ == LocalState::average && mean.has_weight()) {
    std::ranges::copy(mean.state(), optimizer().state().begin());
  }
  if (local_state_ == LocalState::reset) {
    std::ranges::fill(optimizer().state(), 0.0F);
    progress_.updates = 0;
  }
}

// Computes the model that flush() would give, without touching this one.
void AveragingScheme::evaluate(std::span<float> parameters, std::span<float> statistics) {
  std::ranges::copy(replica().parameters, parameters.begin());
  std::ranges::copy(replica().statistics, statistics.begin());
  if (is_alone()) return;
  for (Fragment& fragment : fragments_) {
    fragment.evaluate(outer(), progress_.started,
                      parameters.subspan(fragment.offset, fragment.replica.parameters.size()),
                      statistics.first(fragment.replica.statistics.size()));
  }
  ++counted().evaluation_reductions;
}

std::function<void()> AveragingScheme::read_state(ByteReader& reader) {
  const Progress progress = Progress::read(reader);
  const auto fragments = reader.get<std::uint64_t>();
  if (fragments != fragments_.size()) {
    refuse("the state was saved with " + std::to_string(fragments) + " fragments, and here are " +
           std::to_string(fragments_.size()));
  }
  std::vector<std::function<void()>> takeovers;
  for (Fragment& fragment : fragments_) {
    Fragment::Saved saved = fragment.read(reader);
    RoundProgress round = saved.progress;
    if (!period_of_ && fragments_.size() == 1) round.period = schedule_.period();
    // Between rounds the period is still to be asked for.
    if (round.steps < 0 || (round.steps > 0 && round.steps >= round.period)) {
      refuse("the state was saved after " + std::to_string(round.steps) +
             " steps of a round, which has " + std::to_string(round.period) + " here");
    }
    takeovers.push_back([round, take_over = std::move(saved.take_over)] { take_over(round); });
  }
  std::vector<float> outer(outer_state().size());
  reader.get_array(std::span(outer));
  return [this, progress, takeovers = std::move(takeovers), outer = std::move(outer)] {
    progress_ = progress;
    for (const auto& take_over : takeovers) take_over();
    std::ranges::copy(outer, outer_state().begin());
  };
}

}  // namespace

std::unique_ptr<UpdateScheme> make_hierarchical(Replica replica,
                                                std::shared_ptr<Optimizer> optimizer,
                                                const HierarchicalOptions& options) {
  return std::make_unique<AveragingScheme>(hierarchical_scheme, std::move(replica),
                                           std::move(optimizer), options);
}

std::unique_ptr<UpdateScheme> make_k_step(Replica replica, std::shared_ptr<Optimizer> optimizer,
                                          const KStepOptions& options) {
  if (!options.levels.empty()) {
    throw std::invalid_argument("k_step: levels are for make_hierarchical()");
  }
  return std::make_unique<AveragingScheme>(k_step_scheme, std::move(replica), std::move(optimizer),
                                           options);
}

}  // namespace rondo::sync
