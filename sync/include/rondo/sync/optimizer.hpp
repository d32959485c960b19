#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/sync/export.hpp>

namespace rondo::transport {
class Team;
}

namespace rondo::sync {

/// The facts that one update needs beside the arrays.
struct Update {
  float gradient_scale = 1.0F;  ///< gradients are multiplied by it first, for example 1/samples
  double learning_rate = 0.0;
  std::int64_t index = 0;  ///< updates that the optimizer's state has seen before this one
  /// The weight decay is multiplied by it: of how many batches the gradients are, if not of one.
  float decay_scale = 1.0F;
};

/// Turns gradients into updates of the parameters: one fused pass over flat memory.
///
/// An optimizer keeps its state (momenta) for a flat array of parameters, and can update any
/// range of it at a time, so that a bucket is updated as soon as it is reduced. The bits of an
/// update depend neither on threads nor on the instruction set, nor, where it is element by
/// element, on how the array is cut.
class RONDO_SYNC_API Optimizer {
 public:
  Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer();

  /// Updates `parameters` by `gradients`, both the range of the flat arrays that begins at
  /// element `offset`. Within one step of training each range is given once. Throws
  /// std::invalid_argument when the range does not fit; allocates nothing.
  virtual void update(std::size_t offset, std::span<float> parameters,
                      std::span<const float> gradients, const Update& update) = 0;

  /// The length of the flat array of parameters.
  [[nodiscard]] virtual std::size_t size() const noexcept = 0;

  /// Changes `parameters` as `times` calls of update() would; changes no state. Allocates.
  void preview(std::size_t offset, std::span<float> parameters, std::span<const float> gradients,
               const Update& update, std::int64_t times = 1);

  /// Does no element's update depend on other elements? If not, a range that is given must hold
  /// whole arrays of weights. False of LARS.
  [[nodiscard]] virtual bool is_elementwise() const noexcept { return true; }

  /// Does a gradient twice as long leave the update as it was? True of Adam.
  [[nodiscard]] virtual bool ignores_scale() const noexcept = 0;

  /// Everything that update() remembers (momenta): arrays of size() elements, one after another;
  /// zeros at first. May be averaged over ranks or set to zero between updates. Where update() has
  /// not written, its memory takes no room.
  [[nodiscard]] virtual std::span<float> state() noexcept = 0;

  /// Keeps its state in `memory` from now on, which is as long as state(), lent, and outlives the
  /// optimizer or the next call. The values that lie there count; for memory shared by ranks.
  virtual void keep_state_in(std::span<float> memory) = 0;

  /// The optimizer's name in saved states: optimizers with other formulas have other names.
  [[nodiscard]] virtual std::string_view name() const noexcept { return "optimizer"; }

  /// state(), for a checkpoint; restore() takes it back exactly, or throws
  /// std::invalid_argument and changes nothing when it is not the state of such an optimizer.
  [[nodiscard]] virtual std::vector<std::byte> save() const = 0;
  virtual void restore(std::span<const std::byte> state) = 0;
};

/// Elements [offset, offset + size) of a flat array of parameters.
struct ElementRange {
  std::size_t offset = 0;
  std::size_t size = 0;
};

/// SGD with momentum and weight decay: v = mu*v + scale*g + lambda*w; w = w - eta*v, where lambda
/// is weight_decay * Update::decay_scale. With Nesterov's momentum, as PyTorch has it, the step
/// looks ahead by one: w = w - eta*(d + mu*v), where d = scale*g + lambda*w, and v as before.
struct SgdOptions {
  float momentum = 0.9F;
  bool nesterov = false;
  float weight_decay = 0.0F;
  /// Parameters without weight decay: biases, say, and what batch norm learns. In ascending order;
  /// ranges do not overlap.
  std::vector<ElementRange> undecayed = {};
};

/// For a flat array of `size` parameters. Its state is v. Long ranges are shared among the threads
/// of `team`, which is lent and outlives the optimizer; without one the calling thread does all.
/// Throws std::invalid_argument for ranges that are out of order or not within the array, a
/// momentum that is not in [0, 1), and a negative decay.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<Optimizer> make_sgd(std::size_t size,
                                                                 const SgdOptions& options,
                                                                 transport::Team* team = nullptr);

/// LARS (You, Gitman, Ginsburg, arXiv 1708.03888), for batches so large that SGD needs a rate at
/// which some layers diverge. Each array of weights has a rate of its own, as in LARC of Apex: with
/// g = scale * gradient,
///
///     r = trust_coefficient * |w| / (|g| + lambda * |w|);  1 if |w| or |g| is 0
///     v = mu*v + r * (g + lambda*w);  w = w - eta*v
///
/// and Nesterov's momentum as in SgdOptions. Parameters outside `weights` have r = 1: that is SGD.
/// Norms are Euclidean, in double. An update reads the arrays once more than SGD.
struct LarsOptions {
  double trust_coefficient = 0.001;
  float momentum = 0.9F;
  bool nesterov = false;
  float weight_decay = 0.0F;
  /// Arrays of weights, each with a ratio of its own; in ascending order, apart. Not biases and
  /// what batch norm learns, whose norms say little.
  std::vector<ElementRange> weights = {};
  std::vector<ElementRange> undecayed = {};  ///< as in SgdOptions
};

/// As make_sgd(). Throws std::invalid_argument for a trust_coefficient that is not above 0, too;
/// update() throws it when a range cuts `weights`.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<Optimizer> make_lars(std::size_t size,
                                                                  const LarsOptions& options,
                                                                  transport::Team* team = nullptr);

/// Adam (Kingma, Ba, ICLR 2015) and AdamW (Loshchilov, Hutter, ICLR 2019), as PyTorch has them,
/// for update number t = index + 1:
///
///     g = scale * gradient + weight_decay * w       (Adam: the decay is a part of the gradient)
///     m = beta1 * m + (1 - beta1) * g
///     v = beta2 * v + (1 - beta2) * g * g
///     w = (1 - eta * weight_decay) * w              (AdamW: it is apart, and g is scale *
///     gradient) w = w - eta / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
///
/// where weight_decay is multiplied by Update::decay_scale. Factors are worked out in double and
/// rounded once, arrays are fp32.
struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  std::vector<ElementRange> undecayed = {};  ///< as in SgdOptions
};

/// As make_sgd(). The state is m, then v. Updates count from Update::index, which has to fit the
/// state: 0 while it is zero. Throws std::invalid_argument when a beta is not in [0, 1) or another
/// option is negative, for a negative index, and for ranges as make_sgd() does.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<Optimizer> make_adam(std::size_t size,
                                                                  const AdamOptions& options = {},
                                                                  transport::Team* team = nullptr);
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<Optimizer> make_adamw(std::size_t size,
                                                                   const AdamOptions& options = {},
                                                                   transport::Team* team = nullptr);

enum class Decay : std::uint8_t { constant, cosine, steps, exponential };

/// The learning rate of every step: a linear warm-up from base/warmup_steps to base, then
///
/// - constant: the base;
/// - cosine: a half cosine down to `final_rate` at `total_steps`;
/// - exponential: down or up to `final_rate`, which must be above 0, at the last step, by the same
///   factor in each step;
/// - steps: the base, multiplied by `factor` once for every milestone that is reached.
struct LearningRate {
  double base = 0.1;
  double final_rate = 0.0;
  Decay decay = Decay::cosine;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
  std::vector<std::int64_t> milestones = {};  ///< steps from the start of training, in any order
  double factor = 0.1;                        ///< from step `milestone` on

  /// The learning rate of step `step`, counted from 0.
  [[nodiscard]] RONDO_SYNC_API double at(std::int64_t step) const noexcept;
};

/// Sums of gradients, for steps and schemes that do not use each gradient at once.
///
/// Gradient accumulation, a step whose batch is computed as several micro-batches:
///
///     scheme.begin(step);
///     forward (make_ready) and backward of every micro-batch but the last:
///         for each layer: sum.add(layer.offset, its gradients)
///     forward and backward of the last micro-batch:
///         for each layer, output side first:
///             sum.move_to(layer.offset, its gradients);  scheme.gradients_final(layer)
///     scheme.finish();
///
/// Gradients are sums over samples, so micro-batches may be unequal. They are added in fp32, in the
/// order of the micro-batches, the last one's last; the bits depend neither on threads nor on how
/// the array is cut into ranges. Nothing is communicated before the last micro-batch, and what
/// overlaps its backward pass still does.
///
/// Schemes sum the gradients of several iterations with set() and add(): make_lazy() and
/// make_cyclic().
///
/// Owns one array as long as the gradients, in `memory`. Long ranges are shared among the threads
/// of `team`, which is lent and outlives the sum. The calls allocate nothing, belong to one thread,
/// and throw std::invalid_argument when a range does not fit.
class RONDO_SYNC_API GradientSum {
 public:
  /// Zeros.
  explicit GradientSum(std::size_t size, transport::Team* team = nullptr,
                       std::pmr::memory_resource* memory = std::pmr::get_default_resource());

  /// Adds factor * gradients to the range of the flat array that begins at element `offset`.
  void add(std::size_t offset, std::span<const float> gradients, float factor = 1.0F);

  /// As add(), where the sum of that range begins anew.
  void set(std::size_t offset, std::span<const float> gradients, float factor = 1.0F);

  /// Adds the sum to the last micro-batch's gradients; the sum of that range is zero again.
  void move_to(std::size_t offset, std::span<float> gradients);

  /// The whole array.
  [[nodiscard]] std::span<float> values() noexcept { return sum_; }
  [[nodiscard]] std::span<const float> values() const noexcept { return sum_; }

 private:
  template <typename Pass>
  void for_each_part(std::size_t offset, std::size_t size, Pass pass);

  std::pmr::vector<float> sum_;
  transport::Team* team_;
};

}  // namespace rondo::sync
