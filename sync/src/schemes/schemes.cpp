// The schemes of this library, one line each; and two of them in a row.

#include <rondo/sync/update_scheme.hpp>

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>
#include <rondo/sync/scheme_base.hpp>
#include <rondo/sync/sharded.hpp>
#include <rondo/sync/synchronous.hpp>

namespace rondo::sync {
namespace {

constexpr std::array all_schemes{
    synchronous_scheme,   //
    sharded_scheme,       //
    lazy_scheme,          //
    k_step_scheme,        //
    hierarchical_scheme,  //
    cyclic_scheme,
};

constexpr std::string_view warm_up_state_name = "warm_up";
constexpr std::uint32_t warm_up_state_version = 2;

/// Two schemes in a row. The first one is flushed in the begin() of the second one's first
/// iteration, and not before: what is asked after the last iteration of the warm-up concerns its
/// result, which the second scheme has not seen yet.
class WarmUpScheme final : public UpdateScheme {
 public:
  WarmUpScheme(std::unique_ptr<UpdateScheme> first, std::unique_ptr<UpdateScheme> then,
               std::int64_t steps)
      : first_(std::move(first)), then_(std::move(then)), steps_(steps) {
    if (first_ == nullptr || then_ == nullptr) {
      throw std::invalid_argument("warm_up: both schemes must be given");
    }
    if (steps > 0 && first_->description().divides_optimizer) {
      throw std::invalid_argument("warm_up: " + std::string(first_->description().name) +
                                  " leaves each rank a share of the momenta, and no other scheme "
                                  "can go on with these; begin with synchronous");
    }
    if (steps < 0) throw std::invalid_argument("warm_up: a negative number of steps was given");
    if (steps == 0) first_.reset();
  }

  void begin(const Step& step) override {
    if (!is_over() && done_ >= steps_) leave_first();
    active().begin(step);
  }
  void make_ready(std::size_t layer) override { active().make_ready(layer); }
  void gradients_final(std::size_t layer) override { active().gradients_final(layer); }
  void add_loss(double sum) override { active().add_loss(sum); }
  void finish() override {
    active().finish();
    if (!is_over()) ++done_;
  }
  void copy_for_evaluation(std::span<float> parameters, std::span<float> statistics) override {
    active().copy_for_evaluation(parameters, statistics);
  }
  void flush() override { active().flush(); }
  [[nodiscard]] std::vector<std::span<const float>> replicated() const override {
    return active().replicated();
  }
  [[nodiscard]] std::vector<std::byte> save() const override;
  void restore(std::span<const std::byte> state) override;
  [[nodiscard]] SchemeCounters counters() const noexcept override {
    return of_first_ + active().counters();
  }
  [[nodiscard]] const SchemeDescription& description() const noexcept override {
    return then_->description();
  }
  [[nodiscard]] std::optional<Pace> pace() const noexcept override { return active().pace(); }
  [[nodiscard]] bool wants_inner_sums() const noexcept override {
    return active().wants_inner_sums();
  }

 private:
  [[nodiscard]] bool is_over() const noexcept { return first_ == nullptr; }
  [[nodiscard]] UpdateScheme& active() noexcept { return is_over() ? *then_ : *first_; }
  [[nodiscard]] const UpdateScheme& active() const noexcept { return is_over() ? *then_ : *first_; }
  void leave_first() {
    first_->flush();
    of_first_ = first_->counters();
    first_.reset();
  }

  std::unique_ptr<UpdateScheme> first_;  // null once `then_` has taken over
  std::unique_ptr<UpdateScheme> then_;
  std::int64_t steps_;
  std::int64_t done_ = 0;    // iterations of first_
  SchemeCounters of_first_;  // what it had counted at its end
};

std::vector<std::byte> WarmUpScheme::save() const {
  ByteWriter writer(warm_up_state_name, warm_up_state_version);
  writer.put(static_cast<std::uint8_t>(is_over()));
  writer.put(steps_);
  writer.put(done_);
  write_counters(writer, of_first_);
  writer.put_array(std::span<const std::byte>(active().save()));
  return writer.take();
}

void WarmUpScheme::restore(std::span<const std::byte> state) {
  ByteReader reader(state, warm_up_state_name, warm_up_state_version);
  const bool was_over = reader.get<std::uint8_t>() != 0;
  const auto steps = reader.get<std::int64_t>();
  const auto done = reader.get<std::int64_t>();
  const SchemeCounters of_first = read_counters(reader);
  const std::span<const std::byte> of_active = reader.get_bytes();
  reader.expect_end();
  if (is_over() && !was_over) {
    throw std::logic_error(
        "warm_up: this state is from within the warm-up, which is over here; restore it to a new "
        "scheme");
  }
  (was_over ? *then_ : *first_).restore(of_active);
  if (was_over) first_.reset();
  steps_ = steps;  // a run that went on with less than all of its warm-up has fewer
  done_ = done;
  of_first_ = of_first;
}

}  // namespace

std::span<const SchemeDescription> schemes() noexcept { return all_schemes; }

const SchemeDescription& describe_scheme(std::string_view name) {
  std::string known;
  for (const SchemeDescription& scheme : all_schemes) {
    if (scheme.name == name) return scheme;
    known += (known.empty() ? "" : ", ") + std::string(scheme.name);
  }
  throw std::invalid_argument("no scheme is called " + std::string(name) + "; there are: " + known);
}

std::unique_ptr<UpdateScheme> make_warm_up(std::unique_ptr<UpdateScheme> first,
                                           std::unique_ptr<UpdateScheme> then, std::int64_t steps) {
  return std::make_unique<WarmUpScheme>(std::move(first), std::move(then), steps);
}

}  // namespace rondo::sync
