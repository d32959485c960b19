#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/sync/optimizer.hpp>

#include "flat/flat.hpp"

namespace rondo::sync {

/// The common part of optimizers: the arrays that they remember, in memory of their own or lent;
/// which parameters decay; and the parts of an update that threads share.
class FlatOptimizer : public Optimizer {
 public:
  [[nodiscard]] std::size_t size() const noexcept override { return size_; }
  [[nodiscard]] std::span<float> state() noexcept override { return state_; }
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  void keep_state_in(std::span<float> memory) override;
  [[nodiscard]] std::vector<std::byte> save() const override;
  void restore(std::span<const std::byte> state) override;

 protected:
  /// `arrays` arrays of `size` zeros, one after another. `name` is that of errors and of the saved
  /// state, and outlives this object. Throws std::invalid_argument unless the `undecayed` ranges
  /// are in ascending order, apart, and within `size`.
  FlatOptimizer(std::string_view name, std::size_t size, std::size_t arrays,
                std::vector<ElementRange> undecayed, transport::Team* team);

  /// Throws std::invalid_argument unless the momentum is in [0, 1) and the decay is at least 0.
  void check_momentum_and_decay(float momentum, float weight_decay) const;

  /// Throws std::invalid_argument unless the range fits.
  void check_update(std::size_t offset, std::span<float> parameters,
                    std::span<const float> gradients) const;

  /// Array `index` of the state, from element `offset` on.
  [[nodiscard]] float* array(std::size_t index, std::size_t offset) noexcept {
    return state_.subspan(index * size_).data() + offset;
  }

  /// Cuts [offset, offset + count) into parts for the team's threads, and each where weight decay
  /// begins or ends. Calls work(first, count, decays), where `first` is relative to `offset`.
  template <typename Work>
  void for_each_range(std::size_t offset, std::size_t count, const Work& work) const {
    flat::for_each_part(team_, count, [&](std::size_t part, std::size_t size) {
      for_each_decay(offset + part, size, [&](std::size_t first, std::size_t n, bool decays) {
        work(part + first, n, decays);
      });
    });
  }

  /// Throws std::invalid_argument, which begins with the optimizer's name and `what`, unless the
  /// ranges are in ascending order, apart, and within size().
  void check_ranges(std::string_view what, std::span<const ElementRange> ranges) const;

  /// Throws std::invalid_argument, beginning with the optimizer's name.
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  struct Free {
    void operator()(float* memory) const noexcept { std::free(memory); }
  };

  template <typename Work>
  void for_each_decay(std::size_t offset, std::size_t count, const Work& work) const {
    const std::size_t end = offset + count;
    auto range = std::ranges::upper_bound(
        undecayed_, offset, {}, [](const ElementRange& each) { return each.offset + each.size; });
    for (std::size_t at = offset; at < end;) {
      const bool decays = range == undecayed_.end() || at < range->offset;
      const std::size_t begin_of_next = range == undecayed_.end() ? end : range->offset;
      const std::size_t last = std::min(end, decays ? begin_of_next : range->offset + range->size);
      work(at - offset, last - at, decays);
      if (!decays) ++range;
      at = last;
    }
  }
  std::string_view name_;
  std::size_t size_;
  std::vector<ElementRange> undecayed_;  // none empty
  transport::Team* team_;
  std::unique_ptr<float, Free> own_;  // zeros, of which a page exists once it is written
  std::span<float> state_;            // own_, or what was lent
};

}  // namespace rondo::sync
