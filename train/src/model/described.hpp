#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>

namespace rondo::train {

/// [model] name of a model that is described layer by layer.
inline constexpr std::string_view custom_model = "custom";

/// A description that makes no model; what() begins with the key.
class DescriptionError : public std::invalid_argument {
 public:
  explicit DescriptionError(const std::string& what, std::optional<std::size_t> layer = {})
      : std::invalid_argument(what), layer_(layer) {}

  /// The layer of the description that it is about, if it is about a single one.
  [[nodiscard]] std::optional<std::size_t> layer() const noexcept { return layer_; }

 private:
  std::optional<std::size_t> layer_;
};

/// The model that `description` lists. Throws DescriptionError.
[[nodiscard]] Model make_described_model(const Experiment::Model& description);

}  // namespace rondo::train
