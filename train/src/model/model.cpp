#include <rondo/train/model.hpp>

#include <stdexcept>

namespace rondo::train {

std::vector<std::string> model_names() { return {"lenet5", "resnet20"}; }

}  // namespace rondo::train
