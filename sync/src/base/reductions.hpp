#pragma once

#include <cstddef>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include <rondo/sync/buckets.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/element.hpp>
#include <rondo/transport/request.hpp>

#include "base/copies.hpp"

namespace rondo::transport {
class World;
}

namespace rondo::sync {

/// Bytes of so many elements of fp32.
[[nodiscard]] constexpr std::size_t bytes_of(std::size_t elements) noexcept {
  return elements * sizeof(float);
}

/// The elements of a rank's share, where so many are divided among `ranks`: whole cache lines,
/// which no two ranks should write. The last share is what is left.
[[nodiscard]] constexpr std::size_t share_of(std::size_t elements, std::size_t ranks) noexcept {
  constexpr std::size_t line = 16;  // elements
  return (elements + line * ranks - 1) / (line * ranks) * line;
}

/// Adjacent layers [first_layer, last_layer) that are reduced together, and their elements.
struct Bucket {
  std::size_t first_layer = 0;
  std::size_t last_layer = 0;
  std::size_t offset = 0;
  std::size_t size = 0;
  transport::Communicator* slice = nullptr;
};

/// The buckets of buckets.hpp; a layer's group is its slice.
[[nodiscard]] std::vector<Bucket> plan_buckets(std::span<const Layer> layers,
                                               const BucketLimits& limits);

/// Sums parts of an array over the ranks, each over its own group, without blocking. A part that
/// this rank holds alone, or that is empty, is not reduced.
///
/// Values may be sent as bf16, half the bytes. A part is rounded when it is posted, the transport
/// rounds its sum, and the first wait for the part widens it again: all ranks hold the same bits.
class SliceAllreduce {
 public:
  /// The next part: elements [offset, offset + size). `slice` is lent.
  void add(transport::Communicator& slice, std::size_t offset, std::size_t size);
  /// The elements behind the part before. A part of the same slice becomes longer instead.
  void append(transport::Communicator& slice, std::size_t size);
  /// Sends the parts as `type`, f32 or bf16, from now on. Call it after the last add() or append().
  /// Rounded values lie in `memory`.
  void send_as(transport::ElementType type, std::pmr::memory_resource* memory);

  /// Posts one part of `values`, or all of them in order, and counts it if there are `counters`.
  void post_part(std::size_t part, std::span<float> values, SchemeCounters* counters);
  void post(std::span<float> values, SchemeCounters* counters = nullptr);

  void wait_for(std::size_t part);
  void wait();

  /// Is any part reduced with another rank?
  [[nodiscard]] bool reduces() const noexcept;

 private:
  struct Part {
    transport::Communicator* slice;
    std::size_t offset;
    std::size_t size;
    transport::Request request = {};
    std::span<transport::Bfloat16> sent = {};  ///< where it is rounded; empty: sent as it lies
    std::span<float> sum_goes_to = {};         ///< of what was rounded and not yet waited for

    [[nodiscard]] bool is_reduced() const noexcept { return size > 0 && slice->size() > 1; }
  };

  std::optional<std::pmr::vector<transport::Bfloat16>> sent_;  // of all parts, if any is rounded
  // Declared last, and so destroyed first: the requests may wait, and use `sent_`.
  std::vector<Part> parts_;
};

/// Sums the gradients of a replica's layers from `first_layer` on over their slices, in buckets,
/// while backward goes on.
///
/// Per iteration: begin(); layer_final() for every layer from `first_layer` on; update().
class BucketReduction {
 public:
  /// `replica` is lent. Gradients are sent as `type`, f32 or bf16. Collective over all ranks.
  BucketReduction(const Replica& replica, std::size_t first_layer, const BucketLimits& limits,
                  transport::ElementType type);

  void begin();

  /// Posts the buckets that are complete now, and counts what was posted.
  void layer_final(std::size_t layer, SchemeCounters& counters);

  [[nodiscard]] bool all_posted() const noexcept { return posted_ == buckets_.size(); }

  /// Returns when all buckets are reduced.
  void wait() { reduction_.wait(); }

  /// Waits for the buckets in the order posted; each is updated as soon as it is reduced, while
  /// later ones are still being reduced.
  void update(Optimizer& optimizer, const Update& update);

  /// Is any bucket reduced with another rank?
  [[nodiscard]] bool reduces() const noexcept { return reduction_.reduces(); }

 private:
  const Replica& replica_;
  std::size_t first_layer_;
  std::vector<Bucket> buckets_;  // in the order of posting; their layers from first_layer_ on
  std::vector<std::size_t> bucket_of_;  // by layer from first_layer_ on
  std::vector<std::size_t> missing_;    // by bucket: layers that are not final yet
  std::size_t posted_ = 0;              // buckets
  SliceAllreduce reduction_;            // a part for each bucket
  Copies copies_;
};

/// As optimizer.update(), of the range from `offset` on, with World::progress() between parts of it
/// so that reductions under way go on.
void tiled_update(transport::World& world, Optimizer& optimizer, std::size_t offset,
                  std::span<float> parameters, std::span<const float> gradients,
                  const Update& update);

/// Clipping by the global norm (Pascanu, Mikolov, Bengio 2013): what a gradient that is about to be
/// multiplied by `scale` must be multiplied by as well, so that it is no longer than `max_norm`:
///
///     min(1, max_norm / (scale * sqrt(squared_norm)))
///
/// `squared_norm` is that of the unscaled gradient over all layers. A max_norm of 0 means no
/// clipping: exactly 1. Ranks that pass the same numbers get the same bits. A norm that is not a
/// number gives 1, so that the parameters show it.
[[nodiscard]] double clip_factor(double squared_norm, double scale, double max_norm) noexcept;

/// Scalar products over the whole model, of which this rank may hold a part: see Slices.
///
/// Each rank sums what it counts, in double and in a fixed order; the sums of the replica's ranks
/// are added up in their order, by each rank alike: all ranks of all replicas that hold the same
/// numbers get the same bits. A rank that holds the whole model sends nothing.
class ModelSums {
 public:
  /// For up to `most` sums at once. `replica` is lent.
  ModelSums(const Replica& replica, std::size_t most);

  /// Are there other ranks to ask?
  [[nodiscard]] bool is_shared() const noexcept { return slices_.over != nullptr; }

  /// This rank's share of a.b, where both hold the elements from `offset` on of the flat arrays.
  [[nodiscard]] double own_dot(std::span<const float> a, std::span<const float> b,
                               std::size_t offset) const;

  /// Replaces what this rank has counted by what the replica has. Collective over its ranks.
  void add_up(std::span<double> sums);

  /// The squared norm of all elements of the model; `values` are those of this rank's flat arrays.
  /// Collective over the replica's ranks.
  [[nodiscard]] double squared_norm(std::span<const float> values);

  /// The clip_factor() of a gradient. Collective as squared_norm(), unless `max_norm` is 0.
  [[nodiscard]] double clip_factor(std::span<const float> gradients, double scale, double max_norm);

 private:
  const Slices& slices_;
  std::size_t most_;
  std::pmr::vector<double> own_;  // in the arena, as all_
  std::pmr::vector<double> all_;  // by rank
};

}  // namespace rondo::sync
