#include "schemes/warm_up_scheme.hpp"

#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/byte_reader.hpp"
#include "base/byte_writer.hpp"
#include "base/counters.hpp"

namespace rondo::sync {
namespace {

constexpr std::string_view warm_up_state_name = "warm_up";
constexpr std::uint32_t warm_up_state_version = 1;

std::unique_ptr<UpdateScheme> checked(std::unique_ptr<UpdateScheme> scheme) {
  if (scheme == nullptr) throw std::invalid_argument("warm_up: both schemes must be given");
  return scheme;
}

}  // namespace

WarmUpScheme::WarmUpScheme(std::unique_ptr<UpdateScheme> first, std::unique_ptr<UpdateScheme> then,
                           std::int64_t steps)
    : first_(checked(std::move(first))), then_(checked(std::move(then))), steps_(steps) {
  if (steps < 0) throw std::invalid_argument("warm_up: a negative number of steps was given");
  if (steps == 0) first_.reset();
}

void WarmUpScheme::begin(const Step& step) {
  if (!warm() && done_ >= steps_) leave_first();
  active().begin(step);
}

// Not before begin(): what is asked after the last iteration of the warm-up concerns its result,
// which `then_` has not seen yet.
void WarmUpScheme::leave_first() {
  first_->flush();
  of_first_ = first_->counters();
  first_.reset();
}

void WarmUpScheme::make_ready(std::size_t layer) { active().make_ready(layer); }

void WarmUpScheme::gradients_final(std::size_t layer) { active().gradients_final(layer); }

void WarmUpScheme::finish() {
  active().finish();
  if (!warm()) ++done_;
}

void WarmUpScheme::copy_for_evaluation(std::span<float> parameters, std::span<float> statistics) {
  active().copy_for_evaluation(parameters, statistics);
}

void WarmUpScheme::flush() { active().flush(); }

std::vector<std::span<const float>> WarmUpScheme::replicated() const {
  return active().replicated();
}

std::vector<std::byte> WarmUpScheme::save() const {
  ByteWriter writer(warm_up_state_name, warm_up_state_version);
  writer.put(static_cast<std::uint8_t>(warm()));
  writer.put(done_);
  write(writer, of_first_);
  writer.put_array(std::span<const std::byte>(active().save()));
  return writer.take();
}

void WarmUpScheme::restore(std::span<const std::byte> state) {
  ByteReader reader(state, warm_up_state_name, warm_up_state_version);
  const bool was_warm = reader.get<std::uint8_t>() != 0;
  const auto done = reader.get<std::int64_t>();
  const SchemeCounters of_first = read_counters(reader);
  const std::span<const std::byte> of_active = reader.get_bytes();
  reader.expect_end();
  if (warm() && !was_warm) {
    throw std::logic_error(
        "warm_up: this state is from within the warm-up, which is over here; restore it to a new "
        "scheme");
  }
  (was_warm ? *then_ : *first_).restore(of_active);
  if (was_warm) first_.reset();
  done_ = done;
  of_first_ = of_first;
}

SchemeCounters WarmUpScheme::counters() const noexcept {
  return sum(of_first_, active().counters());
}

std::optional<Pace> WarmUpScheme::pace() const noexcept { return active().pace(); }

std::unique_ptr<UpdateScheme> make_warm_up(std::unique_ptr<UpdateScheme> first,
                                           std::unique_ptr<UpdateScheme> then, std::int64_t steps) {
  return std::make_unique<WarmUpScheme>(std::move(first), std::move(then), steps);
}

}  // namespace rondo::sync
