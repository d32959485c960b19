#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <rondo/sync/optimizer.hpp>

#include "optimizer/sgd_kernel.hpp"

namespace rondo::sync {

/// See make_sgd(). The velocity array is all its state.
class Sgd final : public Optimizer {
 public:
  Sgd(std::size_t size, const SgdOptions& options, transport::Team* team);

  void update(std::size_t offset, std::span<float> parameters, std::span<const float> gradients,
              const Update& update) override;
  [[nodiscard]] std::vector<std::byte> save() const override;
  void restore(std::span<const std::byte> state) override;

 private:
  SgdOptions options_;
  transport::Team* team_;
  SgdKernel kernel_;
  std::vector<float> velocity_;
};

}  // namespace rondo::sync
