#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <rondo/sync/export.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/transport/element.hpp>

namespace rondo::sync {

inline constexpr SchemeDescription lazy_scheme{.name = "lazy",
                                               .exchange = Exchange::gradients,
                                               .warm_up = WarmUp::advised,
                                               .windows = true,
                                               .clips = false,
                                               .ignores_scale = false,
                                               .sums_in_bf16 = true};

/// A range of the flat arrays: the weights of a lazy convolution. Where a layer is cut it may be
/// empty, and then begins where its layer does.
struct Probe {
  std::size_t offset = 0;
  std::size_t size = 0;
};

enum class LazyController : std::uint8_t {
  probe,       ///< angle and magnitude of the last probe; the paper's
  every_layer  ///< the angle of every probe
};

/// How a window of iterations ended. Equal on all ranks.
struct LazyWindow {
  std::int64_t step = 0;        ///< the window's last
  std::int64_t iterations = 0;  ///< in the window: n
  std::int64_t interval = 1;    ///< iterations that the next window will have: tau
  bool angle = false;           ///< passed by the last probe, or by every one under every_layer
  bool magnitude = false;       ///< passed by the last probe; decides nothing under every_layer
};

struct LazyOptions {
  /// So many of the replica's layers, from the input side, are lazy. With 0 all are synchronous.
  std::size_t lazy_layers = 0;
  /// The weights of the lazy convolutions in forward order, each within one lazy layer. The last
  /// one is what the controller `probe` looks at. At least one, if any layer is lazy.
  std::vector<Probe> probes = {};
  LazyController controller = LazyController::probe;
  /// The longest window. 1: synchronous SGD; 0: no cap.
  std::int64_t max_interval = 16;
  /// The most that a window's iterations times the learning rate may be: how long its step is. A
  /// window has one iteration at least. 0: no cap.
  double max_interval_rate = 0.0;
  /// Does a window end with an update for each of its iterations, by their mean gradient, instead
  /// of one by the sum? Momentum and weight decay then act as often as in synchronous SGD.
  bool updates_per_iteration = false;
  /// Buckets of the layers that are not lazy, see SynchronousOptions. The second is used only if no
  /// layer is lazy: otherwise the lazy layers' backward hides the last bucket's reduction.
  std::size_t bucket_bytes = 256 * 1024;
  std::size_t last_bucket_bytes = 64 * 1024;
  /// The type in which gradients and their sums over a window are sent, see SynchronousOptions.
  transport::ElementType gradient_type = transport::ElementType::f32;
  /// Called at the end of every window, inside finish(), on the scheme's thread; may be empty.
  std::function<void(const LazyWindow&)> on_window = {};
};

/// Lazy update: layers of the input side are reduced once in several iterations (Lee, Kang,
/// Al-Bahrani, Agrawal, Choudhary, Liao: Improving scalability of parallel CNN training by
/// adaptively adjusting parameter update frequency, J. Parallel Distrib. Comput. 159, 2022).
///
/// Gradients of the input side become final last, when no backward is left to hide their
/// reduction. So they are summed over a window of tau iterations, during which these layers keep
/// their parameters; all other layers are updated in every iteration as by make_synchronous().
///
///     acc = g in the first iteration of a window, acc = acc + g in the others;  n = n + 1
///     n == tau:  f = sum over the ranks of g, of the probes only
///                G = sum over the ranks of acc
///                angle:      f.(G - f) >= 0        magnitude:  n |f|^2 <= |G|^2
///                w = optimizer(w, G, scale n / (samples of the window on all ranks))
///                tau = tau + 1, tau - 1 or tau, in 1 ... max_interval;  n = 0
///
/// So a window's step is the sum of its iterations' mean gradients (to equal global batches), by
/// the learning rate of its last iteration; momentum and weight decay act once per window. With
/// updates_per_iteration (choice) the last line but one is done n times with the scale 1 / (samples
/// of the window): gradients that do not change within a window then give synchronous SGD, and a
/// momentum of mu remembers 1/(1-mu) iterations, not windows. It costs n passes at its end.
///
/// - Controller `probe`: both tests pass, tau + 1; neither, tau - 1; else tau stays.
/// - Controller `every_layer` (choice): all angles pass, tau + 1; more than half fail, tau - 1.
/// - At n = 1, f is G: all tests pass.
/// - Tests use reduced data only, in double, summed in a fixed order: all ranks decide alike.
/// - The paper's windows grow without bound (about as sqrt(2 T) over T iterations) and its tests
///   do not tell noise from progress; max_interval = 16 is the default here (choice).
/// - Tests do not know the learning rate: the step of a long window at a high rate is bounded by
///   max_interval, and if it is given by max_interval_rate (choice): tau <= max_interval_rate /
///   eta, where eta is the rate of the last iteration of the window before.
///
/// Sends, per iteration and rank, one allreduce of each bucket of the other layers; at the end of
/// a window also one of all lazy layers, and before it, if n > 1, one of the probes that the
/// controller looks at, posted when their gradients are final. With M bytes of gradients, M_b of
/// them lazy and M_f of probes, a window of n iterations reduces n (M - M_b) + M_b + M_f bytes, or
/// M if n = 1; an allreduce over P ranks sends 2 (P-1)/P of its bytes.
///
/// Counts a global reduction in every iteration in which anything is reduced, and a lazy one at
/// every end of a window, flush() included. The scheme has saved the share 1 - lazy_reductions /
/// iterations of the lazy layers' reductions, not counting those of a warm-up before.
///
/// Sent as bf16, a window's sum is rounded once, when it is sent: it grows in fp32. Tests see the
/// reduced sums and probes as they were rounded.
///
/// copy_for_evaluation() applies the window so far to the copy (one evaluation reduction), by what
/// the optimizer would do; it needs the lazy layers' part of the gradient array as scratch memory
/// if a window is open. flush() applies it for good. Neither adjusts tau nor calls on_window.
///
/// max_interval = 1 is synchronous SGD, bit for bit within one node; between nodes the order of
/// sums differs with the cuts.
///
/// Replicated: the parameters. State, of each rank its own: tau, the window so far, the counters,
/// and the optimizer's. Memory: the lazy layers once more, and the probes, in the arena.
///
/// On replicas that hold layers in slices (Slices), a rank's probe is its part of the weights, and
/// may be empty; adjacent lazy layers with the same `slice` group are reduced together; and the
/// tests' sums are added up over the replica's ranks, so that all decide alike.
///
/// Clipping by the global norm is not offered: while a window is open, the norm of its reduced
/// gradient does not exist anywhere.
///
/// Throws std::invalid_argument when the replica's arrays, layers and groups do not fit together;
/// when lazy layers or probes are not there; when a lazy layer is not whole on every rank, or has a
/// group of its own, and the replica does not say what it counts; and when the optimizer ignores
/// scale (Adam): the sum over a window would have no more effect than one iteration's gradient.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<UpdateScheme> make_lazy(
    Replica replica, std::shared_ptr<Optimizer> optimizer, const LazyOptions& options);

/// How many layers, from the input side, backward cannot hide the reduction of.
///
/// `backward_left[l]` is the time from layer l's gradients being final to the end of backward,
/// `reduction[l]` that of its reduction, in seconds and forward order. Reductions run one after
/// another, output side first, each from when its gradients are final; a layer is hidden if its
/// reduction ends before backward does. Throws std::invalid_argument unless there are as many of
/// both, none negative.
[[nodiscard]] RONDO_SYNC_API std::size_t count_unhidden_layers(
    std::span<const double> backward_left, std::span<const double> reduction);

}  // namespace rondo::sync
