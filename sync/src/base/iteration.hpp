#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/sync/replica.hpp>
#include <rondo/sync/update_scheme.hpp>

namespace rondo::sync {

/// Keeps the order of an UpdateScheme's calls: begin, every layer final once, finish.
///
/// What is out of order throws std::logic_error, wrong layers and empty steps
/// std::invalid_argument; messages begin with the scheme's name. Nothing has changed then.
class Iteration {
 public:
  /// `scheme` and `layers` are lent.
  Iteration(std::string_view scheme, std::span<const Layer> layers);

  void begin(const Step& step);
  void layer_final(std::size_t layer);
  /// May the iteration end now?
  void expect_complete() const;
  void end() noexcept { open_ = false; }

  /// Throws unless no iteration is open; `call` is what was called.
  void expect_between(std::string_view call) const;

  /// The current, or else the last one.
  [[nodiscard]] const Step& step() const noexcept { return step_; }

 private:
  void expect_open(std::string_view call) const;
  [[nodiscard]] std::string named(std::string_view text) const;

  std::string_view scheme_;
  std::span<const Layer> layers_;
  std::vector<std::uint8_t> final_;  // by layer
  Step step_;
  bool open_ = false;
};

}  // namespace rondo::sync
