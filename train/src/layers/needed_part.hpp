#pragma once

#include <span>

#include <rondo/tensor/tensor.hpp>
#include <rondo/tensor/view.hpp>
#include <rondo/train/box.hpp>
#include <rondo/train/partition.hpp>

#include "grid/exchange.hpp"
#include "layers/grid_context.hpp"

namespace rondo::train {

/// What a rank's kernel reads of an array that is split in space: its own part where it needs no
/// more, else a copy of it with the halo around.
class NeededPart {
 public:
  /// The array lies by `held`; rank r needs `needs[r]`. This rank's kernel is given `reads`, which
  /// contains what it needs; what it does not need is zero there unless it reads its own part.
  NeededPart(const GridContext& context, const Partition& held, std::span<const Box> needs,
             const Box& reads);

  /// Sends what others need of `own`, and copies what this rank needs of it. Where reads_own()
  /// `own` must stay as it is for as long as it is read.
  void start(tensor::View<const float> own);

  /// Waits for what others send. What the kernel reads, until the next start().
  [[nodiscard]] tensor::View<const float> finish();
  /// What finish() gave last.
  [[nodiscard]] tensor::View<const float> read() const noexcept { return read_; }

  /// Does the kernel read the memory that start() was given?
  [[nodiscard]] bool reads_own() const noexcept { return reads_own_; }

 private:
  bool reads_own_;
  Exchange exchange_;
  tensor::Tensor copy_;
  tensor::View<const float> read_;
};

}  // namespace rondo::train
