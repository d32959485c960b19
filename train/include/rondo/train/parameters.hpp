#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rondo::train {

/// How a parameter begins: he_normal has the variance 2 / fan_out (torchvision's ResNets),
/// uniform_fan_in lies within +-1 / sqrt(fan_in) (PyTorch's layers by themselves).
enum class Initial : std::uint8_t { zeros, ones, he_normal, uniform_fan_in };

/// One named array of a model, as torchvision's state_dict would name and shape it. Offsets
/// count elements of the flat array that it belongs to.
struct Parameter {
  std::string name = {};                 ///< for example "layer1.0.conv1.weight"
  std::vector<std::int64_t> shape = {};  ///< for example {16, 16, 3, 3}
  std::size_t offset = 0;
  Initial initial = Initial::zeros;
  std::int64_t fan_in = 1;  ///< of the whole parameter, as fan_out
  std::int64_t fan_out = 1;
  /// On a grid a rank may hold a part, cut along the first two dimensions; `shape` is then the
  /// part's, `whole` the parameter's, and `first` where the part begins. Empty: not cut.
  std::vector<std::int64_t> whole = {};
  std::vector<std::int64_t> first = {};

  /// The layer that it is of: its name but for the last part.
  [[nodiscard]] std::string layer() const { return name.substr(0, name.rfind('.')); }
  [[nodiscard]] std::size_t size() const noexcept {
    std::size_t product = 1;
    for (const std::int64_t extent : shape) product *= static_cast<std::size_t>(extent);
    return product;
  }
};

/// The parameters of one layer (a convolution and the batch norm behind it are two layers):
/// adjacent, elements [offset, offset + size) of the flat parameter and gradient arrays.
struct ParameterBlock {
  std::string name = {};  ///< for example "layer1.0.conv1"
  std::size_t offset = 0;
  std::size_t size = 0;
};

/// Where everything that a model learns lies in flat fp32 arrays: `parameters` and their
/// gradients in one layout, `statistics` (batch norm's running values) in another.
struct ParameterLayout {
  std::vector<Parameter> parameters = {};
  std::vector<Parameter> statistics = {};
  std::vector<ParameterBlock> blocks = {};  ///< forward order
  std::size_t parameter_count = 0;          ///< elements of the flat array
  std::size_t statistic_count = 0;
};

}  // namespace rondo::train
