#pragma once

#include <memory>

#include <rondo/sync/export.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/update_scheme.hpp>

namespace rondo::sync {

inline constexpr SchemeDescription hierarchical_scheme{.name = "hierarchical",
                                                       .exchange = Exchange::parameters,
                                                       .warm_up = WarmUp::advised,
                                                       .levels = true,
                                                       .sums_in_bf16 = true};

/// KStepOptions::levels are read; `period` is K2. Local averages begin anew in each round, the
/// fragments and the type of averages are those of all levels.
using HierarchicalOptions = KStepOptions;

/// Hierarchical averaging with reduction momentum: Cong, Yang, Zhou, ICPP Workshops 2019.
///
///     w_j = W on every rank j, at the first iteration and after each round
///     local steps as in K-step averaging;
///       after every K1 of them:  w_j = mean of w over the S ranks of j's group     local average
///       after K2 of them:        D = mean over all P ranks of (w_j - W);
///                                W = W + D, or as the ReductionMomentum says      global average
///
/// Means are by samples: each rank weighs as many as it has had since the round began.
///
/// Where averages of several levels are due at once, only that of the slowest is done. A group of
/// one rank averages nothing.
///
/// Sends, per round of K2 iterations and rank, K2/K1 - 1 allreduces over S ranks and one over P,
/// each of M = 4 (parameters + statistics [+ optimizer state, if averaged] + 1) bytes:
/// ((K2/K1 - 1) 2 (S-1)/S + 2 (P-1)/P) M / K2 bytes per iteration. In general, level i reduces
/// K2/K_i - K2/K_(i+1) times a round, where K_(i+1) is the next slower period.
///
/// A level whose group is all P ranks averages globally, and is counted so, though W and V change
/// at the end of a round only: with the ranks of a node as groups, on one node.
///
/// S = 1 and K1 = K2 are K-step averaging, bit for bit. Everything that make_k_step() says of
/// momentum, statistics, optimizers, flush, evaluation and state holds here; what LocalState says
/// is done at local averages too.
///
/// Groups are fixed and disjoint, each lies within a group of the next level, and all of them
/// within `outer`. The checks know only what a Communicator tells: a group is not larger than that
/// of the next level. Ranks that disagree about their groups or periods get the transport's errors;
/// groups that overlap across levels without nesting are averaged as they are.
///
/// Throws std::invalid_argument as make_k_step() does, and for levels that break these rules.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<UpdateScheme> make_hierarchical(
    Replica replica, std::shared_ptr<Optimizer> optimizer, const HierarchicalOptions& options);

}  // namespace rondo::sync
