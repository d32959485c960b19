// How long a round of averaging is, where it is not always the same. A policy is a function of what
// all ranks know alike, so that they decide alike without asking each other; the one number that
// they have to sum for it, the loss, the averaging scheme sums at the end of a round.

#include <rondo/sync/period_policy.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

namespace rondo::sync {

PeriodPolicy post_local(std::int64_t from) {
  return [from](const RoundStart& round) { return round.step < from ? 1 : round.period; };
}

// A rate of 0 makes the quotient infinite: the longest round, as for every number that is too large
// for an integer.
PeriodPolicy qsr(double alpha) {
  if (!(alpha > 0.0)) {
    throw std::invalid_argument("qsr: an alpha of " + std::to_string(alpha) + " is not positive");
  }
  return [alpha](const RoundStart& round) {
    constexpr double longest = std::numeric_limits<std::int32_t>::max();
    // 0.3 / 0.1 is a little less than 3.
    const double quotient = alpha / round.learning_rate * (1.0 + 1e-12);
    const double steps = std::min(std::floor(quotient * quotient), longest);
    return std::max(round.period, static_cast<std::int64_t>(steps));
  };
}

PeriodPolicy qsr(double alpha, std::int64_t warmup_steps, double rate) {
  return [rule = qsr(alpha), warmup_steps, rate](RoundStart round) {
    if (round.step < warmup_steps) round.learning_rate = rate;
    return rule(round);
  };
}

PeriodPolicy adaptive() {
  return [](const RoundStart& round) {
    const double share = round.loss / round.first_loss;
    if (!(share < 1.0)) return round.period;  // 0/0 as well: there is no loss yet
    const double steps = std::ceil(std::sqrt(share) * static_cast<double>(round.period));
    return std::max(std::int64_t{1}, static_cast<std::int64_t>(steps));
  };
}

}  // namespace rondo::sync
