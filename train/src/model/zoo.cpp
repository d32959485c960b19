// The list of all models. A new one is a function in a source of this folder and a line below. The
// shape and the classes are those that the model was published for; data of other sizes replace
// them, where the model bears them.

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

#include "model/zoo.hpp"

namespace rondo::train {
namespace {

constexpr tensor::Shape mnist_images = {1, 28, 28, 1};
constexpr tensor::Shape cifar_images = {1, 32, 32, 3};
constexpr tensor::Shape imagenet_images = {1, 224, 224, 3};
constexpr tensor::Shape imagenet_2012_images = {1, 227, 227, 3};

template <std::int64_t blocks>
Model resnet(tensor::Shape input, std::int64_t classes) {
  return make_resnet_cifar(blocks, input, classes);
}

template <std::int64_t blocks>
Model preact_resnet(tensor::Shape input, std::int64_t classes) {
  return make_preact_resnet(blocks, input, classes);
}

constexpr std::array zoo{
    ModelEntry{"lenet5", mnist_images, 10, &make_lenet5},
    ModelEntry{"resnet8", cifar_images, 10, &resnet<1>},
    ModelEntry{"resnet20", cifar_images, 10, &resnet<3>},
    ModelEntry{"resnet32", cifar_images, 10, &resnet<5>},
    ModelEntry{"resnet56", cifar_images, 10, &resnet<9>},
    ModelEntry{"resnet110", cifar_images, 10, &resnet<18>},
    ModelEntry{"preact_resnet20", cifar_images, 10, &preact_resnet<3>},
    ModelEntry{"preact_resnet56", cifar_images, 10, &preact_resnet<9>},
    ModelEntry{"preact_resnet110", cifar_images, 10, &preact_resnet<18>},
    ModelEntry{"densenet40_12", cifar_images, 10, &make_densenet40_12},
    ModelEntry{"alexnet", imagenet_images, 1000, &make_alexnet},
    ModelEntry{"alexnet-2012", imagenet_2012_images, 1000, &make_alexnet_2012},
    ModelEntry{"vgg11", imagenet_images, 1000, &make_vgg11},
    ModelEntry{"vgg11_bn", imagenet_images, 1000, &make_vgg11_bn},
    ModelEntry{"vgg16", imagenet_images, 1000, &make_vgg16},
    ModelEntry{"vgg16_bn", imagenet_images, 1000, &make_vgg16_bn},
    ModelEntry{"resnet18", imagenet_images, 1000, &make_resnet18},
    ModelEntry{"resnet34", imagenet_images, 1000, &make_resnet34},
    ModelEntry{"resnet50", imagenet_images, 1000, &make_resnet50},
    ModelEntry{"wide_resnet50_2", imagenet_images, 1000, &make_wide_resnet50_2},
    ModelEntry{"densenet121", imagenet_images, 1000, &make_densenet121},
    ModelEntry{"mobilenet_v2", imagenet_images, 1000, &make_mobilenet_v2},
};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelEntry& entry : zoo) names.emplace_back(entry.name);
  return names;
}

// An input without extents, or no classes, means the usual ones.
Model make_model(const ModelEntry& entry, tensor::Shape input, std::int64_t classes) {
  const bool usual = input.with_n(0) == tensor::Shape{};
  Model model = entry.make(usual ? entry.input : input, classes == 0 ? entry.classes : classes);
  (void)shapes_of(model, 1);  // refuses images that are too small
  return model;
}

Model make_model(std::string_view name, tensor::Shape input, std::int64_t classes) {
  std::string known;
  for (const ModelEntry& entry : zoo) {
    if (entry.name == name) return make_model(entry, input, classes);
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw std::invalid_argument("no model is named \"" + std::string(name) +
                              "\"; there are: " + known);
}

}  // namespace rondo::train
