#pragma once

#include <cstdint>

#include <rondo/train/model.hpp>

namespace rondo::train {

/// LeNet-5 with ReLU and max-pooling: 61,706 parameters for 28x28x1 pictures and 10 classes.
[[nodiscard]] Model make_lenet5(tensor::Shape input, std::int64_t classes);

}  // namespace rondo::train
