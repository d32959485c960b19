#pragma once

#include <cstdint>

namespace rondo::sync {

/// What the mean displacement D of a round does to the common parameters W, where V remembers
/// the rounds before (zero at first).
enum class MomentumKind : std::uint8_t {
  /// Cong, Yang, Zhou 2019: V = mu*V + D; W = W + V.
  classical,
  /// V = mu*V + D; W = W + (D + mu*V). DiLoCo at an outer rate of 1.
  nesterov,
  /// Wang, Tantia, Ballas, Rabbat, "SlowMo", ICLR 2020, at a slow rate of 1: as classical, with a
  /// momentum that is kept in units of gradient. V is a displacement here, and follows the learning
  /// rate instead: V = mu * (H/H_before) * V + D; W = W + V, where H is the sum of the learning
  /// rates of a round's steps.
  slowmo,
  /// Douillard et al., "DiLoCo", 2023: Nesterov's SGD on the outer gradient -D.
  /// V = mu*V + D; W = W + outer_rate * (D + mu*V).
  diloco,
};

/// Reduction momentum: the global averages of K-step and hierarchical averaging as steps of an
/// outer optimizer. `mu` = 0 is no momentum: W = W + D, of diloco W = W + outer_rate * D.
///
/// Only slowmo's memory follows the learning rate: as rates fall, so does what V adds to W, and
/// after a warm-up the short rounds of its beginning weigh as their gradients do. The others' V is
/// a displacement of past rounds, whatever their rates were: under a falling rate W goes on by what
/// V remembers of higher ones, for about 1/(1-mu) rounds.
///
/// H_before is that of the last round that ended in a step of the momentum and had a rate; a round
/// whose rates were all 0 adds D alone, and leaves V.
struct ReductionMomentum {
  MomentumKind kind = MomentumKind::classical;
  float mu = 0.0F;          ///< 0 <= mu < 1
  float outer_rate = 1.0F;  ///< of diloco; the others have none and take only 1
};

}  // namespace rondo::sync
