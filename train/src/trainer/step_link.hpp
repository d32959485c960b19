#pragma once

#include <cstddef>

#include <rondo/sync/update_scheme.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::train {

/// Hands the executor's progress through a step on to the update scheme and the transport. Layer
/// l of the scheme is group l of the model's parameters.
class StepLink final : public StepObserver {
 public:
  StepLink(sync::UpdateScheme& scheme, transport::World& world) noexcept
      : scheme_(scheme), world_(world) {}

  void make_ready(std::size_t group) override { scheme_.make_ready(group); }
  void gradients_final(std::size_t group) override { scheme_.gradients_final(group); }
  void between_layers() override { world_.progress(); }

 private:
  sync::UpdateScheme& scheme_;
  transport::World& world_;
};

}  // namespace rondo::train
