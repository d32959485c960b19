#pragma once

#include <cstdint>
#include <memory>

#include <rondo/sync/export.hpp>
#include <rondo/sync/update_scheme.hpp>

namespace rondo::sync {

/// A synchronous start for schemes that need one: `first` runs the first `steps` iterations, `then`
/// all others.
///
///     iteration 0 .. steps-1:   first
///     begin() of iteration `steps`:  first.flush();  from here on: then
///
/// Both schemes have the same Replica, and usually share one Optimizer, so that momenta go on.
/// Iterations are counted here and reach the schemes as they come: Step::index runs on. `then` is
/// not called before its first begin(), so what it takes from the parameters there is the result
/// of the warm-up; an evaluation or a checkpoint right after the last iteration of the warm-up is
/// still that of `first`.
///
/// Sends what the scheme that runs sends. Counters are the sums of both; copy_for_evaluation(),
/// flush(), replicated() and pace() are those of the one that ran last.
///
/// State: the number of iterations done, the counters of `first`, and the state of the scheme
/// that ran last. `then` cannot be taken back to its beginning: restore() of a state from within
/// the warm-up throws std::logic_error after `then` has begun.
///
/// Throws std::invalid_argument when a scheme is null or `steps` is negative; 0 is `then` alone.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<UpdateScheme> make_warm_up(
    std::unique_ptr<UpdateScheme> first, std::unique_ptr<UpdateScheme> then, std::int64_t steps);

}  // namespace rondo::sync
