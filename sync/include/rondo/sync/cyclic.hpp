#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <rondo/sync/export.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/update_scheme.hpp>

namespace rondo::sync {

inline constexpr SchemeDescription cyclic_scheme{.name = "cyclic",
                                                 .exchange = Exchange::pushes,
                                                 .warm_up = WarmUp::possible,
                                                 .own_pace = true,
                                                 .empty_shares = false,
                                                 .resumes_anywhere = false};

/// May a worker compute on while the token is elsewhere?
enum class Delay : std::uint8_t {
  fixed,    ///< no: one mini-batch between turns; the worker waits for the token
  dynamic,  ///< yes: as many as it manages; neither waits
};

/// How much a push of c mini-batches weighs, of P workers whose mini-batches make a global batch.
enum class PushScaling : std::uint8_t {
  per_sample,  ///< c/P: a sample as much as in a synchronous step of the global batch
  mean,        ///< 1: as one synchronous step, whatever c is
  sum,         ///< c: a mini-batch as much as a synchronous step
};

/// How the token treats a worker that has not finished a mini-batch since its turn.
enum class WhenEmpty : std::uint8_t {
  wait,  ///< it stays until the mini-batch is done
  skip,  ///< it passes, if the worker has not begun the mini-batch yet
};

/// One event in the life of one worker, as far as parameters depend on it.
struct Turn {
  enum class Kind : std::uint8_t {
    push,  ///< the token came, and the worker pushed
    skip,  ///< the token came, and passed on unused
    park,  ///< an epoch is over; the worker stops with so many mini-batches to push
  };
  Kind kind = Kind::push;
  int worker = 0;
  int minibatches = 0;  ///< since the worker's last push

  friend bool operator==(const Turn&, const Turn&) = default;
};

/// A Turn with the circumstances, for traces and metrics.
struct Push {
  Turn turn = {};
  std::int64_t version = 0;    ///< of the store, after it
  std::int64_t samples = 0;    ///< in the store, after it
  std::int64_t staleness = 0;  ///< versions that others made since this worker's pull
  double seconds = 0.0;        ///< since this worker's pull
  bool by_flush = false;       ///< flush() made it: no turn of the clock, and no part of a script
};

struct CyclicOptions {
  Delay delay = Delay::dynamic;
  PushScaling scaling = PushScaling::per_sample;
  /// Between turns the worker takes a step of its own on its copy: w = w - eta * mini-batch mean,
  /// without momentum. The next pull replaces it.
  bool local_step = false;
  /// With so many mini-batches to push a worker waits for the token; 0: it never does.
  int minibatch_cap = 0;
  WhenEmpty when_empty = WhenEmpty::wait;
  /// The mean gradient of a push is made no longer than this (Euclidean norm over the model), then
  /// weighed; 0: any length.
  double clip_norm = 0.0;
  /// The token is parked whenever the store's samples reach a multiple of this; 0: never.
  std::int64_t epoch_samples = 0;
  /// And when they reach this; 0: never.
  std::int64_t total_samples = 0;
  /// A recorded trace, or one made up. Each worker picks its own entries, in their order; those of
  /// different workers may be mixed in any way. It then computes as many mini-batches as its next
  /// entry says and waits for what it says, whatever the clock; after its last entry it goes by
  /// arrivals again. An event that comes instead of the scripted one throws std::runtime_error. A
  /// push by flush() (Push::by_flush) is no event: leave it out. Older traces have such a push
  /// behind a park, which is ignored.
  std::vector<Turn> script = {};
  /// Called after every turn of this rank, and after its push of a flush(), on the scheme's thread.
  std::function<void(const Push&)> on_push = {};
};

/// Cyclic delayed updates (Hu et al., PRCV 2018; round robin: Langford, Smola, Zinkevich, NIPS
/// 2009; Agarwal and Duchi, NIPS 2011).
///
/// The parameters live in a store; a token visits the workers, ranks 0, 1, ... of the layers'
/// common `outer` group, in a cycle. A worker has a copy w of the parameters of some version:
///
///     acc += sum of the mini-batch's gradients / global_samples             every iteration
///     b   += local_samples / global_samples
///     if the token is here (looked at after every mini-batch):
///       store = optimizer(store, gradient s acc, weight decay s b lambda)
///       version += 1;  w = store;  acc = 0;  b = 0
///
/// A mini-batch is local_samples of one worker. global_samples are those of all workers'
/// mini-batches together: P local_samples where these are equal, and b = c/P after c of them.
/// Each worker has its own mini-batches, and its own number of them: see Pace. The learning rate is
/// that of the Step at whose end the token came.
///
/// **Scaling.** s is 1 (per_sample), 1/b (mean) or P (sum). With per_sample a sample's gradient is
/// multiplied by learning_rate / global_samples whatever the turns, as in synchronous SGD, and
/// mini-batches may be unequal. With mean every push is as long as a synchronous step, so a sample
/// weighs less the more of them are pushed together: that depends on timing.
///
/// **Weight decay** (lambda) is a part of every mini-batch's gradient, but taken at the store's
/// parameters: a push has that of b batches, multiplied by s like the gradients. With per_sample a
/// sample's decay is lambda / global_samples, whatever the turns; the ratio of decay to gradients
/// is that of synchronous SGD under each scaling.
///
/// **Momentum** acts once per push. It lengthens each by 1/(1-mu) in the course of time, as it
/// lengthens synchronous steps, and remembers about 1/(1-mu) pushes. **Adam** and AdamW ignore a
/// gradient's scale: a push is one step for them, whatever it holds, and of AdamW only the decay
/// goes by samples; with mean its decay is that of one step as well.
///
/// **Store.** One per node, in shared memory, parameters and the optimizer's state; whoever has
/// the token updates it, so the token is its lock. When the token passes to a worker on another
/// node, the store travels with it (choice: the alternative, a thread per node that serves a part
/// of the store, moves 2 M for every push, needs a thread, and is not a lock). No rank waits for a
/// worker that computes, except for the token.
///
/// **Sends**, per turn, with M bytes of parameters and a state of S bytes: inside a node a number;
/// to another node M + S and a few numbers. A round over N > 1 nodes of adjacent ranks sends
/// N (M + S). `global_reductions` counts this rank's pushes, `global_bytes` what they pushed and
/// pulled, 2 M each; `collectives` the messages that passed the token on: 1, between nodes 2. One
/// worker alone counts nothing.
///
/// **Epochs.** When the store's samples reach a multiple of `epoch_samples`, the token stays where
/// it is. Every worker notices after its mini-batch, keeps what it has not pushed, and stops:
/// finish() returns when its predecessor has stopped, and pace() says `parked`. The next begin()
/// goes on. The store then holds up to a few pushes more than the epoch.
///
/// **Collective** are make_cyclic(), the first begin(), also after restore() (the parameters and
/// the optimizer's state are taken over then: a warm-up by another scheme may come first),
/// copy_for_evaluation() and flush(). copy_for_evaluation() needs all ranks parked, before their
/// first step, or after flush(); it gives all the store's parameters. flush() may be called at any
/// time: the token goes round until every worker has pushed what it had; then all pull. save() and
/// restore() need the same as copy_for_evaluation(); states differ by rank, and the store is in one
/// of them.
///
/// The optimizer keeps its state in the store from the first begin() on, and is not to be used any
/// more once the scheme is gone. With `local_step` or batch norm's statistics, what a rank has
/// parked with shows in its evaluation: that is why parks are part of a trace.
///
/// **Replicas of several ranks** (Slices) are one worker. Each of their ranks has a token and a
/// store for what it holds, shared with the ranks that hold the same in other replicas; all tokens
/// go the same way. The first rank of a replica looks for its token and tells the others (4 bytes
/// to each, after every mini-batch that need not wait, and with WhenEmpty::skip before each one),
/// who then wait for theirs; so begin() and finish() are collective over the replica, as is with
/// clip_norm every push (8 bytes from each). They give the same script, and what on_push tells is
/// alike on all but for the seconds.
///
/// **Failures.** When a rank that must have or pass the token is lost, every rank gets a
/// transport::Error whose text names it as the token's holder, at the latest after its mini-batch:
/// the rank that notices aborts the World with that text. (Ranks of the lost rank's own replica may
/// find the loss in a collective of theirs first, and name that.)
///
/// Replicated: nothing. State: mini-batches and gradients not yet pushed, versions, the token's
/// place, the counters, and the store. One worker alone is plain SGD, bit for bit.
///
/// Throws std::invalid_argument when layers have different `outer` groups, when a replica of one
/// rank has an `inner` one, or options are out of range.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<UpdateScheme> make_cyclic(
    Replica replica, std::shared_ptr<Optimizer> optimizer, const CyclicOptions& options = {});

}  // namespace rondo::sync
