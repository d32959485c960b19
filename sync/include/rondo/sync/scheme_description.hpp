#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <rondo/sync/export.hpp>

namespace rondo::sync {

/// What the replicas exchange.
enum class Exchange : std::uint8_t {
  gradients,   ///< summed over the ranks; every replica makes the same step with the sum
  parameters,  ///< every replica makes steps of its own, and the parameters are averaged at times
  pushes,      ///< every replica updates a common store of the parameters when it is its turn
};

/// What a synchronous start (make_warm_up) is for a scheme.
enum class WarmUp : std::uint8_t {
  pointless,  ///< the scheme is synchronous itself
  possible,
  advised,  ///< replicas meet seldom, which costs most while gradients still change most
};

/// What a scheme can do and what it needs.
///
/// Who offers schemes to others (configuration files, plans, reports) asks this instead of
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
  /// save() and restore() work between any two iterations, and the run goes on with the same
  /// bits. Otherwise only where the scheme's header says.
  bool resumes_anywhere = true;

  /// Do replicas make steps of their own? Then a layer's `outer` group is needed, the same for all
  /// layers; gradients are summed over `inner` before (UpdateScheme::wants_inner_sums());
  /// parameters and optimizer states differ between ranks until they meet; and a rank's own samples
  /// weigh by themselves, so that batches must be whole. Otherwise gradients are summed over
  /// `slice`.
  [[nodiscard]] constexpr bool steps_alone() const noexcept {
    return exchange != Exchange::gradients;
  }
};

/// The schemes of this library.
[[nodiscard]] RONDO_SYNC_API std::span<const SchemeDescription> schemes() noexcept;

/// That of them which is called `name`. Throws std::invalid_argument, naming all, if none is.
[[nodiscard]] RONDO_SYNC_API const SchemeDescription& describe_scheme(std::string_view name);

}  // namespace rondo::sync
