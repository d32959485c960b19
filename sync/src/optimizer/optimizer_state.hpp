#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace rondo::sync {

/// The flat arrays that an optimizer remembers: its own memory, or memory that was lent.
class OptimizerState {
 public:
  /// `arrays` arrays of `size` zeros, one after another. `name` and `version` mark the saved
  /// state; the name outlives this object.
  OptimizerState(std::string_view name, std::uint32_t version, std::size_t size,
                 std::size_t arrays);

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<float> array(std::size_t index) {
    return values_.subspan(index * size_, size_);
  }
  [[nodiscard]] std::span<float> values() noexcept { return values_; }

  /// See Optimizer::keep_state_in(), save() and restore().
  void keep_in(std::span<float> memory);
  [[nodiscard]] std::vector<std::byte> save() const;
  void restore(std::span<const std::byte> state);

 private:
  std::string_view name_;
  std::uint32_t version_;
  std::size_t size_;
  std::vector<float> own_;
  std::span<float> values_;  // own_, or what was lent
};

}  // namespace rondo::sync
