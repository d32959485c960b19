#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <rondo/sync/export.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/period_policy.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/transport/element.hpp>

namespace rondo::transport {
class Communicator;
}

namespace rondo::sync {

/// How the mean displacement D of a round changes the common parameters W; V remembers the rounds
/// before (zero at first).
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

inline constexpr SchemeDescription k_step_scheme{.name = "k_step",
                                                 .exchange = Exchange::parameters,
                                                 .warm_up = WarmUp::advised,
                                                 .sums_in_bf16 = true};

/// The treatment of a rank's optimizer state (momenta) when parameters are averaged.
enum class LocalState : std::uint8_t {
  keep,     ///< each rank goes on with its own
  average,  ///< over the same ranks as the parameters, in the same collective
  reset,    ///< to zero; updates are counted from 0 again (Adam's bias correction)
};

/// A round that has ended in a global average.
struct Round {
  std::int64_t index = 0;      ///< 0, 1, 2, ...
  std::int64_t steps = 0;      ///< iterations in it: its period, or fewer where flush() ended it
  std::int64_t samples = 0;    ///< of all ranks, in those
  double displacement = 0;     ///< how far it went: the length of D
  std::int64_t last_step = 0;  ///< Step::index of the last of them; averages may arrive later
};

/// Ranks that average among themselves between two global averages.
struct AveragingLevel {
  std::int64_t period = 4;  ///< local steps between two averages, at least 1
  /// This rank's group, for example the ranks of its node; lent, outlives the scheme. The ranks of
  /// a replica have groups of the same replicas.
  transport::Communicator* group = nullptr;
};

struct KStepOptions {
  std::int64_t period = 16;  ///< K: local steps between two global averages, at least 1
  /// Read by make_hierarchical() alone, from the fastest to the slowest. Each period is a multiple
  /// of the one before, and K of the last. None at all: K-step averaging.
  std::vector<AveragingLevel> levels = {};
  ReductionMomentum momentum = {};
  LocalState local_state = LocalState::keep;
  /// Local mean gradients longer than this are scaled down to it. 0: not clipped.
  double clip_norm = 0.0;
  /// Called on the scheme's thread, inside finish() or flush(). Empty: nothing.
  std::function<void(const Round&)> on_round = {};
  /// How long each round is; empty: `period`, always. period_policy.hpp has some.
  PeriodPolicy period_of = {};
  /// Sums the losses of a round for RoundStart::loss: one allreduce of 8 bytes more for each round,
  /// over the World. add_loss() must be called in every step.
  bool sums_losses = false;
  /// Makes the outer step of a round instead of `momentum`, which is the default one then: W is
  /// updated with the gradient -D at `outer_learning_rate`. SGD with Nesterov's momentum is DiLoCo
  /// (Douillard et al. 2023), Adam is FedAdam (Reddi et al., ICLR 2021) with Adam's bias
  /// correction. It belongs to this rank's scheme alone, and is for as many parameters.
  std::shared_ptr<Optimizer> outer_optimizer = {};
  double outer_learning_rate = 1.0;
  /// The global average of a round is applied so many local steps after the round's end, and
  /// overlaps with them. 0: it is waited for. Needs LocalState::keep.
  std::int64_t overlap_steps = 0;
  /// The model is averaged in so many parts of whole layers, each with rounds of its own, which end
  /// in turn. At most the layers and the period; more than 1 needs LocalState::keep and a constant
  /// period.
  std::int64_t fragments = 1;
  /// The type in which displacements are sent: f32 or bf16. With bf16 a rank adds what rounding has
  /// left out of its displacement to what it sends next (error feedback).
  transport::ElementType average_type = transport::ElementType::f32;
};

/// K-step averaging: Zhou, Cong, "On the convergence properties of a K-step averaging stochastic
/// gradient descent algorithm for nonconvex optimization", IJCAI 2018; with reduction momentum:
/// Cong, Yang, Zhou, ICPP Workshops 2019.
///
///     w_j = W on every rank j, at the first iteration and after each round
///     K times:  g_j = mean over the rank's own samples;  w_j = optimizer(w_j, g_j)
///     D = sum over all P ranks of n_j / n (w_j - W)                        global average
///     W = W + D, or as the ReductionMomentum says
///
/// where rank j has had n_j of the round's n samples. With equal shares D is the plain mean.
///
/// Sends nothing in K-1 of K iterations (with Slices and clip_norm 8 bytes per rank). Each K-th
/// ends in one allreduce over `outer` of M = 4 (parameters + statistics [+ optimizer state, if
/// averaged] + 1, the rank's weight) bytes: 2 (P-1)/P M/K bytes per iteration and rank, and K times
/// fewer reductions than synchronous. K = 1 with plain SGD is synchronous SGD, to rounding,
/// whatever the shares; with momentum it is if optimizer states are averaged.
///
/// - **Parameters** are equal on all ranks when the first begin() is called; W is copied there, and
///   rounds count from there on, whatever Step::index is, across epochs. Averages run on copies
///   of the displacements in the arena: parameters change after a reduction has succeeded.
/// - **Statistics** (batch norm's) become their plain mean; no momentum touches them.
/// - **The period** may differ from round to round: `period_of` is asked when a round begins.
/// - **Overlap.** With `overlap_steps` d > 0 the average is posted when the round ends, and another
///   round begins at once, from the rank's own parameters x_j. d steps later, or at the next
///   average if that is earlier, the mean displacement is waited for: W moves as without overlap,
///   and the steps since then are made again from there, w_j = W + (w_j - x_j), as in DaSGD (Zhou
///   et al. 2020), CO2 (Sun et al., ICLR 2024) and Streaming DiLoCo (Douillard et al. 2025). The
///   next displacement is w_j - W: each local step counts once. Statistics stay the rank's own
///   while training, since the mean would be older than they are; copies for evaluation and
///   flush() average them. The same bytes, as much memory again as an average, and one copy more of
///   the parameters. flush() applies what is under way; copy_for_evaluation() and save() wait for
///   it, and the state holds it.
/// - **Fragments.** With `fragments` F > 1 the layers are cut into F parts of about the same size.
///   Part i has rounds of its own, of which the first is i K/F steps shorter, so that one part
///   after the other is averaged (Streaming DiLoCo). All that is said of W, V, D and n_j holds for
///   each part; on_round is called for each. In K steps F collectives of 4 (parameters + statistics
///   + F) bytes together, counted as one reduction. After flush() rounds begin as at first. Where
///   replicas have Slices::over, their ranks make the scheme together, in a collective.
/// - **bf16.** With `average_type` bf16 each rank sends q_j = bf16(d_j + e_j), where d_j is its
///   weighed displacement, and keeps e_j = d_j + e_j - q_j for the next average (Seide et al.,
///   2014; Karimireddy et al., ICML 2019): 2 parameters + 4 (statistics [+ state] + 1) bytes, in
///   two collectives. Sums over ranks are rounded as well, alike on all; that is not fed back.
///   flush() of an open round sends d_j + e_j in fp32, so nothing is left behind, and evaluation
///   gives what it would give. Where all values fit into 8 bits it is f32, bit for bit. As much
///   memory again as the parameters, and half as much in the arena.
/// - **Every sample weighs the same** in an average: a rank's displacement, and its optimizer's
///   state, count by the samples that it has had since the round began. A rank without samples
///   makes no local step in that iteration. One rank alone averages nothing, but its rounds have
///   their momentum.
/// - **The optimizer** may be any. It belongs to its rank alone; the updates that it has seen
///   count from the first step's index (those of a warm-up are among them).
/// - **flush()** ends a round that is under way by a plain average (choice: a part of a round is
///   no measure for the momentum, so V is neither used nor changed); all ranks hold the same
///   afterwards. Between rounds it changes no parameters.
/// - **copy_for_evaluation()** gives what flush() would make of parameters and statistics.
/// - **Replicated:** W, and V with momentum, or the outer optimizer's state.
/// - **State:** those, the place within the round and its period, rates, losses, counters, and the
///   optimizer's; each rank's is its own.
///
/// Throws std::invalid_argument when arrays, layers and groups do not fit together, when layers
/// differ in their `outer` group, and for levels or options out of range. begin() throws it where
/// `period_of` gives less than 1.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<UpdateScheme> make_k_step(
    Replica replica, std::shared_ptr<Optimizer> optimizer, const KStepOptions& options = {});

}  // namespace rondo::sync
