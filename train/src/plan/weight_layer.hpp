#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <rondo/train/model.hpp>

namespace rondo::train {

// A convolution or a fully connected layer (k = 1, X and Y of one pixel), as the cost model sees
// it: words of one sample, of weights without biases.
struct WeightLayer {
  std::string name = {};
  bool fully_connected = false;
  bool first = false;        // nobody needs the gradient of its input
  std::int64_t weights = 0;  // |W|
  std::int64_t outputs = 0;  // d
  std::int64_t inputs = 0;   // e
  std::int64_t kernel = 1;   // k
  tensor::Shape x = {};
  tensor::Shape y = {};
};

[[nodiscard]] std::vector<WeightLayer> weight_layers(const Model& model);

}  // namespace rondo::train
