#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include <rondo/sync/gradient_sum.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/parameters.hpp>
#include <rondo/transport/world.hpp>

#include "trainer/grid_place.hpp"

namespace rondo::train {

/// Hands the executor's progress through a step on to the update scheme and the transport. Layer
/// l of the scheme is group l of the model's parameters.
///
/// Where a step is computed in several pieces, the scheme sees one: layers are made ready in the
/// first piece, and final in the last, with the gradients of all.
class StepLink final : public StepObserver {
 public:
  /// All is lent.
  StepLink(sync::UpdateScheme& scheme, transport::World& world, const ParameterLayout& layout,
           std::span<float> gradients, GridPlace& grid) noexcept
      : scheme_(scheme), world_(world), layout_(layout), gradients_(gradients), grid_(grid) {}

  /// Sums up the gradients of several pieces from now on, on the threads of `team`.
  void expect_pieces(transport::Team* team) { sum_.emplace(gradients_.size(), team); }

  /// The next pass is piece `piece` of `pieces`.
  void begin_piece(std::int64_t piece, std::int64_t pieces) noexcept {
    first_ = piece == 0;
    last_ = piece + 1 == pieces;
  }

  void make_ready(std::size_t group) override {
    if (first_) scheme_.make_ready(group);
  }
  void gradients_final(std::size_t group) override {
    if (sum_) add_up(layout_.groups[group]);
    if (!last_) return;
    if (scheme_.wants_inner_sums()) sum_over_inner(group);
    scheme_.gradients_final(group);
  }
  void between_layers() override { world_.progress(); }

 private:
  void add_up(const ParameterGroup& group) {
    const std::span<float> part = gradients_.subspan(group.offset, group.size);
    if (last_) {
      sum_->move_to(group.offset, part);
    } else {
      sum_->add(group.offset, part);
    }
  }

  // A replica of several ranks steps by itself, and needs its sums at once.
  void sum_over_inner(std::size_t group) {
    transport::Communicator* inner = grid_.groups_of(group).inner;
    const ParameterGroup& place = layout_.groups[group];
    if (inner != nullptr) inner->allreduce(gradients_.subspan(place.offset, place.size)).wait();
  }

  sync::UpdateScheme& scheme_;
  transport::World& world_;
  const ParameterLayout& layout_;
  std::span<float> gradients_;
  GridPlace& grid_;
  std::optional<sync::GradientSum> sum_ = {};
  bool first_ = true;
  bool last_ = true;
};

}  // namespace rondo::train
