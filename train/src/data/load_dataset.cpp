#include <rondo/train/dataset.hpp>

namespace rondo::train {
namespace {

constexpr const char* fashion_mnist_folder = "/usr/share/datasets/fashion-mnist";

SyntheticOptions synthetic_options(const Experiment::Data& data, const tensor::Shape& model_input,
                                   std::int64_t model_classes) {
  SyntheticOptions options;
  options.shape = model_input;
  if (!data.shape.empty()) {
    if (data.shape.size() != 3) throw ConfigError("data.shape: must be [height, width, channels]");
    options.shape = {0, data.shape[0], data.shape[1], data.shape[2]};
  }
  options.classes = data.classes > 0 ? data.classes : model_classes;
  options.training = data.training;
  options.test = data.test;
  return options;
}

}  // namespace

Dataset load_dataset(const Experiment::Data& data, const tensor::Shape& model_input,
                     std::int64_t model_classes) {
  if (data.name == "synthetic") {
    return make_synthetic(synthetic_options(data, model_input, model_classes));
  }
  if (data.name == "fashion-mnist") {
    return read_idx(data.path.empty() ? fashion_mnist_folder : data.path);
  }
  if (data.name != "cifar10") throw ConfigError("data.name: no data set '" + data.name + "'");
  if (data.path.empty()) {
    throw ConfigError(
        "data.path: missing; set it to the folder with data_batch_1.bin of CIFAR-10's binary "
        "version, or to its parent");
  }
  return read_cifar10(data.path);
}

}  // namespace rondo::train
