#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <optional>
#include <vector>

#include <rondo/tensor/tensor.hpp>
#include <rondo/train/partition.hpp>
#include <rondo/train/redistribution.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/request.hpp>

namespace rondo::train {

/// The communicators of a grid, as one rank holds them. The members of equal ones are made once.
class GridCommunicators {
 public:
  /// Collective over `all`, which has grid.ranks() ranks and is lent.
  GridCommunicators(transport::Communicator& all, ProcessGrid grid);

  [[nodiscard]] ProcessGrid grid() const noexcept { return grid_; }
  [[nodiscard]] int rank() const noexcept { return all_.rank(); }

  [[nodiscard]] transport::Communicator& all() noexcept { return all_; }
  /// The ranks of this rank's replica, by position.
  [[nodiscard]] transport::Communicator& replica();
  /// The ranks at this rank's position in every replica, by replica. Collective over `all` the
  /// first time.
  [[nodiscard]] transport::Communicator& across();
  /// This rank together with all that have its color, ordered by key, then by rank. `colors` and
  /// `keys` have an entry for every rank of the grid, the same on all ranks. Collective over
  /// `all` the first time.
  [[nodiscard]] transport::Communicator& split(const std::vector<int>& colors,
                                               const std::vector<int>& keys);

 private:
  transport::Communicator& all_;
  ProcessGrid grid_;
  std::map<std::vector<int>, transport::Communicator> made_;  ///< by each rank's color and key
};

/// Dense memory that holds a box of a whole array. Not owning; null where the box is empty.
template <typename Void>
struct BasicBoxView {
  Void* data = nullptr;
  Box box = {};
  tensor::DataType type = tensor::DataType::f32;
};
using BoxView = BasicBoxView<void>;
using ConstBoxView = BasicBoxView<const void>;

/// Copies `box`, which lies within both, and rounds or widens where the types differ.
void copy_box(const Box& box, const ConstBoxView& from, const BoxView& into);

/// Adds `box` of `from` to that of `into`, which is of the same type; sums are rounded to it.
void add_box(const Box& box, const ConstBoxView& from, const BoxView& into);

/// Says whether arriving elements replace the elements there, or are added to them.
enum class Arrival : std::uint8_t { replaces, adds };

/// One rank's part in a change of layout, made once and run many times. Halos travel so, too.
///
/// What is sent is packed into buffers of its own, so the caller's memory is free again when
/// start() returns. Running allocates nothing. A run that is never finished does no harm, if all
/// ranks give it up: the next start() waits for it. Several exchanges may be under way between the
/// same ranks if all ranks start them in the same order.
class Exchange {
 public:
  /// `communicator` numbers ranks as `plan` does; `held` and `wanted` are the boxes that this
  /// rank's memory holds before and after, with elements of `type`, which are sent as they are.
  /// Buffers come from `memory`.
  Exchange(transport::Communicator& communicator, Redistribution plan, Box held, Box wanted,
           std::pmr::memory_resource* memory, Arrival arrival = Arrival::replaces,
           tensor::DataType type = tensor::DataType::f32);

  /// The bytes of the buffers for `plan`.
  [[nodiscard]] static std::size_t bytes(const Redistribution& plan,
                                         tensor::DataType type) noexcept;

  /// Does this rank neither send nor receive?
  [[nodiscard]] bool silent() const noexcept {
    return plan_.sends.empty() && plan_.receives.empty();
  }

  /// Sends from `from`, which holds `held`, then copies what is kept into `to`, which holds
  /// `wanted`. The two must not overlap. Elements of `to` that are not kept stay as they are.
  void start(const void* from, void* to);
  /// As above, where nothing is wanted that this rank has itself, or it is there already.
  void start(const void* from);

  /// Waits for what others send and puts it into `to`, in the order of the plan's receives.
  void finish(void* to);

 private:
  Redistribution plan_;
  Box held_;
  Box wanted_;
  Arrival arrival_;
  tensor::AnyTensor sent_;
  tensor::AnyTensor received_;
  std::optional<transport::Plan> travel_;
  transport::Request request_;  ///< behind the buffers, so that it ends before they go
};

/// How many of `channels`, cut into so many parts, are in each of those from `first` on.
[[nodiscard]] std::vector<std::size_t> shares(std::int64_t channels, int parts, int first,
                                              int count);

/// Ranks that hold the same pixels, each some of their channels: `own` is this rank's channels,
/// `all` those of all ranks side by side, in rank order. Some may have none.
///
/// Views are dense and lent until the Request completes.
class ChannelExchange {
 public:
  /// Rank r of `ranks`, which are lent, holds channels[r] channels.
  ChannelExchange(transport::Communicator& ranks, std::vector<std::size_t> channels);

  /// `all` of every rank from every rank's `own`. Each sends its own to the others:
  /// (p - 1) / p of |all| where channels are even.
  [[nodiscard]] transport::Request allgather(tensor::ConstAnyView own, tensor::AnyView all);

  /// `own` of every rank from the sum of all ranks' `all`, which is not changed; as many elements.
  [[nodiscard]] transport::Request reduce_scatter(tensor::View<const float> all,
                                                  tensor::View<float> own);

 private:
  transport::Communicator& ranks_;
  std::vector<std::size_t> channels_;
};

}  // namespace rondo::train
