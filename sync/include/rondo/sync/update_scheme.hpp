#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/sync/export.hpp>
#include <rondo/sync/replica.hpp>

namespace rondo::sync {

/// The data that replicas exchange.
enum class Exchange : std::uint8_t {
  gradients,   ///< summed over the ranks; every replica makes the same step with the sum
  parameters,  ///< every replica makes steps of its own, and the parameters are averaged at times
  pushes,      ///< every replica updates a common store of the parameters when it is its turn
};

/// How useful a synchronous start (make_warm_up) is for a scheme.
enum class WarmUp : std::uint8_t {
  pointless,  ///< the scheme is synchronous itself
  possible,
  advised,  ///< replicas communicate seldom, which costs most while gradients change most
};

/// The abilities and the needs of a scheme.
///
/// Code that offers schemes to others (configuration files, plans, reports) asks this instead of
/// comparing names: what holds for a scheme is then said in one place, where the scheme is.
struct SchemeDescription {
  std::string_view name = {};  ///< in configurations, messages and saved states; outlives all uses
  Exchange exchange = Exchange::gradients;
  WarmUp warm_up = WarmUp::possible;
  /// It sums the gradients of some layers over several iterations, so that these layers are
  /// reduced seldom: make_lazy().
  bool windows = false;
  /// It averages within groups of ranks as well, and needs a Communicator for each level.
  bool levels = false;
  /// Replicas are not in step: each goes at a pace of its own, see Pace.
  bool own_pace = false;
  /// It can bound the norm of the gradient.
  bool clips = true;
  /// It works with optimizers that ignore the scale of a gradient (Optimizer::ignores_scale()).
  bool ignores_scale = true;
  /// A rank may have no sample in an iteration.
  bool empty_shares = true;
  /// Its sums over the ranks can be sent as bf16: gradients, or displacements. Parameters cannot: 8
  /// bits do not hold them.
  bool sums_in_bf16 = false;
  /// Each rank updates a part of the parameters, and keeps that part of the optimizer's state: what
  /// save() returns differs from rank to rank, the optimizer must be elementwise, and parameters
  /// are complete only after make_ready(): make_sharded().
  bool divides_optimizer = false;
  /// save() and restore() work between any two iterations, and the run goes on with the same
  /// bits. Otherwise only where the scheme's header says.
  bool resumes_anywhere = true;

  /// Do replicas make steps of their own? Then a layer's `outer` group is needed, the same for all
  /// layers; gradients are summed over `inner` before (UpdateScheme::wants_inner_sums());
  /// parameters and optimizer states differ between ranks until they communicate; and a rank's own
  /// samples weigh by themselves, so that batches must be whole. Otherwise gradients are summed
  /// over `slice`.
  [[nodiscard]] constexpr bool steps_alone() const noexcept {
    return exchange != Exchange::gradients;
  }
};

/// The schemes of this library.
[[nodiscard]] RONDO_SYNC_API std::span<const SchemeDescription> schemes() noexcept;

/// The scheme that is called `name`. Throws std::invalid_argument, naming all, if none is.
[[nodiscard]] RONDO_SYNC_API const SchemeDescription& describe_scheme(std::string_view name);

/// One iteration, as every rank knows it before it begins.
struct Step {
  std::int64_t index = 0;          ///< 0, 1, 2, ... over the whole training
  std::size_t local_samples = 0;   ///< of this rank; may be 0
  std::size_t global_samples = 0;  ///< of all replicas; gradients are sums and divided by it once
  double learning_rate = 0.0;
  /// The iteration before which the optimizer's state was zeros: not 0 where a run goes on without
  /// its momenta.
  std::int64_t optimizer_start = 0;

  /// How many updates the state of the optimizer has seen: Update::index.
  [[nodiscard]] std::int64_t updates() const noexcept { return index - optimizer_start; }
};

/// Counts of a scheme's work so far.
///
/// A reduction is one exchange between replicas of their whole model or gradient, as the papers
/// count them, however many buckets it was cut into. With one rank nothing is communicated or
/// counted. Bytes are those of the arrays that were reduced: an allreduce over g ranks sends 2
/// (g-1)/g of them.
struct SchemeCounters {
  std::uint64_t global_reductions = 0;  ///< over all replicas, whatever level asked; in training
  std::uint64_t lazy_reductions = 0;    ///< those of them with the lazy layers (make_lazy)
  std::uint64_t local_reductions = 0;   ///< over a part of the replicas
  std::uint64_t global_bytes = 0;       ///< that this rank contributed to global ones, as sent
  std::uint64_t local_bytes = 0;        ///< to local ones
  std::uint64_t collectives = 0;        ///< operations posted for both
  std::uint64_t evaluation_reductions = 0;  ///< for evaluation copies; never part of the above
};

/// Each counter of both together.
[[nodiscard]] RONDO_SYNC_API SchemeCounters operator+(const SchemeCounters& a,
                                                      const SchemeCounters& b) noexcept;

/// The gain of each counter from `earlier` to `later`.
[[nodiscard]] RONDO_SYNC_API SchemeCounters operator-(const SchemeCounters& later,
                                                      const SchemeCounters& earlier) noexcept;

/// How far training has come under a scheme whose replicas each go at a pace of their own.
struct Pace {
  std::int64_t samples = 0;  ///< in the parameters of this rank, of all replicas
  /// The replicas have done an epoch together: each evaluates, then goes on with begin().
  bool parked = false;
};

/// When and how the gradients of several replicas are summed, and when parameters change.
/// SchemeBase does what all schemes do alike.
///
/// The life of one iteration, on every rank alike:
///
///     scheme.begin(step);
///     forward:   for each layer, input side first:   scheme.make_ready(layer)
///     backward:  for each layer, output side first:  scheme.gradients_final(layer)
///                between layers: world.progress()
///     scheme.finish();
///
/// The gradients of a layer are sums over this rank's samples. Between gradients_final() and the
/// next begin() the layer's part of the gradient array belongs to the scheme. Parameters may
/// change inside finish(), begin() and make_ready() only; after make_ready(l) those of layer l
/// stay as they are until finish().
///
/// Calls out of this order, but for make_ready(), throw std::logic_error, a layer that does not
/// exist or is final twice std::invalid_argument. Errors of the transport (transport::Error) pass
/// through every call; after one, the scheme can only be destroyed. No call of an iteration
/// allocates.
class RONDO_SYNC_API UpdateScheme {
 public:
  UpdateScheme() = default;
  UpdateScheme(const UpdateScheme&) = delete;
  UpdateScheme& operator=(const UpdateScheme&) = delete;
  virtual ~UpdateScheme();

  virtual void begin(const Step& step) = 0;

  /// The parameters of `layer` are about to be read: by the forward pass, or for a checkpoint, or a
  /// hash. For schemes that fetch parameters late; where finish() leaves them ready, there is
  /// nothing to do. May be called at any time; collective where parameters are fetched late.
  virtual void make_ready(std::size_t /*layer*/) {}

  /// The gradients of `layer` are complete on this rank, over its `inner` group included if
  /// wants_inner_sums(). Posts; does not wait.
  virtual void gradients_final(std::size_t layer) = 0;

  /// The losses of this rank's samples in this iteration, summed; over all ranks of the World these
  /// add up to the batch's. For schemes that adapt to the loss; before finish(), if at all.
  virtual void add_loss(double /*sum*/) {}

  /// Backward is over.
  virtual void finish() = 0;

  /// Fills `parameters` and `statistics` (sizes of the Replica's) with the model that evaluation
  /// should use: flushed or averaged where the scheme needs it, statistics averaged over the
  /// ranks. Collective; leaves all training state untouched.
  virtual void copy_for_evaluation(std::span<float> parameters, std::span<float> statistics) = 0;

  /// The end of training: brings what is still pending into the parameters of every rank.
  virtual void flush() = 0;

  /// The arrays that all ranks must hold in equal bits after make_ready() of every layer; their
  /// hashes are compared every epoch.
  [[nodiscard]] virtual std::vector<std::span<const float>> replicated() const = 0;

  /// All of the scheme's and its optimizer's state, for a checkpoint; restore() takes it back
  /// exactly, or throws std::invalid_argument and changes nothing when it is not the state of
  /// such a scheme. Between iterations only. The Replica's arrays are the caller's and not part
  /// of it.
  [[nodiscard]] virtual std::vector<std::byte> save() const = 0;
  virtual void restore(std::span<const std::byte> state) = 0;

  [[nodiscard]] virtual SchemeCounters counters() const noexcept = 0;

  /// The abilities and the needs of the scheme.
  [[nodiscard]] virtual const SchemeDescription& description() const noexcept = 0;

  /// Does the scheme want gradients that are summed over a layer's `inner` group before it is told
  /// that they are final? True of schemes whose replicas step by themselves; others reduce over
  /// `slice`. May change in begin() only.
  [[nodiscard]] virtual bool wants_inner_sums() const noexcept { return false; }

  /// Only of schemes whose replicas do not step together: there the number of steps of an epoch
  /// differs from rank to rank, and after each finish() the caller asks whether to go on.
  [[nodiscard]] virtual std::optional<Pace> pace() const noexcept { return std::nullopt; }
};

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
/// Throws std::invalid_argument when a scheme is null or `steps` is negative, and when `first`
/// divides the optimizer, of which no rank has all the momenta; 0 steps are `then` alone.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<UpdateScheme> make_warm_up(
    std::unique_ptr<UpdateScheme> first, std::unique_ptr<UpdateScheme> then, std::int64_t steps);

}  // namespace rondo::sync
