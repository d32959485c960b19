#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace rondo::transport {
class Communicator;
class World;
}  // namespace rondo::transport

namespace rondo::sync {

/// The ranks that a layer's updates concern; lent, they outlive the scheme.
///
/// - `inner`: the ranks of this replica that hold partial sums of the same slice of the layer;
///   null when that is this rank alone.
/// - `outer`: the holders of that slice in the other replicas.
/// - `slice`: both together.
struct Groups {
  transport::Communicator* inner = nullptr;
  transport::Communicator* outer = nullptr;
  transport::Communicator* slice = nullptr;
};

/// One layer's place in the flat arrays: [offset, offset + size) of parameters and gradients.
struct Layer {
  std::string name = {};
  std::size_t offset = 0;
  std::size_t size = 0;
  Groups groups = {};
};

/// Which elements this rank counts where something is summed over all elements of the model: the
/// norm of a gradient, say.
///
/// A replica of one rank counts them all. Where the ranks of a replica hold different slices of its
/// layers, some of them perhaps all, each element of the model is counted by one of them. All ranks
/// make the schemes of such replicas together.
struct Slices {
  /// An array's elements [offset, offset + size).
  struct Part {
    std::size_t offset = 0;
    std::size_t size = 0;
  };

  /// Elements [offset, offset + size), not none, that other ranks of the replica hold as well, and
  /// all these ranks, in the same order in every replica; lent.
  struct Copy {
    transport::Communicator* holders = nullptr;
    std::size_t offset = 0;
    std::size_t size = 0;
  };

  /// The ranks of this replica, in the same order in every replica; lent. Null: there is but one.
  transport::Communicator* over = nullptr;
  /// Parts of the flat arrays that this rank counts, in ascending order; only if `over` is given.
  std::vector<Part> counted = {};
  /// All that this rank holds and others, too: in ascending order, apart, within a layer each, and
  /// on all holders in the same order.
  std::vector<Copy> copies = {};
};

/// One rank's model as a scheme updates it: parameters as flat fp32 arrays, cut into layers.
///
/// All memory is lent and outlives the scheme. Layers are in forward order, adjacent, and cover
/// the arrays; their gradients become final in about the reverse order. Reductions are one pass
/// when the arrays lie in the World's arena. `statistics` holds what is averaged over all ranks
/// for evaluation but never optimised: batch norm's running means and variances; it is averaged
/// over `statistics_over`, or over all ranks if that is null; k_step and hierarchical average it
/// with the parameters, over the ranks that hold the same slices.
///
/// Every rank describes its replica alike: groups with the same members are the same
/// Communicator, and layers are cut alike by all ranks of a group.
struct Replica {
  transport::World* world = nullptr;
  std::span<float> parameters = {};
  std::span<float> gradients = {};
  std::span<float> statistics = {};
  std::vector<Layer> layers = {};
  transport::Communicator* statistics_over = nullptr;
  Slices slices = {};
};

}  // namespace rondo::sync
